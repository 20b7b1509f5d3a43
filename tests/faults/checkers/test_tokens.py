from __future__ import annotations

from coordlock.model.claim import Mode
from tests.faults.checkers.story import Story, broken


def test_those_that_are_enqueued_at_the_same_time_have_tokens_in_any_order() -> None:
    story = Story(truth=False)
    story.attempt("c1", 6, claim=Mode.PR, invoked=1, granted=10, released=50)
    story.attempt("c2", 5, claim=Mode.PR, invoked=10, granted=30, released=40)
    assert broken(story) == []


def test_a_token_of_another_claim_is_found() -> None:
    story = Story()
    story.contender(5, 7, claim=Mode.PR)
    story.truth = False
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.truth = True
    assert broken(story) == ["ForeignToken"]
