"""What one watch on a queue shows, against a model of the queue and of etcd's reports."""

from __future__ import annotations

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.queue_watch import QueueWatch, QueueWatches
from coordlock_etcd.watch import Watch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordlock.model.claim import Mode
from coordlock.model.contender import Contender

PREFIX = b"/q/"


def contender(number: int, order: int) -> Contender:
    return Contender(f"{number}", f"/q/lock-{number}", Mode.EX, order)


def found(*contenders: Contender, count: int = 0) -> pb.RangeResponse:
    """A reading of the queue's end, the newest first; ``count`` contenders are there."""
    kvs = [pb.KeyValue(key=one.key.encode(), create_revision=one.order) for one in contenders]
    count = count or len(kvs)
    return pb.RangeResponse(kvs=kvs, count=count, more=count > len(kvs))


class Reporting(RuleBasedStateMachine):
    """Contenders come and leave, and etcd reports the departures some time later, in order.

    Keys are used again, as `etcdctl lock` and Go's `concurrency.Mutex` do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.revision = 1
        self.queue = QueueWatch(PREFIX, 0.0)
        self.filed = False
        self.present: dict[int, Contender] = {}
        #: When each contender has left that was ever there.
        self.left: dict[Contender, int] = {}
        self.unreported: list[pb.Event] = []
        self.waits: list[Watch] = []

    @rule(number=st.integers(0, 4))
    def come(self, number: int) -> None:
        if number not in self.present:
            self.revision += 1
            self.present[number] = contender(number, self.revision)

    @rule(number=st.integers(0, 4))
    def leave(self, number: int) -> None:
        if (one := self.present.pop(number, None)) is not None:
            self.revision += 1
            self.left[one] = self.revision
            kv = pb.KeyValue(key=one.key.encode(), mod_revision=self.revision)
            if self.filed:
                self.unreported.append(pb.Event(type=pb.Event.DELETE, kv=kv))

    @rule(number=st.integers(0, 4), most=st.integers(1, 5), ago=st.integers(0, 3))
    def enqueue(self, number: int, most: int, ago: int) -> None:
        """The client comes, and reads the end of the queue; the answer may come late."""
        if number not in self.present:
            self.come(number)
            me, seen = self.present[number], self.revision
            for one in list(self.present.values())[:ago]:
                if one is not me:
                    self.leave(int(one.id))
            ever = sorted([*self.present.values(), *self.left], key=lambda one: -one.order)
            there = [one for one in ever if one.order <= seen < self.left.get(one, seen + 1)]
            self.queue.listed(found(*there[:most], count=len(there)), seen)

    @precondition(lambda self: not self.filed)
    @rule()
    def file(self) -> None:
        self.filed = True
        self.queue.created(self.revision)

    @rule(number=st.integers(0, 4), ago=st.integers(0, 3), own=st.booleans())
    def watch(self, number: int, ago: int, own: bool) -> None:
        """A contender that was seen some time ago may have left since."""
        seen = self.revision - ago
        ever = [*self.present.values(), *self.left]
        for one in ever:
            there = one.order <= seen < self.left.get(one, seen + 1)
            if one.id == f"{number}" and there and one not in [w.contender for w in self.waits]:
                watch = Watch(one, own, seen + 1)
                if self.queue.take(watch):
                    assert watch.carrier is self.queue
                    if self.queue.has_left(watch.key, watch.order):
                        self.queue.drop(watch)
                    else:
                        self.waits.append(watch)

    @rule(most=st.integers(1, 3))
    def report(self, most: int) -> None:
        events, self.unreported = self.unreported[:most], self.unreported[most:]
        over = self.queue.report(events)
        assert [one.own for one in over] == sorted((one.own for one in over), reverse=True)
        for watch in over:
            assert watch.contender in self.left
            reported = events[-1].kv.mod_revision
            if watch.is_first:
                for other, left in self.left.items():
                    assert other.order >= watch.order or left <= reported
                assert all(other.order > watch.order for other in self.present.values())
            self.waits.remove(watch)
            self.queue.drop(watch)

    @rule()
    def break_off(self) -> None:
        assert set(self.queue.drop_all()) == set(self.waits)
        assert not any(watch.carrier for watch in self.waits)
        self.queue, self.filed, self.waits, self.unreported = QueueWatch(PREFIX, 0.0), False, [], []

    @invariant()
    def what_is_known_to_have_left_has_left(self) -> None:
        for one in self.present.values():
            assert not self.queue.has_left(one.key.encode(), one.order)

    @invariant()
    def every_departure_is_known_that_was_to_be_reported(self) -> None:
        reported = self.unreported[0].kv.mod_revision if self.unreported else self.revision + 1
        for watch in self.waits:
            assert self.left.get(watch.contender, reported) >= reported


TestReporting = Reporting.TestCase


def gone(number: int, revision: int) -> pb.Event:
    kv = pb.KeyValue(key=contender(number, 0).key.encode(), mod_revision=revision)
    return pb.Event(type=pb.Event.DELETE, kv=kv)


def test_a_departure_is_known_to_be_the_first_where_all_before_it_were_listed() -> None:
    queue = QueueWatch(PREFIX, 0.0)
    ahead = [contender(number, 11 + number) for number in range(3)]
    queue.listed(found(*reversed(ahead)), 13)  # before the watch
    queue.created(13)
    assert not queue.is_first(12)
    queue.listed(found(ahead[2], count=3), 13)
    assert not queue.is_first(12), "not all are listed"
    queue.listed(found(*reversed(ahead)), 14)
    assert not queue.is_first(12), "another stands before it"
    queue.report([gone(0, 15)])
    assert queue.is_first(12)
    assert not queue.is_first(13), "it may not be the last that was listed"


def test_what_was_forgotten_is_not_taken_for_present() -> None:
    queue = QueueWatch(PREFIX, 0.0)
    queue.created(10)
    old = Watch(contender(0, 9), False, 11)
    queue.report([gone(number, 20 + number) for number in range(1000)])
    assert not queue.has_left(old.key, old.order)
    assert not queue.take(old)
    assert queue.take(Watch(contender(2000, 2000), False, 2001))


def test_a_long_queue_a_changing_value_and_a_server_that_says_no_revision_are_not_served() -> None:
    queue = QueueWatch(PREFIX, 0.0)
    assert not queue.take(Watch(contender(0, 11), False, 12))
    queue.created(0)
    assert not queue.take(Watch(contender(0, 11), False, 12))
    queue.created(10)
    assert not queue.take(Watch(contender(0, 11), False, 12, version=1))
    queue.is_short = False
    assert not queue.take(Watch(contender(0, 11), False, 12))
    queue.is_short = True
    assert queue.take(Watch(contender(0, 11), False, 12))


def test_only_contenders_that_wait_keep_it() -> None:
    queue = QueueWatch(PREFIX, 0.0)
    queue.created(10)
    assert not queue.is_unused(1.0)
    assert queue.is_unused(10.0)
    assert queue.take(Watch(contender(0, 11), True, 12))
    assert queue.is_unused(10.0)
    assert queue.take(Watch(contender(1, 11), False, 12))
    assert not queue.is_unused(10.0)


def test_a_queue_is_in_demand_when_a_client_waits_there_again_soon() -> None:
    queues = QueueWatches()
    assert queues.enqueued(PREFIX, found(count=1), 1, 0.0) is None
    assert queues.enqueued(PREFIX, found(count=2), 1, 0.1) is None
    assert queues.enqueued(PREFIX, found(count=2), 1, 9.0) is None, "not soon"
    assert queues.enqueued(PREFIX, found(count=1), 1, 9.1) is None, "it does not wait"
    assert queues.enqueued(PREFIX, found(count=1000), 1, 9.1) is None, "too long"
    assert PREFIX not in queues
    assert queues.lists(PREFIX) == 0
    queue = queues.enqueued(PREFIX, found(count=2), 1, 9.2)
    assert queue is not None
    assert queues.lists(PREFIX) > 0
    assert queues.enqueued(PREFIX, found(count=3), 1, 9.3) is None, "it has begun"
    queue.created(10)
    queues.enqueued(PREFIX, found(count=1000), 1, 9.4)
    assert queues.take(PREFIX, Watch(contender(0, 11), False, 12)) is None, "too long by now"
    queues.enqueued(PREFIX, found(count=2), 1, 9.5)
    watch = Watch(contender(0, 11), False, 12)
    assert queues.take(PREFIX, watch) is queue
    assert queues.end(queue) == [watch]
    assert PREFIX not in queues


def test_queues_that_the_client_has_left_are_found_though_nothing_is_reported_there() -> None:
    queues = QueueWatches()
    for number in range(3):
        prefix = b"/%d/" % number
        assert queues.enqueued(prefix, found(count=2), 1, 10.0 * number) is None
        assert queues.enqueued(prefix, found(count=2), 1, 10.0 * number + 1) is not None
    assert [queue.prefix for queue in queues.unused(21.5)] == [b"/0/", b"/1/"]


def test_a_client_that_waits_in_many_queues_remembers_few() -> None:
    queues = QueueWatches()
    for number in range(1000):
        assert queues.enqueued(b"/%d/" % number, found(count=2), 1, 0.0) is None
    assert len(queues._waited) < 100
