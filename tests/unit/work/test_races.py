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
from coordlock.backend import Delete, Operation, Put
from coordlock.errors import (
    AuthenticationFailed,
    BackendUnavailable,
    NameConflict,
    WorkQueueEmpty,
)
from coordlock.model.contender import Contender, Entry
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.driver import Steps, run
from coordlock.runtime.log import flush
from coordlock.runtime.promise import Promise, failed
from coordlock.testing.lock_service import LockService
from coordlock.testing.waiting import eventually
from coordlock.types import WorkQueueStats
from coordlock.work.item import Item
from coordlock.work.running import next_item
from coordlock.work.workers import Workers

BOUND = 30.0
#: A time that does not come during a test.
NEVER = 10_000


@pytest.fixture
def client(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root}") as client:
        yield client


@pytest.fixture
def other(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root}") as client:
        yield client


@pytest.fixture
def third(root: str) -> Iterator[coordlock.Client]:
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
        if any(isinstance(one, Put | Delete) and place in one.key for one in operations):
            del backend.write
            act(guards)
        return write(operations, guards)

    backend.write = first  # type: ignore[method-assign]


def makes_claim(operations: Sequence[Operation]) -> bool:
    return any(isinstance(one, Put) and "/claims/" in one.key for one in operations)


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


def test_a_worker_that_is_lost_with_its_claim_takes_the_item_as_another_one(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    id = queue.put(b"one")
    backend = backend_of(client)
    write = backend.write

    def lose_first(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        written = write(operations, guards)
        if makes_claim(operations):
            del backend.write
            engine = client._access.engine
            [worker] = [one for one in engine.tickets if "work-" in one.entries[0].queue]
            backend_of(other).service.remove(worker.contenders[0])
            eventually(lambda: worker.lost)
        return written

    backend.write = lose_first  # type: ignore[method-assign]
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
    before_writing(client, "/ready/", evict)
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


def test_a_consumer_that_is_overtaken_takes_another_item_with_the_same_worker(
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
        tickets = client._access.engine.tickets
        assert sum("work-" in one.entries[0].queue for one in tickets) == 1


def test_a_look_that_is_overtaken_while_other_calls_wait_finds_nothing_at_once(
    root: str, other: coordlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = coordlock.connect(f"memory://{root}?request_timeout=60")
    queue, theirs = client.work_queue("q"), other.work_queue("q")
    consumer = queue._share().consumer
    # As while another call of this client waits, which alone learns of changes.
    monkeypatch.setattr(type(consumer), "is_following", property(lambda self: self is consumer))
    before_writing(client, "/claims/", lambda _: theirs.take(0).ack())
    queue.put(b"for the faster client")
    began = time.monotonic()
    assert queue.try_take() is None
    assert time.monotonic() - began < BOUND
    client.close()


def test_what_is_delayed_right_after_a_look_is_waited_for_no_longer_than_its_delay(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue, theirs = client.work_queue("q"), other.work_queue("q")
    theirs.put(b"second", delay=NEVER)
    assert queue.try_take() is None
    theirs.put(b"first", delay=0.01)
    with queue.take(BOUND) as item:
        assert item.data == b"first"


def test_a_worker_that_came_before_the_last_claim_does_not_take_over(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    """A fence of the item would refuse its token."""
    client.work_queue("q").put(b"one")
    workers: Workers = client.work_queue("q")._share().consumer.workers
    early = run(workers.get())
    workers.put_back(early)
    item = other.work_queue("q").take(BOUND)
    assert early.token < item.token
    other.close()
    with client.work_queue("q").take(BOUND) as again:
        assert again.deliveries == 2
        assert again.token > item.token


def test_of_many_items_that_are_due_at_once_few_are_listed_for_each_take(
    client: coordlock.Client,
) -> None:
    queue, backend, sizes = client.work_queue("q"), backend_of(client), []
    for number in range(120):
        queue.put(b"%d" % number, delay=0.001)
    names = backend.names

    def noted(folder: str, first: int | None = None, split: str = "") -> Any:
        answer: Promise[list[str]] = names(folder, first, split)
        sizes.append(len(answer.result(BOUND)))
        return answer

    backend.names = noted  # type: ignore[method-assign]
    taken = []
    for number in range(120):
        item = queue.try_take() if number % 2 else queue.take(BOUND)
        assert item is not None
        with item:
            taken.append(int(item.data))
    assert sorted(taken) == list(range(120))
    assert sum(sizes) <= 3 * 120


def silent(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Promise[Any]:
    return failed(coordlock.BackendUnavailable("memory", "no answer"))


def test_an_ack_without_answer_is_repeated_at_the_end_of_the_block(root: str) -> None:
    with coordlock.connect(f"memory://{root}?request_timeout=0.3s") as client:
        queue = client.work_queue("q")
        queue.put(b"one")
        backend = backend_of(client)
        item = queue.take(BOUND)

        def work() -> None:
            with item:
                backend.write = silent  # type: ignore[method-assign]
                try:
                    item.ack()
                finally:
                    del backend.write

        with pytest.raises(coordlock.BackendUnavailable):
            work()
        assert item.state is coordlock.GrantState.RELEASED
        assert queue.stats() == WorkQueueStats(0, 0, 0, 0)


@pytest.mark.parametrize("is_poison", [False, True])
def test_an_outage_shorter_than_the_session_undoes_no_work(root: str, is_poison: bool) -> None:
    with coordlock.connect(f"memory://{root}?request_timeout=0.2s") as client:
        queue = client.work_queue("q", max_failures=2)
        queue.put(b"one")
        backend = backend_of(client)
        attempts = []

        def away(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
            attempts.append(operations)
            if len(attempts) == 10:  # after several times the request_timeout
                del backend.write
            return silent(operations, guards)

        def work(item: coordlock.Item) -> None:
            if item.deliveries == 1:
                backend.write = away  # type: ignore[method-assign]
            if is_poison:
                raise ValueError

        assert queue.run(work, timeout=0.1) == (0 if is_poison else 1)
        assert [(item.deliveries, item.failures) for item in queue.dead()] == [(2, 2)] * is_poison
        assert len(attempts) == 10


def test_where_the_service_takes_heartbeats_and_no_writes_a_block_ends_after_a_time_to_live(
    lock_service: LockService,
) -> None:
    with lock_service.connect(ttl=60, request_timeout=0.2) as client:
        queue = client.work_queue("q")
        queue.put(b"one")
        item = queue.take(BOUND)
        backend = backend_of(client)

        def refuse(
            operations: Sequence[Operation], guards: Sequence[Contender] = ()
        ) -> Promise[Any]:
            lock_service.advance(20)
            return silent(operations, guards)

        backend.write = refuse  # type: ignore[method-assign]
        with pytest.raises(coordlock.BackendUnavailable), item:
            pass
        del backend.write
        with queue.take(BOUND) as again:
            assert (again.data, again.deliveries) == (b"one", 2)


@pytest.mark.parametrize("fails", [False, True])
def test_where_the_client_is_closed_while_a_block_tries_to_end_its_item_the_item_is_lost(
    root: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        with item:
            if fails:
                raise ValueError

    def closed_before(timers: Timers, seconds: float) -> Promise[None]:
        client.close()
        return sleep(timers, seconds)

    monkeypatch.setattr("coordlock.work.item.sleep", closed_before)
    with coordlock.connect(f"memory://{root}?request_timeout=0.2s") as client:
        queue = client.work_queue("q")
        queue.put(b"one")
        item = queue.take(BOUND)
        backend_of(client).write = silent  # type: ignore[method-assign]
        with pytest.raises(ValueError if fails else coordlock.LockLost) as caught:
            work()
    lost = caught.value.__context__ if fails else caught.value
    assert isinstance(lost, coordlock.LockLost)
    assert "is unknown" in str(lost) or fails


def test_an_item_that_an_outage_has_ended_is_lost_and_the_loop_of_its_worker_may_rely_on_that(
    root: str,
) -> None:
    # The last attempt begins before the session's end, and has no answer after it.
    with coordlock.connect(f"memory://{root}?ttl=1s&request_timeout=0.7s") as client:
        queue = client.work_queue("q")
        queue.put(b"one")
        item = queue.take(BOUND)
        backend = backend_of(client)
        backend.write = silent  # type: ignore[method-assign]
        backend.heartbeat = Promise  # type: ignore[method-assign]
        with pytest.raises(LockLost, match="the memory session was lost"), item:
            pass


@pytest.mark.parametrize("act", ["ack", "nack"])
def test_an_item_whose_end_is_unknown_goes_to_others_once_it_is_released(
    root: str, act: str
) -> None:
    with coordlock.connect(f"memory://{root}?request_timeout=0.3s") as client:
        queue = client.work_queue("q")
        queue.put(b"one")
        item = queue.take(BOUND)
        backend = backend_of(client)
        backend.write = silent  # type: ignore[method-assign]
        with pytest.raises(coordlock.BackendUnavailable, match="may be"):
            getattr(item, act)()
        item.release()
        del backend.write
        with queue.take(BOUND) as again:
            assert (again.data, again.deliveries) == (b"one", 2)


def test_threads_that_acknowledge_an_item_together_hear_of_no_loss(
    client: coordlock.Client,
) -> None:
    queue = client.work_queue("q", max_hold=60)  # so the first one ends the worker, too
    for _ in range(50):
        queue.put(b"one")
        item = queue.take(BOUND)
        with ThreadPoolExecutor(3) as pool:
            ends = [pool.submit(item.ack) for _ in range(3)]
        errors = [end.exception() for end in ends]
        assert None in errors
        assert {type(one) for one in errors} <= {RuntimeError, type(None)}


def test_a_purge_goes_on_where_others_take_meanwhile(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    for _ in range(60):
        queue.put(b"one")
    taken: list[coordlock.Item] = []
    take = lambda _: taken.append(other.work_queue("q").take(BOUND))  # noqa: E731
    before_writing(client, "/ready/", take)
    assert queue.purge() == 59
    assert queue.stats() == WorkQueueStats(0, 1, 0, 0)
    taken[0].ack()


def test_a_purge_removes_what_a_worker_had_that_has_ended(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    queue.put(b"one")
    other.work_queue("q").take(BOUND)
    other.close()
    assert queue.purge() == 1
    assert queue.stats() == WorkQueueStats(0, 0, 0, 0)


def test_an_item_that_a_worker_gets_meanwhile_is_not_removed(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    id = queue.put(b"one")
    queue.take(BOUND).release()
    backend = backend_of(client)
    write = backend.write
    taken: list[coordlock.Item] = []

    def take_first(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        del backend.write
        taken.append(other.work_queue("q").take(BOUND))
        return write(operations, guards)

    backend.write = take_first  # type: ignore[method-assign]
    assert queue.remove(id) is False
    [item] = queue.items()
    assert (item.id, item.state) == (id, "taken")
    taken[0].ack()


def test_a_claim_that_no_caller_got_counts_for_nothing(client: coordlock.Client) -> None:
    queue = client.work_queue("q", max_failures=1)
    queue.put(b"one")
    backend = backend_of(client)
    write, answers = backend.write, []

    def unanswered(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        written = write(operations, guards)
        if not makes_claim(operations):
            return written
        answer: Promise[Any] = Promise()
        answers.append((written, answer))
        return answer

    backend.write = unanswered  # type: ignore[method-assign]
    with pytest.raises(coordlock.BackendUnavailable):
        queue.take(0.2)
    del backend.write
    for written, answer in answers:
        answer.follow(written)
    with queue.take(BOUND) as item:
        assert (item.data, item.deliveries, item.failures) == (b"one", 1, 0)


def test_deploys_count_as_deliveries_and_not_as_failures(client: coordlock.Client) -> None:
    queue = client.work_queue("q", max_failures=1)
    queue.put(b"one")
    for number in range(10):
        item = queue.take(BOUND)
        assert (item.deliveries, item.failures) == (number + 1, 0)
        assert item.release() is True
    queue.take(BOUND).nack()
    assert [one.failures for one in queue.dead()] == [1]


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
        assert [type(one) for one in errors] == [RuntimeError]
        queue.purge()


@pytest.mark.parametrize("call", ["put", "try_take", "stats"])
def test_a_queue_that_a_later_release_keeps_elsewhere_is_refused(
    client: coordlock.Client, call: str
) -> None:
    queue = client.work_queue("q")
    mark = queue._share().store.layout.mark
    backend_of(client).write([Put(mark, b'{"format": 2}')]).result(BOUND)
    with pytest.raises(NameConflict, match="another release"):
        getattr(queue, call)(*[b"one"] * (call == "put"))


def test_removed_items_are_gone_and_those_at_work_stay(client: coordlock.Client) -> None:
    queue = client.work_queue("q", max_failures=1)
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


def test_a_loop_ends_when_nothing_comes_and_asks_for_a_with_block(
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
    items = queue.consume()
    next(items)
    with pytest.raises(RuntimeError, match="write `with item:`"):
        next(items)


def test_a_loop_goes_on_after_an_outage_and_logs_one_warning_for_it(
    client: coordlock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    queue = client.work_queue("q")
    queue.put(b"one")
    errors = [BackendUnavailable("memory", "outage")] * 3

    def take() -> Steps[Item]:
        if errors:
            raise errors.pop()
        return (yield from queue._take())

    item = run(next_item(client._access.engine, "q", take, None))
    assert item is not None
    assert item.data == b"one"
    item.ack()
    assert flush(BOUND)
    assert caplog.text.count("takes items again when the service answers") == 1


def test_dead_workers_are_found_by_a_client_that_was_refused_the_chores_for_a_while(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue, backend = client.work_queue("q"), backend_of(client)
    enqueue = backend.enqueue

    def refused(entries: Sequence[Entry], **options: Any) -> Any:
        if "chores-" not in entries[0].queue:
            return enqueue(entries, **options)
        del backend.enqueue
        return failed(AuthenticationFailed("memory", "no such user"))

    backend.enqueue = refused  # type: ignore[method-assign]
    queue.put(b"one")
    other.work_queue("q").take(BOUND)
    other.close()
    assert queue.take(BOUND).deliveries == 2


def test_dead_workers_are_found_by_a_call_that_came_long_before_the_service_answered(
    lock_service: LockService,
) -> None:
    with lock_service.connect() as dead:
        dead.work_queue("q").put(b"one")
        dead.work_queue("q").take(BOUND)
    queue = lock_service.connect().work_queue("q")
    queue.stats()
    chores = queue._share().consumer.chores
    with ThreadPoolExecutor(1) as pool:
        with lock_service.silent():
            take = pool.submit(queue.take, BOUND)
            eventually(lambda: chores._is_running)
            lock_service.advance(6)
            eventually(lambda: not chores._is_running)
        assert take.result(BOUND).deliveries == 2


def test_the_log_names_the_work_queue_from_which_a_worker_cannot_withdraw(
    client: coordlock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    queue, backend = client.work_queue("q"), backend_of(client)
    queue.put(b"one")
    item = queue.take(BOUND)
    problem = AuthenticationFailed("memory", "no such user")
    backend.write = lambda *_: failed(problem)  # type: ignore[method-assign]
    backend.withdraw = lambda *_, **__: failed(problem)  # type: ignore[method-assign]
    item.release()
    eventually(lambda: flush(BOUND) and "could not withdraw" in caplog.text)
    assert "item of work queue 'q': could not withdraw, and will try again" in caplog.text


def test_a_claim_comes_through_while_others_put_items_with_a_delay(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    queue = client.work_queue("q")
    for _ in range(3):
        queue.put(b"one")
    write, backend = backend_of(client).write, backend_of(client)
    attempts: list[object] = []

    def after_others(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        if makes_claim(operations):
            attempts.append(operations)
            other.work_queue("q").put(b"later", delay=3600)
        return write(operations, guards)

    backend.write = after_others  # type: ignore[method-assign]
    for _ in range(3):
        queue.take(BOUND).ack()
    assert len(attempts) <= 6


def test_an_item_whose_claim_is_answered_after_the_end_of_the_call_goes_back(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    for data in (b"one", b"two"):
        client.work_queue("q").put(data)
    write, backend = backend_of(client).write, backend_of(client)
    taken: list[coordlock.Item] = []
    claims: list[tuple[Promise[Any], Promise[Any]]] = []

    def late(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        if not makes_claim(operations):
            return write(operations, guards)
        if not taken:  # the first claim is refused
            taken.append(other.work_queue("q").take(BOUND))
            return write(operations, guards)
        claims.append((write(operations, guards), Promise()))
        return claims[-1][1]

    backend.write = late  # type: ignore[method-assign]
    with pytest.raises(WorkQueueEmpty):
        client.work_queue("q").take(0.5)
    del backend.write
    for answer, told in claims:
        answer.add_done_callback(told.follow)
    with other.work_queue("q").take(BOUND) as item:
        assert item.data == b"two"


def test_an_eviction_that_finds_its_item_done_strikes_no_other_item(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    """Though the worker's contender is the same."""
    queue = client.work_queue("q")
    one, two = queue.put(b"one"), queue.put(b"two")
    done = queue.take(BOUND)
    taken: list[coordlock.Item] = []

    def go_on(_: Sequence[Contender]) -> None:
        done.ack()
        taken.append(queue.take(BOUND))

    before_writing(other, "/claims/", go_on)
    assert other.work_queue("q").evict(one) is False
    [item] = taken
    assert (item.id, item.token) == (two, done.token)
    item.verify()
    item.ack()


@pytest.mark.parametrize("end", ["ack", "nack", "release"])
def test_a_worker_that_is_being_evicted_ends_nothing_and_takes_as_another_one(
    client: coordlock.Client, other: coordlock.Client, end: str
) -> None:
    queue = client.work_queue("q")
    one = queue.put(b"one")
    evicted = queue.take(BOUND)
    queue.put(b"two")
    backend = backend_of(other)
    evict = backend.evict
    taken: list[coordlock.Item] = []

    def late(contender: Contender) -> Promise[bool]:
        if end == "release":
            evicted.release()
        else:
            with pytest.raises(LockLost, match="its contender was removed"):
                getattr(evicted, end)()
        taken.append(queue.take(BOUND))
        return evict(contender)

    backend.evict = late  # type: ignore[method-assign]
    assert other.work_queue("q").evict(one) is True
    [item] = taken
    assert item.token > evicted.token
    with other.work_queue("q").take(BOUND) as again:
        assert (again.id, again.deliveries) == (one, 2)
    item.ack()


def test_a_put_without_answer_is_made_once_however_many_items_others_put_meanwhile(
    client: coordlock.Client, other: coordlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, backend = client.work_queue("q"), backend_of(client)
    write = backend.write

    def lost(*given: Any) -> Promise[Any]:
        monkeypatch.undo()
        write(*given).result(BOUND)
        for _ in range(100):
            other.work_queue("q").put(b"")
        return failed(BackendUnavailable("memory", "the answer was lost"))

    monkeypatch.setattr(backend, "write", lost)
    assert (queue.put(b""), queue.depth()) == ("1", 101)


def test_many_items_are_put_in_order_in_few_writes(client: coordlock.Client) -> None:
    queue, backend = client.work_queue("q"), backend_of(client)
    write, writes = backend.write, []

    def noted(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        writes.append(any(isinstance(one, Put) for one in operations))
        return write(operations, guards)

    backend.write = noted  # type: ignore[method-assign]
    ids = queue.put_many(b"%d" % number for number in range(250))
    assert ids == [str(number) for number in range(1, 251)]
    assert writes.count(True) == 5
    assert len(queue.put_many([b"late"] * 60, delay=60)) == 60
    assert writes.count(True) == 6
    assert queue.put_many([]) == []
    assert [int(queue.take(BOUND).data) for _ in range(3)] == [0, 1, 2]
    assert queue.stats() == WorkQueueStats(247, 3, 60, 0)


def test_of_many_items_as_many_are_put_as_there_is_room_for(client: coordlock.Client) -> None:
    queue = client.work_queue("q", max_depth=150)
    with pytest.raises(coordlock.WorkQueueFull) as full:
        queue.put_many([b"one"] * 200)
    assert full.value.__notes__ == ["the first 150 of 200 items were put"]
    assert queue.depth() == 150
    with pytest.raises(TypeError, match="pass a list of bytes, or call put"):
        queue.put_many(b"one")  # type: ignore[arg-type]
