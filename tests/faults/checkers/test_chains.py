from __future__ import annotations

import pytest
from coordlock_faults.chains import (
    ForkedChain,
    LostWrite,
    NeverWritten,
    SeenInPart,
    chains,
)
from coordlock_faults.events import Act
from coordlock_faults.violation import Violation

from tests.faults.checkers.story import BOUNDS, Story, broken


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


def test_a_write_that_was_seen_counts_as_one_that_was_acknowledged() -> None:
    story = written()
    story.call("c6", Act.WRITE, 0, 1, 60, at=41)
    assert chains(story.history(), BOUNDS) == []
    story.observe("c5", (0, 2, 40, 1, 2, 20))
    [found] = chains(story.history(), BOUNDS)
    assert isinstance(found, ForkedChain)


@pytest.mark.parametrize(
    ("state", "what"),
    [
        ((0, 1, 30, 1, 2, 20), "was told of 30 in key 0, which was refused"),
        ((0, 1, 99, 1, 2, 20), "was told of 99, version 1 of key 0: nobody wrote that"),
        ((0, 3, 40, 1, 2, 20), "was told of 40, version 3 of key 0: nobody wrote that"),
        ((0, 1, 11, 1, 2, 20), "was told of 11, version 1 of key 0: nobody wrote that"),
    ],
)
def test_what_nobody_wrote_is_found(state: tuple[int, ...], what: str) -> None:
    # What was refused and is there has also taken another's place.
    [found] = [one for one in read(written(), *state) if isinstance(one, NeverWritten)]
    assert what in str(found)


def test_what_is_seen_before_it_was_written_is_found() -> None:
    [found] = read(written(), 0, 1, 10, 1, 2, 20, at=15)
    assert isinstance(found, NeverWritten)


@pytest.mark.parametrize("state", [(0, 1, 10), (1, 2, 20)])
def test_a_transaction_that_is_seen_in_part_is_found(state: tuple[int, ...]) -> None:
    story = written()
    story.observe("c5", state)
    [found] = chains(story.history(), BOUNDS)
    assert isinstance(found, SeenInPart)


def test_who_observes_one_key_is_not_asked_for_others() -> None:
    story = written()
    story.lock = "values/1"
    story.observe("c5", (1, 1, 11), (1, 2, 20))
    story.present(1, 2, 20)
    story.lock = "a"
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    assert broken(story) == []
