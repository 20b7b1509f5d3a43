"""What others do between a look and the write that rests on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from coordlock_memory import MemoryBackend

import coordlock
from coordlock import LockLost, WorkQueueStats
from coordlock.backend import Operation, Put
from coordlock.model.contender import Contender
from coordlock.runtime.driver import run
from coordlock.testing.waiting import eventually
from coordlock.work.consumer import Known, Search
from coordlock.work.desk import Desk

BOUND = 30.0


@pytest.fixture
def client(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root}") as client:
        yield client


@pytest.fixture
def other(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root}") as client:
        yield client


def backend_of(client: coordlock.Client) -> MemoryBackend:
    backend = client._access.engine.backend
    assert isinstance(backend, MemoryBackend)
    return backend


def before_writing(
    client: coordlock.Client, place: str, act: Callable[[Sequence[Contender]], object]
) -> None:
    """Let ``act`` happen once, before the client's next write of a key with ``place`` in it."""
    backend = backend_of(client)
    write = backend.write

    def first(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        if any(isinstance(one, Put) and place in one.key for one in operations):
            del backend.write
            act(guards)
        return write(operations, guards)

    backend.write = first  # type: ignore[method-assign]


def test_a_worker_that_is_evicted_while_it_takes_takes_as_another_one(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    queue.put(b"one")
    evicted: list[Contender] = []

    def evict(guards: Sequence[Contender]) -> None:
        evicted.extend(guards)
        backend_of(other).service.remove(guards[0])

    before_writing(client, "/claims/", evict)
    with queue.take(BOUND) as job:
        job.verify()
        assert (job.data, job.attempt) == (b"one", 1)
        assert [one.token for one in evicted] < [job.token]


def test_a_worker_that_is_lost_before_it_has_read_its_item_takes_it_as_another_one(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    id = queue.put(b"one")
    backend = backend_of(client)
    read = backend.read

    def lose_first(where: str, guard: Contender | None = None) -> Any:
        if "/items/" in where:
            del backend.read
            engine = client._access.engine
            [worker] = [one for one in engine.tickets if "work-" in one.entries[0].queue]
            backend_of(other).service.remove(worker.contenders[0])
            eventually(lambda: worker.lost)
        return read(where)

    backend.read = lose_first  # type: ignore[method-assign]
    with queue.take(BOUND) as job:
        job.verify()
        assert (job.id, job.attempt) == (id, 2)


def test_a_job_that_nobody_has_taken_over_yet_is_refused_all_the_same(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    id = queue.put(b"one")
    job = queue.take(BOUND)
    evict = lambda guards: backend_of(other).service.remove(guards[0])  # noqa: E731
    before_writing(client, "/state/bell", evict)
    with pytest.raises(LockLost):
        job.nack()
    with other.work_queue("q").take(BOUND) as again:
        assert (again.id, again.attempt) == (id, 2)


def test_a_job_that_was_lost_leaves_nothing_behind_where_no_block_ends(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    queue.put(b"0")
    job = queue.take(BOUND)
    assert other.work_queue("q").evict(job.id)
    with pytest.raises(LockLost):
        job.done()
    eventually(lambda: not client._access.engine.tickets)


def test_who_is_overtaken_at_the_head_takes_the_next(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    for data in (b"one", b"two", b"three", b"four"):
        queue.put(data)
    overtaken: list[bytes] = []

    def overtake(_: Sequence[Contender]) -> None:
        for _number in range(2):
            with other.work_queue("q").take(0) as job:
                overtaken.append(job.data)

    before_writing(client, "/claims/", overtake)
    with queue.take(BOUND) as job:
        assert (overtaken, job.data) == ([b"one", b"two"], b"three")
        assert queue.stats() == WorkQueueStats(waiting=1, taken=1, delayed=0, dead=0)


def test_what_is_delayed_while_its_bucket_is_cleared_is_not_forgotten(
    client: coordlock.Client, other: coordlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    at = now - now % 60  # a minute begins, so that both are in one bucket
    monkeypatch.setattr(time, "time", lambda: at)
    queue = client.work_queue("q")
    queue.put(b"first", delay=1)
    at += 2
    late = lambda _: other.work_queue("q").put(b"second", delay=1)  # noqa: E731
    before_writing(client, "/again/", late)
    with queue.take(BOUND) as job:
        assert job.data == b"first"
    assert queue.try_take() is None
    assert queue.stats() == WorkQueueStats(0, 0, 1, 0)
    at += 2
    with queue.take(BOUND) as job:
        assert job.data == b"second"


def test_who_came_before_the_last_claim_takes_over_with_a_newer_token(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    client.work_queue("q").put(b"one")
    desk = Desk(client._access.engine, "q")
    search = Search(desk, Known(), max_attempts=10, label=None, deadline=None)
    search.begin_worker()
    [early] = run(desk.workers()).contenders
    job = other.work_queue("q").take(BOUND)
    assert early.token is not None
    assert early.token < job.token
    other.close()
    taken = run(search.steps(None))
    assert taken is not None
    assert taken.attempt.attempt == 2
    assert (taken.ticket.contenders[0].token or 0) > job.token
