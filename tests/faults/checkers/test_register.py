from __future__ import annotations

import pytest

from tests.faults.checkers.story import Story, broken


def writers() -> tuple[Story, str, str]:
    """Two that held one after the other."""
    story = Story(truth=False)
    one = story.attempt("c1", 5, invoked=1, granted=10, released=20)
    other = story.attempt("c2", 6, invoked=2, granted=21, released=30)
    return story, one, other


@pytest.mark.parametrize(
    ("older", "newer", "right"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_only_readers_pass_newer_readers(older: bool, newer: bool, right: bool) -> None:
    story, one, other = writers()
    story.operation(other, 6, at=22, shared=newer, order=1)
    story.operation(one, 5, at=24, shared=older, order=2)
    assert broken(story) == ([] if right else ["StaleAccepted"])
