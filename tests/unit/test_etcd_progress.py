"""Which own watches are taken for caught up, against a model of how etcd files and tells them."""

from __future__ import annotations

from collections import deque

from coordlock_etcd.progress import Progress
from coordlock_etcd.watch import Watch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

QUEUES = (b"/q", b"/r")


class Server:
    """A stream's watches: filed in the order of the requests, after a look at the store."""

    def __init__(self) -> None:
        self.revision = 1
        self.requests: deque[tuple[int, int]] = deque()
        self.looked: int | None = None
        self.behind: dict[int, int] = {}
        self.caught_up: set[int] = set()
        #: What it says: the id, and the revision that it looked at, or None for an event.
        self.says: deque[tuple[int, int | None]] = deque()

    def look(self) -> None:
        self.looked = self.revision

    def file(self) -> None:
        id, start = self.requests.popleft()
        if start > self.revision:
            self.caught_up.add(id)
        else:
            self.behind[id] = start
        self.says.append((id, self.looked))
        self.looked = None

    def catch_up(self, id: int) -> None:
        self.caught_up.add(id)
        if self.behind.pop(id) == 0:
            self.says.append((id, None))


class Watching(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.progress = Progress()
        self.watches: dict[int, Watch] = {}
        self.ids = 0

    def send(self, watch: Watch, start: int) -> None:
        self.ids += 1
        self.watches.pop(watch.id, None)
        watch.id, watch.sent = self.ids, start
        self.watches[watch.id] = watch
        self.progress.sent(watch)
        # Zero stands for the contender's creation, which is told.
        self.server.requests.append((watch.id, start if start > watch.order else 0))

    @rule()
    def others_write(self) -> None:
        self.server.revision += 1

    @rule(queue=st.sampled_from(QUEUES), own=st.booleans(), age=st.integers(0, 2))
    def a_watch_is_sent(self, queue: bytes, own: bool, age: int) -> None:
        start = max(1, self.server.revision - age) + 1
        watch = Watch(queue + b"/contender", start - 1, own, start)
        self.progress.unsent(watch)
        self.send(watch, start)

    @rule(queue=st.sampled_from(QUEUES))
    def one_is_shared(self, queue: bytes) -> None:
        for watch in self.progress.unproven(queue):
            self.send(watch, watch.order)

    @precondition(lambda self: self.server.requests and self.server.looked is None)
    @rule()
    def etcd_looks(self) -> None:
        self.server.look()

    @precondition(lambda self: self.server.looked is not None)
    @rule()
    def etcd_files(self) -> None:
        self.server.file()

    @precondition(lambda self: self.server.behind)
    @rule(data=st.data())
    def one_catches_up(self, data: st.DataObject) -> None:
        self.server.catch_up(data.draw(st.sampled_from(sorted(self.server.behind))))

    @precondition(lambda self: self.server.says)
    @rule()
    def etcd_is_heard(self) -> None:
        id, revision = self.server.says.popleft()
        if revision is not None:
            for watch in self.progress.created(id, revision):
                self.send(watch, watch.order)
        elif id in self.watches:
            self.progress.told(self.watches[id])

    @precondition(lambda self: self.watches)
    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        self.progress.ended(self.watches.pop(data.draw(st.sampled_from(sorted(self.watches)))))

    @invariant()
    def who_is_taken_for_caught_up_has_caught_up(self) -> None:
        for watch in self.watches.values():
            if watch.own and watch.queue in self.progress:
                assert watch.id in self.server.caught_up


TestWatching = Watching.TestCase


def own(id: int, order: int) -> Watch:
    return Watch(b"/q/me", order, True, order + 1, id=id, sent=order + 1)


def test_a_watch_is_in_time_when_a_later_one_finds_that_nothing_has_happened() -> None:
    progress, watch = Progress(), own(1, 5)
    progress.sent(watch)
    assert progress.created(1, 5) == []
    assert b"/q" not in progress, "something may have happened before it was filed"
    assert progress.created(2, 5) == []
    assert b"/q" in progress


def test_a_watch_that_may_be_late_is_told_its_creation_first() -> None:
    progress, watch = Progress(), own(1, 5)
    progress.sent(watch)
    assert progress.created(2, 6) == [watch]
    watch.id, watch.sent = 3, 5
    progress.sent(watch)
    assert progress.created(4, 6) == []
    assert b"/q" not in progress
    progress.told(watch)
    assert b"/q" in progress


def test_watches_on_others_are_never_waited_for() -> None:
    progress = Progress()
    watch = Watch(b"/q/other", 5, False, 6, id=1, sent=6)
    progress.unsent(watch)
    progress.sent(watch)
    assert b"/q" in progress


def test_a_watch_without_a_stream_is_behind() -> None:
    progress, watch = Progress(), own(1, 5)
    progress.sent(watch)
    progress.told(watch)
    progress.unsent(watch)
    assert b"/q" not in progress
    progress.ended(watch)
    assert b"/q" in progress
