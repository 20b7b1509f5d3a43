"""What is written down of an attempt, and when: most of all, which comes first, loss or release."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coordlock_faults.attempt import Attempt as Told
from coordlock_faults.journal import Journal, read

import coordlock
from coordlock.model.claim import Mode
from coordlock.testing.waiting import eventually
from testbed.clients.attempt_log import THREADS, AttemptLog


class Desk:
    """A journal, and two clients of one service in memory."""

    def __init__(self, directory: Path) -> None:
        self.url = f"memory://{uuid.uuid4().hex}?ttl=10s"
        self.client = coordlock.connect(self.url)
        self.operator = coordlock.connect(self.url)
        self.path = directory / "c1.jsonl"
        self.journal = Journal(self.path, "c1")

    def attempt(self, name: str = "c1-1") -> AttemptLog:
        return AttemptLog(self.journal, name, "a", Mode.EX)

    def hold(self, name: str = "c1-1") -> AttemptLog:
        attempt = self.attempt(name)
        attempt.granted(self.client.lock("a").acquire())
        return attempt

    def evict(self) -> None:
        assert self.operator.admin.evict(self.operator.admin.contenders("a")[0])

    def told(self) -> list[Told]:
        history = read([self.path])
        assert history.strays == []
        return list(history.attempts.values())

    def close(self) -> None:
        for one in (self.client, self.operator, self.journal):
            one.close()


@pytest.fixture
def desk(tmp_path: Path, no_leaks: None) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def test_an_attempt_is_written_down_from_its_call_to_its_end(desk: Desk) -> None:
    before = time.monotonic_ns()
    attempt = desk.hold()
    attempt.releasing()
    attempt.released(attempt.grant.release() is True)
    assert attempt.told.wait(10)
    [one] = desk.told()
    assert one.granted is not None
    assert one.release_sent is not None
    assert one.release_answer is not None
    assert before < one.invoked.at < one.granted.at < one.release_sent.at < one.release_answer.at
    assert one.token == attempt.token
    assert one.deadline is not None
    assert one.granted.at + 5e9 < one.deadline < one.granted.at + 10e9
    assert one.lost is None


def test_a_loss_is_told_once_with_the_deadline_as_the_session_had_it(desk: Desk) -> None:
    attempt = desk.hold()
    eventually(lambda: attempt.grant.remaining() < 9.95)  # so that a heartbeat makes a difference
    session = attempt.grant._ticket.session
    session.beat().result(10)
    desk.evict()
    assert attempt.told.wait(10)
    expected = desk.journal.moment(session._deadline)
    attempt.releasing()
    [one] = desk.told()
    assert one.granted is not None
    assert one.granted.deadline is not None
    assert one.lost is not None
    assert one.lost.deadline is not None
    assert expected is not None
    assert one.lost.deadline > one.granted.deadline
    assert abs(one.lost.deadline - expected) < 5e9
    assert one.end is one.lost
    assert "evicted" in one.lost.reason or "queue" in one.lost.reason


def test_a_busy_event_loop_does_not_make_the_loss_late(desk: Desk) -> None:
    async def be_busy() -> None:
        async with coordlock.connect_async(desk.url) as client:
            attempt = desk.attempt()
            attempt.granted(await client.lock("a").acquire())
            desk.evict()
            assert attempt.told.wait(10)  # blocks the loop
            attempt.releasing()
            await attempt.grant.release()  # type: ignore[misc]

    asyncio.run(be_busy())
    [one] = desk.told()
    assert one.end is one.lost is not None


def test_of_a_loss_and_a_release_at_once_the_first_to_be_written_is_the_end(desk: Desk) -> None:
    at_once = threading.Barrier(2, timeout=10)

    def lose(attempt: AttemptLog, after: float) -> None:
        at_once.wait()
        time.sleep(after)
        attempt.grant._ticket.removed_by_service("q")  # as the service would tell it

    for number in range(150):
        attempt = desk.hold(f"c1-{number}")
        lead = (number % 20 - 10) / 10_000  # of either, by turns
        thread = threading.Thread(target=lose, args=(attempt, max(0.0, -lead)))
        thread.start()
        at_once.wait()
        time.sleep(max(0.0, lead))
        attempt.releasing()
        attempt.grant.release()
        thread.join()
        assert attempt.told.wait(10)
    told = desk.told()
    assert any(one.lost for one in told)
    assert any(not one.lost for one in told)
    for one in told:
        assert one.release_sent is not None
        assert one.lost is None or one.lost.at <= one.release_sent.at


def test_what_is_forgotten_is_written_down_no_more(desk: Desk) -> None:
    attempt = desk.hold()
    attempt.forget()
    desk.evict()
    assert attempt.told.wait(10)
    assert desk.told()[0].lost is None


@pytest.mark.parametrize("end", ["release", "loss"])
def test_the_thread_that_waits_for_the_loss_ends(desk: Desk, end: str) -> None:
    attempt = desk.hold()
    assert any(one.name.startswith(THREADS) for one in threading.enumerate())
    finish: dict[str, Callable[[], object]] = {
        "release": attempt.grant.release,
        "loss": desk.evict,
    }
    finish[end]()
    eventually(lambda: not any(one.name.startswith(THREADS) for one in threading.enumerate()))
