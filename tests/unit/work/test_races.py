"""What others do between a look and the write that rests on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from coordlock_memory import MemoryBackend

import coordlock
from coordlock import LockLost
from coordlock.backend import Operation, Put
from coordlock.kernel.acquisition import acquisition
from coordlock.locks.queue_view import queue_view
from coordlock.model.claim import Permit
from coordlock.model.contender import Contender
from coordlock.runtime.driver import run
from coordlock.runtime.promise import Promise, failed
from coordlock.testing.waiting import eventually
from coordlock.types import WorkQueueStats
from coordlock.work.workers import Workers

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
    with queue.take(BOUND) as item:
        item.verify()
        assert (item.data, item.deliveries) == (b"one", 1)
        assert [one.token for one in evicted] < [item.token]


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
    with queue.take(BOUND) as item:
        item.verify()
        assert (item.id, item.deliveries) == (id, 2)


def test_an_item_that_nobody_has_taken_over_yet_is_refused_all_the_same(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    id = queue.put(b"one")
    item = queue.take(BOUND)
    evict = lambda guards: backend_of(other).service.remove(guards[0])  # noqa: E731
    before_writing(client, "/state/bell", evict)
    with pytest.raises(LockLost):
        item.nack()
    with other.work_queue("q").take(BOUND) as again:
        assert (again.id, again.deliveries) == (id, 2)


def test_an_item_that_was_lost_leaves_nothing_behind_where_no_block_ends(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    queue.put(b"0")
    item = queue.take(BOUND)
    assert other.work_queue("q").evict(item.id)
    with pytest.raises(LockLost):
        item.ack()
    eventually(lambda: not client._access.engine.tickets)


def test_a_consumer_that_is_overtaken_takes_another_item(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    for data in (b"one", b"two", b"three", b"four"):
        queue.put(data)
    overtaken: list[bytes] = []

    def overtake(_: Sequence[Contender]) -> None:
        for _number in range(2):
            with other.work_queue("q").take(0) as item:
                overtaken.append(item.data)

    before_writing(client, "/claims/", overtake)
    with queue.take(BOUND) as item:
        assert overtaken == [b"one", b"two"]
        assert item.data in (b"three", b"four")
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
    with queue.take(BOUND) as item:
        assert item.data == b"first"
    assert queue.try_take() is None
    assert queue.stats() == WorkQueueStats(0, 0, 1, 0)
    at += 2
    with queue.take(BOUND) as item:
        assert item.data == b"second"


def test_what_is_delayed_right_after_a_look_is_waited_for_no_longer_than_its_delay(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue, theirs = client.work_queue("q"), other.work_queue("q")
    queue.put(b"mark")
    queue.take(BOUND).ack()
    for _ in range(2):  # after these looks the client knows that nobody has claims
        time.sleep(1.5)
        assert queue.try_take() is None
    time.sleep(0.3)
    theirs.put(b"second", delay=6)
    assert queue.try_take() is None  # looks for what is due, and for some time no more
    theirs.put(b"first", delay=0.01)
    began = time.monotonic()
    with queue.take(BOUND) as item:
        assert item.data == b"first"
    assert time.monotonic() - began < 3


def test_a_worker_that_came_before_the_last_claim_does_not_take_over(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    """A fence of the item would refuse its token."""
    client.work_queue("q").put(b"one")
    workers: Workers = client.work_queue("q")._share().consumer.workers
    early = run(workers.get(None))
    workers.put_back(early)
    item = other.work_queue("q").take(BOUND)
    assert early.token < item.token
    other.close()
    with client.work_queue("q").take(BOUND) as again:
        assert again.deliveries == 2
        assert again.token > item.token


def test_a_claim_that_no_caller_got_counts_for_nothing(client: coordlock.Client) -> None:
    queue = client.work_queue("q", max_attempts=1, max_deliveries=1)
    queue.put(b"one")
    backend = backend_of(client)
    read, answers = backend.read, []

    def unanswered(where: str, guard: Contender | None = None) -> Any:
        if "/items/" not in where:
            return read(where, guard=guard)
        answer: Promise[Any] = Promise()
        answers.append((where, answer))
        return answer

    backend.read = unanswered  # type: ignore[method-assign]
    with pytest.raises(coordlock.BackendUnavailable):
        queue.take(0.2)
    del backend.read
    for where, answer in answers:
        answer.resolve(backend.read(where).result(BOUND))
    with queue.take(BOUND) as item:
        assert (item.data, item.deliveries, item.failures) == (b"one", 1, 0)


def test_deploys_count_as_deliveries_and_not_as_failures(client: coordlock.Client) -> None:
    queue = client.work_queue("q", max_attempts=1)
    queue.put(b"one")
    for number in range(10):
        item = queue.take(BOUND)
        assert (item.deliveries, item.failures) == (number + 1, 0)
        assert item.release() is True
    queue.take(BOUND).nack()
    assert [one.failures for one in queue.dead()] == [1]


def test_an_item_is_dead_after_the_deliveries_that_an_option_allows(
    client: coordlock.Client,
) -> None:
    queue = client.work_queue("q", max_deliveries=2)
    queue.put(b"one")
    for _ in range(2):
        queue.take(BOUND).release()
    assert queue.try_take() is None
    [dead] = queue.dead()
    assert (dead.deliveries, dead.failures, dead.reason) == (2, 0, "delivered 2 times")


def test_an_ack_whose_answer_was_lost_is_made_and_not_called_lost(
    client: coordlock.Client,
) -> None:
    queue = client.work_queue("q")
    queue.put(b"one")
    item = queue.take(BOUND)
    backend = backend_of(client)
    write = backend.write

    def losing(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        del backend.write
        write(operations, guards)
        return failed(coordlock.BackendUnavailable("memory", "no answer"))

    backend.write = losing  # type: ignore[method-assign]
    item.ack()
    with pytest.raises(coordlock.errors.ItemEnded, match="acknowledged"):
        item.ack()
    assert queue.stats() == WorkQueueStats(0, 0, 0, 0)


def test_of_two_threads_that_end_an_item_the_loser_hears_that_it_has_ended(
    client: coordlock.Client,
) -> None:
    queue = client.work_queue("q")
    for _ in range(50):
        queue.put(b"one")
        item = queue.take(BOUND)
        with ThreadPoolExecutor(2) as pool:
            outcomes = [pool.submit(item.ack).exception, pool.submit(item.nack).exception]
            errors = [one for one in (outcome(BOUND) for outcome in outcomes) if one is not None]
        assert [type(one) for one in errors] == [coordlock.errors.ItemEnded]
        queue.purge()


def test_a_consumer_in_line_that_is_stopped_is_passed_over(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    """It holds the first place, and does nothing when an item comes."""
    line = client.work_queue("q")._share().store.layout.line
    engine = client._access.engine
    stopped = run(acquisition(engine, {line: Permit(2)}))
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(other.work_queue("q").take, BOUND)
        eventually(lambda: len(run(queue_view(engine, line))) == 2)
        client.work_queue("q").put(b"one")
        with taking.result(BOUND) as item:
            assert item.data == b"one"
    eventually(lambda: stopped.lost is not None)


def test_removed_items_are_gone_and_those_at_work_stay(client: coordlock.Client) -> None:
    queue = client.work_queue("q", max_attempts=1)
    ids = [queue.put(data) for data in (b"dead", b"taken", b"back", b"new", b"other")]
    ids.append(queue.put(b"late", delay=1000))
    queue.take(BOUND).nack()
    taken = queue.take(BOUND)
    queue.take(BOUND).release()
    assert [queue.remove(id) for id in ids] == [True, False, True, True, True, True]
    assert [queue.remove(id) for id in ids] == [False] * 6
    taken.ack()
    assert queue.try_take() is None
    assert queue.stats() == WorkQueueStats(0, 0, 0, 0)


def test_a_loop_ends_when_nothing_comes_and_keeps_to_its_concurrency(
    client: coordlock.Client,
) -> None:
    queue = client.work_queue("q")
    for number in range(5):
        queue.put(b"%d" % number)
    done = []
    for item in queue.consume(timeout=0.1):
        with item:
            done.append(int(item.data))
    assert done == [0, 1, 2, 3, 4]
    queue.put(b"6")
    queue.put(b"7")
    items = queue.consume()
    next(items)
    with pytest.raises(RuntimeError, match="write `with item:`"):
        next(items)
    both = queue.consume(concurrency=2, timeout=0.1)
    assert next(both).data == b"7"
    assert list(both) == []
