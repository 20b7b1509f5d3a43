from __future__ import annotations

import os

from hypothesis import settings

# Repeatable and quick by default; COORDLOCK_EXAMPLES=5000 looks for new failures.
examples = os.environ.get("COORDLOCK_EXAMPLES")
settings.register_profile(
    "coordlock",
    deadline=None,
    derandomize=examples is None,
    max_examples=int(examples or 100),
    print_blob=True,
)
settings.load_profile("coordlock")
