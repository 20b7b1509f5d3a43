"""What one watch on a queue shows, against a model of the queue and of etcd's reports."""

from __future__ import annotations

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.keys import prefix_end
from coordlock_etcd.watches import EtcdWatch, Watch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordlock.model.claim import Mode
from coordlock.model.contender import Contender

PREFIX = b"/q/"


def queue_watch() -> EtcdWatch:
    return EtcdWatch(PREFIX, prefix_end(PREFIX))


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
        self.queue = queue_watch()
        self.filed = False
        self.present: dict[int, Contender] = {}
        #: When each contender has left that was ever there.
        self.left: dict[Contender, int] = {}
        self.unreported: list[pb.Event] = []
        self.waits: dict[Watch, Contender] = {}

    @rule(number=st.integers(0, 4))
    def come(self, number: int) -> None:
        if number not in self.present:
            self.revision += 1
            self.present[number] = contender(number, self.revision)

    @precondition(lambda self: self.present)
    @rule(number=st.integers(0, 4))
    def leave_one(self, number: int) -> None:
        self.leave([*self.present][number % len(self.present)])

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
        missed = self.queue.created(self.revision)
        assert missed == [one for one in self.waits if not one.is_covered]

    @rule(ago=st.integers(0, 3))
    def watch(self, ago: int) -> None:
        """Contenders that were seen some time ago may have left since."""
        seen = self.revision - ago
        for one in [*self.present.values(), *self.left]:
            there = one.order <= seen < self.left.get(one, seen + 1)
            if there and one not in self.waits.values():
                watch = Watch(one, seen + 1)
                if self.queue.take(watch):
                    assert watch.served_by is self.queue
                    if self.queue.has_left(watch.name, watch.order):
                        self.queue.drop(watch)
                    else:
                        self.waits[watch] = one

    @precondition(lambda self: self.filed)
    @rule()
    def read(self) -> None:
        """The client reads the keys of those that are not covered."""
        for watch in [one for one in self.waits if not one.is_covered]:
            if self.waits[watch] in self.left:
                del self.waits[watch]
                self.queue.drop(watch)
            else:
                watch.start = self.revision + 1
                assert watch.is_covered

    @precondition(lambda self: self.unreported)
    @rule(most=st.integers(1, 3))
    def report(self, most: int) -> None:
        events, self.unreported = self.unreported[:most], self.unreported[most:]
        for watch in dict.fromkeys(self.queue.report(events)):  # its key may have left twice
            assert self.waits.pop(watch) in self.left
            reported = events[-1].kv.mod_revision
            if self.queue.is_first(watch.order):
                for other, left in self.left.items():
                    assert other.order >= watch.order or left <= reported
                assert all(other.order > watch.order for other in self.present.values())
            self.queue.drop(watch)

    @precondition(lambda self: len(self.left) > 2)
    @rule()
    def break_off(self) -> None:
        self.queue.broke()
        assert not any(watch.is_covered for watch in self.waits)
        self.filed, self.unreported = False, []

    @invariant()
    def what_is_known_to_have_left_has_left(self) -> None:
        for one in self.present.values():
            assert not self.queue.has_left(one.key.encode(), one.order)

    @invariant()
    def every_departure_is_known_that_was_to_be_reported(self) -> None:
        reported = self.unreported[0].kv.mod_revision if self.unreported else self.revision + 1
        for watch, one in self.waits.items():
            if watch.is_covered:
                assert self.left.get(one, reported) >= reported


TestReporting = Reporting.TestCase


def gone(number: int, revision: int) -> pb.Event:
    kv = pb.KeyValue(key=contender(number, 0).key.encode(), mod_revision=revision)
    return pb.Event(type=pb.Event.DELETE, kv=kv)


def test_a_departure_is_known_to_be_the_first_where_all_before_it_were_listed() -> None:
    queue = queue_watch()
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
    queue = queue_watch()
    queue.created(10)
    waits, late = Watch(contender(1, 9), 11), Watch(contender(0, 9), 11)
    assert queue.take(waits)
    queue.report([gone(number, 20 + number) for number in range(2, 1000)])
    assert queue.has_left(b"/q/lock-2", 9), "others that have left are being reported"
    queue.report([gone(1000, 1020)])
    assert not queue.has_left(b"/q/lock-2", 9)
    assert waits.is_covered, "its departure would have ended it"
    assert not queue.has_left(late.name, late.order)
    assert queue.take(late)
    assert not late.is_covered
    late.start = 2000
    assert late.is_covered


def test_a_changing_value_is_not_served() -> None:
    queue = queue_watch()
    queue.created(10)
    assert not queue.take(Watch(contender(0, 11), 12, version=1))
    assert queue.take(Watch(contender(0, 11), 12))


def test_a_watch_on_a_value_reports_its_changes_and_the_departure() -> None:
    changes = EtcdWatch(b"/q/lock-0", puts=True)
    changes.created(12)
    watch = Watch(contender(0, 11), 12, version=1)
    assert changes.take(watch)
    kv = pb.KeyValue(key=watch.name, mod_revision=13, version=1)
    assert changes.report([pb.Event(type=pb.Event.PUT, kv=kv)]) == []
    kv.version = 2
    assert changes.report([pb.Event(type=pb.Event.PUT, kv=kv)]) == [watch]
    assert changes.report([gone(0, 14)]) == [watch]


def test_contenders_that_are_there_keep_it() -> None:
    queue = queue_watch()
    queue.created(10)
    assert not queue.is_over(), "the client has just been there"
    assert queue.is_over()
    watch = Watch(contender(0, 11), 12)
    assert queue.take(watch)
    assert not queue.is_over()
    queue.drop(watch)
    assert queue.is_over()


def test_what_was_forgotten_came_before_a_gap() -> None:
    queue = queue_watch()
    queue.created(10)
    queue.report([gone(number, 20 + number) for number in range(1000)])
    queue.broke()
    queue.created(5000)
    queue.report([gone(1000, 5001)])
    watch = Watch(contender(1000, 1015), 4000)
    assert queue.take(watch)
    assert not watch.is_covered, "it may have left in the gap"
