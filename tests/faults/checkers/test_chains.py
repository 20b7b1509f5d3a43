from __future__ import annotations

import pytest
from coordlock_faults.chains import (
    ForkedChain,
    LostWrite,
    SeenInPart,
    chains,
)
from coordlock_faults.events import Act
from coordlock_faults.violation import Violation

from tests.faults.checkers.story import BOUNDS, Story


def written() -> Story:
    """c1 makes keys 0 and 1 at once, c2 writes key 1, and c3 is refused; c4 gets no answer."""
    story = Story(truth=False, lock="values")
    story.call("c1", Act.WRITE, 0, 0, 10, 1, 0, 11, at=10)
    story.call("c2", Act.WRITE, 1, 1, 20, at=20)
    story.call("c3", Act.WRITE, 0, 0, 30, at=30, raised="VersionMismatch")
    story.call("c4", Act.WRITE, 0, 1, 40, at=40, raised="BackendUnavailable")
    return story


def read(story: Story, *state: int, at: int = 50) -> list[Violation]:
    story.call("c5", Act.READ, at=at, returned=state)
    return chains(story.history(), BOUNDS)


@pytest.mark.parametrize("state", [(0, 1, 10, 1, 2, 20), (0, 2, 40, 1, 2, 20)])
def test_a_write_without_an_answer_may_be_made_or_not(state: tuple[int, ...]) -> None:
    assert read(written(), *state) == []


def test_an_observer_may_be_late_and_a_reader_may_not() -> None:
    story = written()
    story.observe("c5", (), (0, 1, 10, 1, 1, 11), (0, 1, 10, 1, 2, 20))
    assert chains(story.history(), BOUNDS) == []
    [found] = read(story, 0, 1, 10, 1, 1, 11)
    assert isinstance(found, LostWrite)
    assert "read version 1 of key 1 after version 2 was acknowledged" in str(found)
    assert read(written(), 0, 1, 10, 1, 1, 11, at=20) == []


def test_two_acknowledged_writes_of_one_version_are_found() -> None:
    story = written()
    story.call("c6", Act.WRITE, 1, 1, 60, at=60)
    [found] = chains(story.history(), BOUNDS)
    assert isinstance(found, ForkedChain)
    assert "two writes have replaced version 1 of key 1" in str(found)


@pytest.mark.parametrize("state", [(0, 1, 10), (1, 2, 20)])
def test_a_transaction_that_is_seen_in_part_is_found(state: tuple[int, ...]) -> None:
    story = written()
    story.observe("c5", state)
    [found] = chains(story.history(), BOUNDS)
    assert isinstance(found, SeenInPart)
