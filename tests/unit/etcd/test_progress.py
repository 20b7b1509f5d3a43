"""Which own watches are taken for caught up, against a model of how etcd files and tells them."""

from __future__ import annotations

from collections import deque

import pytest
from coordlock_etcd.progress import Progress
from coordlock_etcd.watch import Watch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordlock.model.claim import Mode
from coordlock.model.contender import Contender


def watch_on(order: int, *, own: bool = True) -> Watch:
    contender = Contender("me", "/q/lock-me", Mode.EX, order)
    return Watch(contender, own, order + 1)


class Server:
    """A stream's watches: filed in the order of the requests, after a look at the store."""

    def __init__(self, revision: int = 1) -> None:
        self.revision = revision
        self.requests: deque[tuple[int, int]] = deque()
        self.behind: dict[int, int] = {}
        self.caught_up: set[int] = set()
        #: What it says of which id, and what it had found the store at.
        self.says: deque[tuple[str, int, int]] = deque()

    def file(self, written: int) -> None:
        """File the next; ``written`` is how much happens between the look and that."""
        looked = self.revision
        self.revision += written
        id, start = self.requests.popleft()
        if start > self.revision:
            self.caught_up.add(id)
        else:
            self.behind[id] = start
        self.says.append(("created", id, looked))

    def catch_up(self, id: int) -> None:
        self.caught_up.add(id)
        if self.behind.pop(id) == 0:
            self.says.append(("event", id, self.revision))

    def compact(self, id: int) -> None:
        del self.behind[id]
        self.says.append(("cancelled", id, self.revision))


class Watching(RuleBasedStateMachine):
    """The watcher's part is as in `Watcher`: when it sends, and what it makes of what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.is_connected = True
        self.progress = Progress()
        self.table: list[Watch] = []
        self.by_id: dict[int, Watch] = {}
        self.ids = 0
        #: Sent for the first time, and nothing has been after it: its waiter may send another.
        self.fresh: Watch | None = None

    def send(self, watch: Watch, start: int) -> None:
        self.ids += 1
        self.by_id.pop(watch.id, None)
        watch.id, watch.sent = self.ids, start
        self.by_id[watch.id] = watch
        self.progress.sent(watch)
        # Zero stands for the contender's creation, which is told.
        self.server.requests.append((watch.id, start if start > watch.order else 0))

    def send_a_witness(self) -> None:
        if self.is_connected and self.progress.alone() is not None:
            self.ids += 1
            self.progress.witness(self.ids)
            self.server.requests.append((self.ids, self.server.revision))

    def hear(self) -> None:
        said, id, revision = self.server.says.popleft()
        if said == "created":
            for watch in self.progress.created(id, revision):
                assert self.by_id[watch.id] is watch
                self.send(watch, watch.order)
            self.send_a_witness()
        elif id not in self.by_id:
            pass  # has ended meanwhile, or was sent again
        elif said == "event":
            self.progress.told(self.by_id[id])
        else:
            self.unsend(self.by_id.pop(id))

    def unsend(self, watch: Watch) -> None:
        self.progress.unsent(watch)
        watch.id = 0

    def read(self, watch: Watch) -> None:
        watch.start = self.server.revision + 1
        if self.is_connected and not watch.id:
            self.send_again([watch])

    def send_again(self, watches: list[Watch]) -> None:
        for watch in watches:
            self.send(watch, watch.start)
        self.progress.resent()
        self.fresh = None

    def connect(self) -> None:
        self.is_connected = True
        if any(watch.sent for watch in self.table):
            self.send_again(self.table)
        else:
            for watch in self.table:
                self.send(watch, watch.start)
                self.fresh = watch

    @rule()
    def others_write(self) -> None:
        self.server.revision += 1

    @rule(own=st.booleans(), age=st.integers(0, 2))
    def a_watch_is_sent(self, own: bool, age: int) -> None:
        start = max(1, self.server.revision - age) + 1
        watch = watch_on(start - 1, own=own)
        self.table.append(watch)
        self.progress.unsent(watch)
        if self.is_connected:
            self.send(watch, start)
            self.fresh = watch

    @precondition(lambda self: self.table)
    @rule(data=st.data())
    def one_is_shared(self, data: st.DataObject) -> None:
        shared = data.draw(st.sampled_from(self.table))
        self.progress.joined(shared)
        if self.is_connected and shared is not self.fresh:
            self.fresh = None
        self.send_a_witness()

    @precondition(lambda self: self.server.requests)
    @rule(written=st.integers(0, 1))
    def etcd_files(self, written: int) -> None:
        self.server.file(written)

    @precondition(lambda self: self.server.behind)
    @rule(data=st.data())
    def one_catches_up(self, data: st.DataObject) -> None:
        self.server.catch_up(data.draw(st.sampled_from(sorted(self.server.behind))))

    @precondition(lambda self: self.server.says)
    @rule()
    def etcd_is_heard(self) -> None:
        self.hear()

    @precondition(lambda self: self.table)
    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        watch = data.draw(st.sampled_from(self.table))
        self.table.remove(watch)
        self.by_id.pop(watch.id, None)
        self.progress.ended(watch)

    @invariant()
    def who_is_taken_for_caught_up_has_caught_up(self) -> None:
        for watch in self.table:
            if watch.own and watch in self.progress:
                assert watch.id in self.server.caught_up

    def teardown(self) -> None:
        """All comes to rest."""
        if not self.is_connected:
            self.connect()
        server = self.server
        while server.requests or server.behind or server.says or not all(w.id for w in self.table):
            if server.requests:
                server.file(0)
            for id in list(server.behind):
                server.catch_up(id)
            while server.says:
                self.hear()
            for watch in self.table:
                if not watch.id:
                    self.read(watch)
        for watch in self.table:
            assert watch in self.progress or watch is self.fresh, "in doubt for ever"


class SendingAgain(Watching):
    """And the stream breaks, and history is compacted: watches are sent more than once."""

    @precondition(lambda self: self.server.behind)
    @rule(data=st.data())
    def the_history_that_one_needs_is_compacted(self, data: st.DataObject) -> None:
        self.server.compact(data.draw(st.sampled_from(sorted(self.server.behind))))

    @precondition(lambda self: self.table)
    @rule(data=st.data())
    def one_is_read(self, data: st.DataObject) -> None:
        self.read(data.draw(st.sampled_from(self.table)))

    @precondition(lambda self: self.is_connected)
    @rule()
    def the_stream_breaks(self) -> None:
        self.is_connected = False
        self.server = Server(self.server.revision)
        self.by_id.clear()
        for watch in self.table:
            self.unsend(watch)

    @precondition(lambda self: not self.is_connected)
    @rule()
    def the_stream_is_back(self) -> None:
        self.connect()


TestWatching = Watching.TestCase
TestSendingAgain = SendingAgain.TestCase


def sent(progress: Progress, id: int, order: int, *, own: bool = True) -> Watch:
    """A watch that was sent in time, if nobody was faster."""
    watch = watch_on(order, own=own)
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


def test_an_event_shows_nothing_of_the_other_watches() -> None:
    progress = Progress()
    told, other = sent(progress, 1, 5), sent(progress, 2, 6)
    progress.told(told)
    assert told in progress
    assert other not in progress


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


def test_a_witness_is_sent_for_what_was_sent_again_with_nothing_after_it() -> None:
    progress = Progress()
    watch = sent(progress, 1, 5)
    progress.unsent(watch)
    sent(progress, 2, 4, own=False)
    watch.id = 3
    progress.sent(watch)
    progress.resent()
    assert progress.created(2, 5) == []
    assert progress.alone() is None, "nobody knows when it will be filed"
    assert progress.created(3, 5) == []
    assert progress.alone() is watch
    assert watch not in progress, "nothing but a later watch shows that it is in time"


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
