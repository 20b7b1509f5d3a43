"""Which own watches are taken for caught up, against a model of how etcd files and tells them."""

from __future__ import annotations

from collections import deque

import pytest
from coordlock_etcd.progress import Progress
from coordlock_etcd.watch import Watch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordlock.claim import Mode
from coordlock.contender import Contender

QUEUES = ("/q", "/r")


def watch_on(queue: str, order: int, *, own: bool = True) -> Watch:
    contender = Contender("me", f"{queue}/lock-me", Mode.EX, order)
    return Watch(contender, own, order + 1)


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
    def a_watch_is_sent(self, queue: str, own: bool, age: int) -> None:
        start = max(1, self.server.revision - age) + 1
        watch = watch_on(queue, start - 1, own=own)
        self.progress.unsent(watch)
        self.send(watch, start)

    @precondition(lambda self: self.watches)
    @rule(data=st.data())
    def one_is_shared(self, data: st.DataObject) -> None:
        shared = self.watches[data.draw(st.sampled_from(sorted(self.watches)))]
        self.progress.joined(shared)
        self.send_a_witness()

    def send_a_witness(self) -> None:
        if self.progress.alone() is not None:
            self.ids += 1
            self.progress.witness(self.ids)
            self.server.requests.append((self.ids, self.server.revision))

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
            self.send_a_witness()
        elif id in self.watches:
            self.progress.told(self.watches[id])

    @precondition(lambda self: self.watches)
    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        self.progress.ended(self.watches.pop(data.draw(st.sampled_from(sorted(self.watches)))))

    @invariant()
    def who_is_taken_for_caught_up_has_caught_up(self) -> None:
        for watch in self.watches.values():
            if watch.own and watch in self.progress:
                assert watch.id in self.server.caught_up


TestWatching = Watching.TestCase


def sent(progress: Progress, id: int, order: int, *, own: bool = True) -> Watch:
    """A watch that was sent in time, if nobody was faster."""
    watch = watch_on("/q", order, own=own)
    progress.unsent(watch)
    watch.id, watch.sent = id, watch.start
    progress.sent(watch)
    return watch


def test_a_watch_is_in_time_when_a_later_one_finds_that_nothing_has_happened() -> None:
    progress = Progress()
    watch = sent(progress, 1, 5)
    assert progress.created(1, 5) == []
    assert watch not in progress, "something may have happened before it was filed"
    assert progress.created(2, 5) == []
    assert watch in progress


def test_a_watch_that_may_be_late_is_told_its_creation_first() -> None:
    progress = Progress()
    watch = sent(progress, 1, 5)
    assert progress.created(2, 6) == [watch]
    watch.id, watch.sent = 3, 5
    progress.sent(watch)
    assert progress.created(4, 6) == []
    assert watch not in progress
    progress.told(watch)
    assert watch in progress


@pytest.mark.parametrize("filed", [False, True])
def test_a_witness_is_sent_where_the_other_watch_is_shared(filed: bool) -> None:
    progress = Progress()
    shared, watch = sent(progress, 1, 4, own=False), sent(progress, 2, 5)
    if filed:
        assert progress.created(2, 5) == []
    progress.joined(shared)
    if not filed:
        assert progress.alone() is None, "another may yet be sent"
        assert progress.created(2, 5) == []
    assert progress.alone() is watch
    progress.witness(3)
    assert progress.alone() is None
    assert watch not in progress
    assert progress.created(3, 5) == []
    assert watch in progress


def test_no_witness_is_sent_when_another_watch_is_one() -> None:
    progress = Progress()
    shared, watch = sent(progress, 1, 4, own=False), sent(progress, 2, 5)
    progress.joined(shared)
    sent(progress, 3, 5)
    assert progress.created(2, 5) == []
    assert progress.alone() is None
    assert progress.created(3, 5) == []
    sent(progress, 4, 5, own=False)
    progress.joined(shared)
    assert progress.created(4, 5) == []
    assert progress.alone() is None
    assert watch in progress


def test_watches_on_others_are_never_waited_for() -> None:
    progress = Progress()
    watch = sent(progress, 1, 5, own=False)
    assert watch in progress


def test_a_watch_without_a_stream_is_behind() -> None:
    progress = Progress()
    watch = sent(progress, 1, 5)
    progress.told(watch)
    progress.unsent(watch)
    assert watch not in progress
    progress.ended(watch)
    assert watch in progress
