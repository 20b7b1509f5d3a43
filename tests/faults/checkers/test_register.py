from __future__ import annotations

import pytest
from coordlock_faults.events import Kind

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


def adds() -> Story:
    """1 and 2 were acknowledged, 3 refused, of 4 nobody knows."""
    story, one, other = writers()
    story.operation(one, 5, at=11, kind=Kind.ADD, value=1, order=1)
    story.operation(other, 6, at=22, kind=Kind.ADD, value=2, order=2)
    story.operation(one, 5, at=24, kind=Kind.ADD, value=3, refused_by=6)
    story.operation(other, 6, at=28, kind=Kind.ADD, value=4, failed=True)
    return story


@pytest.mark.parametrize(
    ("final", "expected"),
    [
        ((1, 2), []),
        ((4, 2, 1), []),
        ((2,), ["LostAdd"]),
        ((), ["LostAdd", "LostAdd"]),
        ((1, 2, 3), ["PhantomAdd"]),  # refused
        ((1, 2, 9), ["PhantomAdd"]),  # never offered
        ((1, 2, 2), ["PhantomAdd"]),
    ],
)
def test_the_final_set_is_what_was_acknowledged(
    final: tuple[int, ...], expected: list[str]
) -> None:
    story = adds()
    story.final_set(*final)
    assert broken(story) == expected
