"""One run, from its plan to its judgement; and many, with a report on them."""
