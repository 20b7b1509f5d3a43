"""What work queues promise on every backend that keeps data, sync and async.

Subclass `WorkQueueContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from coordlock import GrantState, LockLost, NameConflict, WorkQueueEmpty, WorkQueueFull
from coordlock.backend import Put
from coordlock.errors import InvalidName, Unsupported
from coordlock.fencing import MemoryFence
from coordlock.testing.client_suite import BOUND, ClientSuite, Start, error_of
from coordlock.testing.portal import behind
from coordlock.testing.waiting import eventually
from coordlock.types import WorkQueueStats

__all__ = ["WorkQueueContract"]

#: A time that does not come during a test.
NEVER: Final = 10_000


class _Stopped(BaseException):
    """Stands for Ctrl-C, which would end the event loop, too."""


def finish(queue: Any) -> bytes:
    """Take the next item, and do it; what it held."""
    with queue.take(BOUND) as item:
        data: bytes = item.data
    return data


class WorkQueueContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    # Putting and taking

    def test_items_are_taken_in_the_order_in_which_they_were_put(
        self, client: Any, other: Any
    ) -> None:
        contents = [b"", b"one", bytes(range(256)), b"x\ny" * 20, b"x" * 65_536]
        ids = [client.work_queue("q").put(data) for data in contents]
        assert len(set(ids)) == len(ids)
        taken = []
        for data in contents:
            with other.work_queue("q").take(BOUND) as item:
                assert (item.data, item.deliveries, item.name) == (data, 1, "q")
                taken.append(item.id)
        assert taken == ids
        assert client.work_queue("q").try_take() is None
        assert client.work_queue("q").stats() == WorkQueueStats(0, 0, 0, 0)

    def test_an_item_is_one_workers(self, client: Any, other: Any) -> None:
        client.work_queue("q").put(b"one")
        with client.work_queue("q").take(BOUND) as item:
            assert other.work_queue("q").try_take() is None
            assert client.work_queue("q").try_take() is None
            item.check()
        assert item.state is GrantState.RELEASED

    def test_an_item_outlives_the_client_that_put_it(
        self, client: Any, connect: Callable[..., Any]
    ) -> None:
        ending = connect()
        ending.work_queue("q").put(b"one")
        ending.close()
        assert finish(client.work_queue("q")) == b"one"

    def test_a_consumer_that_goes_on_alone_misses_nothing_that_comes_first(
        self, client: Any, other: Any
    ) -> None:
        """It takes one item after the other without a look, until something has changed."""
        queue, theirs = client.work_queue("q"), other.work_queue("q")
        for number in range(12):
            queue.put(b"%d" % number)
        first = queue.take(BOUND)
        assert [finish(queue) for _ in range(3)] == [b"1", b"2", b"3"]
        first.nack()
        assert finish(queue) == b"0"
        assert [finish(queue) for _ in range(3)] == [b"4", b"5", b"6"]
        taken = theirs.take(BOUND)
        assert taken.data == b"7"
        taken.nack()  # there are two consumers now, and these keep the order roughly
        assert sorted(int(finish(queue)) for _ in range(5)) == [7, 8, 9, 10, 11]
        assert queue.try_take() is None
        theirs.put(b"12")
        assert finish(queue) == b"12"
        assert queue.stats() == WorkQueueStats(0, 0, 0, 0)

    def test_queues_have_items_of_their_own(self, client: Any) -> None:
        names = ("a", "a/b", "a%2Fb", "@a", "items", "é", "..", "ü" * 127)
        for name in names:
            client.work_queue(name).put(name.encode())
        for name in names:
            assert finish(client.work_queue(name)) == name.encode()
            assert client.work_queue(name).try_take() is None

    def test_a_queue_that_is_empty_says_so_in_time(self, client: Any) -> None:
        queue = client.work_queue("q", timeout=0.5)
        assert queue.try_take() is None  # what is asked for the first time may take long
        error_of(queue.take, WorkQueueEmpty, r"'q' had nothing to take within 0\.5 s")
        with pytest.raises(WorkQueueEmpty):
            queue.take(0)
        assert queue.try_take() is None

    def test_who_waits_gets_the_next_item_and_nobody_else_does(
        self, client: Any, other: Any, start: Start
    ) -> None:
        first = start(client.work_queue("q").take, BOUND)
        second = start(other.work_queue("q").take, BOUND)
        third = start(other.work_queue("q").take, BOUND)
        waiting = [first, second, third]
        for data in (b"one", b"two", b"three"):
            client.work_queue("q").put(data)
            eventually(lambda: any(one.done() for one in waiting))
            [got] = [one for one in waiting if one.done()]
            waiting.remove(got)
            item = got.result(BOUND)
            assert item.data == data
            item.ack()

    def test_as_many_as_there_are_work_at_once_and_each_item_is_done_once(
        self, client: Any, other: Any, start: Start
    ) -> None:
        each, done = 12, Counter[bytes]()

        def put(one: Any, producer: int) -> None:
            for number in range(each):
                one.work_queue("q").put(b"%d.%d" % (producer, number))

        def work(one: Any) -> None:
            while (data := finish(one.work_queue("q"))) != b"stop":
                done[data] += 1

        workers = [start(work, one) for one in (client, other) * 3]
        for producer in [start(put, one, number) for number, one in enumerate((client, other) * 2)]:
            producer.result(BOUND)
        # Several consumers get no order: none may stop before the last item is done.
        eventually(lambda: done.total() >= 4 * each)
        for _ in workers:
            client.work_queue("q").put(b"stop")
        for worker in workers:
            worker.result(BOUND)
        assert done == {b"%d.%d" % (p, n): 1 for p in range(4) for n in range(each)}
        assert client.work_queue("q").stats() == WorkQueueStats(0, 0, 0, 0)

    # The end of an item

    def test_a_body_that_raises_gives_the_item_back_to_be_taken_next(
        self, client: Any, other: Any
    ) -> None:
        client.work_queue("q").put(b"one")
        client.work_queue("q").put(b"two")
        with pytest.raises(ZeroDivisionError), client.work_queue("q").take(BOUND) as first:
            _ = 1 // 0
        assert first.state is GrantState.RELEASED
        with other.work_queue("q").take(BOUND) as again:
            assert (again.id, again.data, again.deliveries) == (first.id, b"one", 2)
            assert again.token > first.token
        assert finish(other.work_queue("q")) == b"two"

    def test_an_item_ends_once(self, client: Any) -> None:
        queue = client.work_queue("q")
        queue.put(b"one")
        queue.put(b"two")
        item = queue.take(BOUND)
        item.ack()
        with pytest.raises(
            RuntimeError, match="item 1 of the work queue 'q' was acknowledged already"
        ):
            item.ack()
        with pytest.raises(RuntimeError, match="acknowledged already"):
            item.nack()
        with pytest.raises(LockLost):
            item.check()
        assert item.release() is True
        item = queue.take(BOUND)
        item.nack()
        with pytest.raises(RuntimeError, match="given back already"):
            item.ack()
        with queue.take(BOUND) as item:
            assert (item.data, item.deliveries) == (b"two", 2)
            item.ack()
        assert queue.try_take() is None

    def test_what_is_given_back_with_a_delay_lets_others_pass(self, client: Any) -> None:
        queue = client.work_queue("q", retry_delay=NEVER)
        for data in (b"one", b"two", b"three"):
            queue.put(data)
        queue.take(BOUND).nack()
        given_back = time.time()
        queue.take(BOUND).nack(delay=1)
        assert finish(queue) == b"three"
        with queue.take(BOUND) as item:
            assert (item.data, item.deliveries) == (b"two", 2)
            assert time.time() - given_back >= 1
        assert queue.stats() == WorkQueueStats(0, 0, 1, 0)
        [item] = queue.items()
        assert (item.id, item.state, item.deliveries, item.data) == ("1", "delayed", 1, b"one")
        assert item.due is not None
        assert item.due >= given_back + NEVER - 1

    def test_what_is_put_with_a_delay_comes_when_it_is_due(
        self, client: Any, other: Any, start: Start
    ) -> None:
        queue = client.work_queue("q")
        taking = start(other.work_queue("q").take, BOUND)
        begun = time.time()
        late = queue.put(b"never", delay=NEVER)
        soon = queue.put(b"soon", delay=0.3)
        item = taking.result(BOUND)
        assert (item.id, item.data) == (soon, b"soon")
        assert time.time() - begun >= 0.3
        item.ack()
        now = queue.put(b"now")
        assert [item.id for item in queue.items()] == [now, late]
        assert finish(queue) == b"now"
        assert queue.try_take() is None
        assert queue.stats() == WorkQueueStats(0, 0, 1, 0)

    def test_all_that_is_due_at_once_comes_before_the_head(self, client: Any) -> None:
        queue = client.work_queue("q")
        delayed = [queue.put(b"%d" % number, delay=0.001) for number in range(40)]
        queue.put(b"last")
        time.sleep(0.01)
        taken = []
        for _ in delayed:
            with queue.take(BOUND) as item:
                taken.append(item.id)
        assert sorted(taken) == sorted(delayed)
        assert finish(queue) == b"last"
        assert queue.stats() == WorkQueueStats(0, 0, 0, 0)

    # Dead items

    def test_what_was_taken_too_often_is_dead_until_somebody_retries_it(
        self, client: Any, other: Any
    ) -> None:
        queue = client.work_queue("q", max_failures=2)
        id = queue.put(b"bad")
        last = 0
        for attempt in (1, 2):
            with pytest.raises(ValueError, match="worse"), queue.take(BOUND) as item:
                assert item.deliveries == attempt
                last = item.token
                raise ValueError("worse and worse")
        assert queue.try_take() is None
        [dead] = other.work_queue("q").dead()
        assert (dead.id, dead.state, dead.deliveries, dead.data) == (id, "dead", 2, b"bad")
        assert dead.reason == "ValueError: worse and worse"
        assert queue.stats() == WorkQueueStats(0, 0, 0, 1)
        queue.put(b"new")
        other.work_queue("q").retry(id)
        assert queue.dead() == ()
        with queue.take(BOUND) as item:
            assert (item.id, item.data, item.deliveries, item.failures) == (id, b"bad", 1, 0)
            assert item.token > last
        with pytest.raises(LookupError, match=f"no dead item {id} in the work queue 'q'"):
            queue.retry(id)
        with pytest.raises(ValueError, match="not an item's id"):
            queue.retry("x")

    def test_what_ends_its_workers_dies_too(self, client: Any, connect: Callable[..., Any]) -> None:
        client.work_queue("q").put(b"bad")
        for attempt in (1, 2):
            ending = connect()
            item = ending.work_queue("q", max_failures=2).take(BOUND)
            assert (item.data, item.deliveries) == (b"bad", attempt)
            ending.close()
        queue = connect().work_queue("q", max_failures=2)
        eventually(lambda: queue.try_take() is None and queue.dead())
        [dead] = queue.dead()
        assert (dead.data, dead.deliveries) == (b"bad", 2)
        assert "its worker ended" in dead.reason

    def test_an_item_that_its_worker_was_kept_from_is_not_dead(self, client: Any) -> None:
        queue = client.work_queue("q", max_failures=1)
        queue.put(b"one")
        with pytest.raises(_Stopped), queue.take(BOUND):
            raise _Stopped
        with queue.take(BOUND) as item:
            assert item.deliveries == 2

    # Loss

    def test_the_items_of_a_worker_that_ends_are_taken_by_others(
        self, client: Any, connect: Callable[..., Any], start: Start
    ) -> None:
        ending = connect()
        for data in (b"one", b"two", b"three"):
            ending.work_queue("q").put(data)
        lost = [ending.work_queue("q").take(BOUND) for _ in range(2)]
        assert finish(client.work_queue("q")) == b"three"
        waiting = start(client.work_queue("q").take, BOUND)
        ending.close()
        with waiting.result(BOUND) as first:
            assert (first.data, first.deliveries) == (b"one", 2)
            assert first.token > max(item.token for item in lost)
        with client.work_queue("q").take(BOUND) as second:
            assert (second.data, second.deliveries) == (b"two", 2)
        assert all(item.state is GrantState.LOST for item in lost)

    def test_nothing_is_accepted_from_a_late_worker(self, client: Any, other: Any) -> None:
        id = client.work_queue("q").put(b"one")
        late = client.work_queue("q").take(BOUND)
        assert other.work_queue("q").evict(id) is True
        with other.work_queue("q").take(BOUND) as item:
            assert (item.id, item.deliveries) == (id, 2)
            with pytest.raises(LockLost, match="'q'"):
                late.ack()
            with pytest.raises(LockLost):
                late.nack()
            assert late.release() is False
            assert late.state is GrantState.LOST
            assert other.work_queue("q").try_take() is None
            fence = MemoryFence()
            fence.check("account", behind(item))
            with pytest.raises(LockLost):
                fence.check("account", behind(late))
        assert other.work_queue("q").evict(id) is False

    def test_an_item_is_lost_after_the_longest_hold(self, client: Any, other: Any) -> None:
        client.work_queue("q").put(b"one")
        slow = client.work_queue("q", max_hold=0.2).take(BOUND)
        with other.work_queue("q").take(BOUND) as item:
            assert (item.data, item.deliveries) == (b"one", 2)
        with pytest.raises(LockLost, match="max_hold"):
            slow.ack()

    def test_an_item_writes_to_the_service_only_while_it_stands(
        self, client: Any, other: Any
    ) -> None:
        id = client.work_queue("q").put(b"one")
        item = client.work_queue("q").take(BOUND)
        item.transaction().put("/work-queue-contract", b"mine").commit()
        assert item.read("/work-queue-contract").data == b"mine"
        other.work_queue("q").evict(id)
        with pytest.raises(LockLost):
            item.transaction().put("/work-queue-contract", b"late").commit()
        with other.work_queue("q").take(BOUND) as item:
            assert item.read("/work-queue-contract").data == b"mine"

    # Limits, and what people see

    def test_no_more_items_wait_than_may(self, client: Any, other: Any) -> None:
        queue = client.work_queue("q", max_depth=2)
        queue.put(b"one")
        queue.put(b"two")
        with pytest.raises(WorkQueueFull, match="'q' is full: 2 items wait"):
            queue.put(b"three")
        queue.put(b"later", delay=NEVER)
        other.work_queue("q").put(b"beyond")
        with pytest.raises(WorkQueueFull):
            queue.put(b"three")
        items = [other.work_queue("q").take(BOUND) for _ in range(2)]
        queue.put(b"three")
        with pytest.raises(WorkQueueFull):
            queue.put(b"four")
        assert queue.depth() == 2
        for item in items:
            item.ack()

    def test_people_see_where_the_items_are(self, client: Any, other: Any) -> None:
        queue = client.work_queue("q", max_failures=1)
        begun = time.time()
        for data in (b"dead", b"taken", b"back", b"next"):
            queue.put(data)
        queue.put(b"later", delay=NEVER)
        queue.take(BOUND).nack(reason="no good")
        taken = queue.take(BOUND)
        other.work_queue("q").take(BOUND).nack(delay=0)
        assert queue.stats() == WorkQueueStats(2, 1, 1, 1)
        assert queue.depth() == 2
        items = queue.items()
        assert [(item.data, item.state, item.deliveries) for item in items] == [
            (b"taken", "taken", 1),
            (b"back", "waiting", 1),
            (b"next", "waiting", 0),
            (b"later", "delayed", 0),
        ]
        assert items[0].token == taken.token
        assert all(abs(item.put_at - begun) < BOUND for item in items)
        assert queue.items(limit=2) == items[:2]
        assert [item.reason for item in queue.dead()] == ["no good"]
        taken.ack()

    def test_a_queue_of_another_layout_is_refused(self, client: Any) -> None:
        queue = client.work_queue("newer")
        layout = queue._share().store.layout
        backend = client._access.engine.backend
        backend.write([Put(layout.mark, b'{"format": 2, "next": {}}')]).result(BOUND)
        for call in (lambda: queue.put(b"one"), queue.try_take, queue.depth, queue.items):
            with pytest.raises(NameConflict, match="another release"):
                call()

    def test_bad_input_says_what_is_accepted(self, client: Any) -> None:
        queue = client.work_queue("q")
        with pytest.raises(TypeError, match="encode it"):
            queue.put("text")
        with pytest.raises(ValueError, match="65536"):
            queue.put(b"x" * 65_537)
        for delay in (-1, float("nan"), 400 * 86_400, "soon"):
            with pytest.raises(ValueError, match="delay"):
                queue.put(b"", delay=delay)
        with pytest.raises(InvalidName):
            client.work_queue("")
        for wrong in ({"max_depth": 0}, {"max_failures": 0}):
            with pytest.raises(ValueError, match="1 or more"):
                client.work_queue("q", **wrong)
        with pytest.raises(ValueError, match="timeout of take"):
            queue.take("soon")
        with pytest.raises(TypeError, match="id is a str"):
            queue.retry(1)
        with pytest.raises(ValueError, match="limit"):
            queue.items(0)
        queue.put(b"one")
        with queue.take(BOUND) as item, pytest.raises(Unsupported, match="its id and its token"):
            _ = item.sequencer
