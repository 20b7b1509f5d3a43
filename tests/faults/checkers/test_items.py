from __future__ import annotations

import pytest
from coordlock_faults.events import Act
from coordlock_faults.items import (
    DoneTwice,
    LateDone,
    LostItem,
    Miscounted,
    Overtaking,
    items,
)
from coordlock_faults.violation import Violation

from coordlock.model.claim import Mode
from tests.faults.checkers.story import BOUNDS, QUIET, Story, broken


class Queue(Story):
    """A work queue into which c1 has put 10, 11 and 12, as items 1, 2 and 3."""

    def __init__(self) -> None:
        super().__init__(truth=False)
        self._tokens = 0
        for number in range(3):
            self.put(10 + number, number + 1, at=10 + 2 * number)

    def put(self, mark: int, id: int | None, *, at: int, delayed: bool = False) -> None:
        """Put something; no ``id`` where there is no answer."""
        self.lock = "queue"
        error = "" if id else "BackendUnavailable"
        passed = mark, int(delayed)
        self.call("c1", Act.PUT, *passed, at=at, returned=(id or 0,), raised=error)

    def take(
        self, process: str, id: int, attempt: int, mark: int, *, at: int, token: int | None = None
    ) -> str:
        """Take an item for five milliseconds; the name of the job."""
        self._tokens += 1
        token = self._tokens if token is None else token
        self.lock = "@work-queue"
        job = self.attempt(
            process, token, claim=Mode.NL, invoked=at, granted=at + 1, released=at + 5
        )
        self.lock = "queue"
        self.call(process, Act.TAKE, at=at, attempt=job, returned=(id, attempt, mark))
        return job

    def end(self, process: str, act: Act, id: int, job: str, *, at: int, raised: str = "") -> None:
        """Say what is to become of an item."""
        self.call(process, act, id, at=at, attempt=job, raised=raised)

    def finish(self, *ids: int) -> None:
        """The runner does these items, and finds nothing more."""
        self.lock = "queue"
        for number, id in enumerate(ids):
            at = QUIET + 10 + 4 * number
            self.call("runner", Act.TAKE, at=at, returned=(id, 9, 9 + id))
            self.call("runner", Act.DONE, id, at=at + 2)
        self.present()

    def found(self) -> list[Violation]:
        """What the checker finds."""
        return items(self.history(), BOUNDS)


def test_items_that_are_taken_in_order_and_done_are_right() -> None:
    queue = Queue()
    for id in (1, 2, 3):
        job = queue.take("c2", id, 1, 9 + id, at=20 * id)
        queue.end("c2", Act.DONE, id, job, at=20 * id + 5)
    queue.put(13, None, at=100)
    queue.finish()
    assert broken(queue) == []


def test_an_item_that_is_gone_is_found_unless_it_may_have_been_done() -> None:
    queue = Queue()
    job = queue.take("c2", 3, 1, 12, at=20)
    queue.end("c2", Act.DONE, 3, job, at=25, raised="BackendUnavailable")
    queue.finish(1)
    [found] = [one for one in queue.found() if not isinstance(one, Overtaking)]
    assert isinstance(found, LostItem)
    assert "11 was put into queue, and is neither done nor there" in str(found)


def test_an_item_that_is_done_twice_is_found() -> None:
    queue = Queue()
    job = queue.take("c2", 1, 1, 10, at=20)
    other = queue.take("c3", 1, 2, 10, at=21)
    queue.end("c2", Act.DONE, 1, job, at=22)
    queue.end("c3", Act.DONE, 1, other, at=30)
    queue.finish(2, 3)
    [found] = queue.found()
    assert isinstance(found, DoneTwice)
    assert "item 1 was done 2 times" in str(found)


@pytest.mark.parametrize("act", [Act.DONE, Act.NACK])
def test_a_late_worker_whose_word_is_taken_is_found(act: Act) -> None:
    queue = Queue()
    late = queue.take("c2", 1, 1, 10, at=20)
    queue.take("c3", 1, 2, 10, at=30)
    queue.end("c2", act, 1, late, at=40)
    queue.finish(*([2, 3] if act is Act.DONE else [1, 2, 3]))
    [found] = queue.found()
    assert isinstance(found, LateDone)


@pytest.mark.parametrize(("attempt", "token"), [(1, 9), (2, 1)])
def test_attempts_that_do_not_grow_are_found(attempt: int, token: int) -> None:
    queue = Queue()
    queue.take("c2", 1, 1, 10, at=20, token=2)
    queue.take("c3", 1, attempt, 10, at=30, token=token)
    queue.finish(1, 2, 3)
    [found] = queue.found()
    assert isinstance(found, Miscounted)


def test_an_item_that_is_taken_before_one_of_long_before_is_found() -> None:
    queue = Queue()
    queue.put(3999, 3990, at=16)
    queue.take("c2", 3990, 1, 3999, at=20)
    queue.take("c2", 1, 1, 10, at=30)
    queue.finish(1, 2, 3, 3990)
    [found] = queue.found()
    assert isinstance(found, Overtaking)
    assert "item 3990 was taken before item 1, and had been put after it" in str(found)
