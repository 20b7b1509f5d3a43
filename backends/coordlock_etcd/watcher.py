"""Departures: one stream carries the watches of all contenders, and is reopened when it breaks.

Why no departure is missed. A watch starts at the revision after the one at which its contender was
seen, wherever the stream is opened and however often: etcd replays the deletions since. If it
cannot, because that history is compacted, the key itself is read. The contender has departed if
and only if no key with its creation revision is there. Since servers have lost watch events, all
watched keys are also read after every reconnect and now and then.

In which order departures are told: see `progress`. A departure that a reading finds, and no event
has told, is told as out of order.

A watch that begins in the past is told nothing before it has caught up, which etcd lets it do every
tenth of a second; and whatever anybody writes to etcd between a reading and the watch behind it
puts the beginning into the past. A lock that several clients hold for a moment each would change
hands ten times a second. So once a departure was told late, others' contenders are for a while
watched from etcd's present on, which is told at once. Where that is not the beginning, the key is
read to see whether something was missed: usually for nothing, so it is not done always.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.contender import Contender
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE, WatchRefused
from coordlock_etcd.progress import Progress
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection, Stream, can_start_threads
from coordlock_etcd.watch import Callback, Watch

__all__ = ["Observer", "Watcher"]

log = Log("coordlock")

#: Seconds between attempts to open a stream: the first doubles up to the last.
_BACKOFF: Final = (0.1, 2.0)
#: Seconds after which the watched keys are read, even if the stream is well.
_RECHECK: Final = 60.0
#: So many own watches are replayed at a time.
_REPLAYS: Final = 32
#: Seconds for which watches begin in the present after a departure that was told late.
_HURRIES: Final = 10.0


class Observer(Protocol):
    """Is told how the stream is; called from the watcher's thread, and gRPC's."""

    def suspect(self, reason: str) -> None:
        """The stream is broken."""

    def recovered(self) -> None:
        """The stream is back."""


class Watcher:
    """The watches of one client. Its thread starts with the first watch."""

    def __init__(self, connection: Connection, observer: Observer) -> None:
        self._connection = connection
        self._observer = observer
        # Entered by the plain lock: Ctrl-C in `Condition.__enter__` would leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._watches: dict[tuple[str, int, int], Watch] = {}
        self._by_id: dict[int, Watch] = {}
        self._progress = Progress()
        #: Own watches that are to be replayed, in order, and watches that are being replayed.
        self._late: dict[Watch, None] = {}
        self._replayed: set[Watch] = set()
        #: Until when watches begin in the present, by the monotonic clock.
        self._hurries_until = 0.0
        #: Before this revision, history is known to be gone.
        self._compacted = 0
        self._ids = itertools.count(1)
        self._cancelled = self._cancel  # one for all callbacks
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._delay = _BACKOFF[0]
        self._broken = False
        #: Whether etcd has refused a watch, and not yet filed those that the next stream began
        #: with, up to the id `_trial`.
        self._is_refused = False
        self._trial = 0
        #: Whether watches are on a stream again, and their keys are to be read for that.
        self._is_resent = False
        self._checked = time.monotonic()
        self._closed = False

    def watch(
        self,
        contender: Contender,
        revision: int,
        departed: Callable[[bool], None],
        waiters: Sequence[Contender],
        *,
        own: bool,
    ) -> Callable[[], None]:
        """Call ``departed`` when ``contender`` has left after ``revision``; what cancels that.

        ``own`` tells that it is this client's own contender. See `Backend.watch`.
        """
        return self._add(Watch(contender, own, revision + 1), departed, waiters)

    def watch_value(
        self, contender: Contender, revision: int, changed: Callable[[], None]
    ) -> Callable[[], None]:
        """See `PublishedValues.watch_value`."""
        watch = Watch(contender, False, revision + 1, version=contender.version)
        return self._add(watch, lambda _: changed(), ())

    def _add(
        self, wanted: Watch, departed: Callable[[bool], None], waiters: Sequence[Contender]
    ) -> Callable[[], None]:
        with self._lock:
            if self._closed:
                return lambda: None
            watch = self._watches.get(wanted.place)
            if watch is None:
                watch = self._watches[wanted.place] = wanted
                self._progress.unsent(watch)
                self._send(watch)
                self._changed.notify()
            else:
                self._progress.joined(watch)
                self._witness()
            callback = Callback(departed, waiters, watch, self._cancelled)
            watch.callbacks.append(callback)
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, name="coordlock-etcd-watch", daemon=True
                )
                thread.start()
                self._thread = thread  # only now: without the thread no departure is told
        return callback

    def told_in_order(self, contender: Contender) -> bool:
        """Whether the watch on ``contender``, an own one, is known to have caught up."""
        with self._lock:
            watch = self._watches.get((contender.key, contender.order, 0))
            return watch is not None and watch in self._progress

    def recheck_when_due(self) -> None:
        """Read the watched keys if that was long ago. Never blocks."""
        with self._lock:
            if time.monotonic() - self._checked < _RECHECK:
                return
        self._recheck_all()

    def restart(self) -> None:
        """Open a new stream, on the endpoint that is now in use. Never blocks."""
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()

    def reset(self) -> None:
        """Drop all watches: their session has ended. Never blocks."""
        with self._lock:
            self._watches.clear()
            self._by_id.clear()
            self._progress.clear()
            self._late.clear()
            self._replayed.clear()
            self._compacted = 0
            self._broken = self._is_refused = False
            if self._stream is not None:
                self._stream.cancel()

    def close(self) -> None:
        """Drop all watches and let the thread end. Never blocks."""
        with self._lock:
            self._closed = True
            self._changed.notify()
        self.reset()

    def join(self, timeout: float) -> None:
        """Wait for the thread's end, up to ``timeout`` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _cancel(self, callback: Callback) -> None:
        watch = callback.watch
        with self._lock:
            if callback in watch.callbacks:
                watch.callbacks.remove(callback)
            if not watch.callbacks:
                self._remove(watch)
                self._unwatch(watch)

    # The following eight are called with the lock held.

    def _send(self, watch: Watch) -> None:
        if self._stream is not None:
            watch.id, watch.sent = next(self._ids), watch.start
            self._by_id[watch.id] = watch
            self._progress.sent(watch)
            is_hurried = not watch.own and time.monotonic() < self._hurries_until
            watch.began = requests.NOW if is_hurried else watch.sent
            puts = watch.version > 0
            self._stream.send(requests.watch(watch.id, watch.key, watch.began, puts=puts))

    def _replay(self, watches: Sequence[Watch]) -> None:
        """Watch anew from the contenders' creation on, which is told when a watch catches up.

        A few at a time: etcd keeps no more than 128 answers for a stream, and tells the others
        later, in any order.
        """
        self._late.update(dict.fromkeys(watches))
        while self._late and len(self._replayed) < _REPLAYS:
            watch = next(iter(self._late))
            del self._late[watch]
            if self._stream is not None and watch.id and watch.order >= self._compacted:
                self._replayed.add(watch)
                del self._by_id[watch.id]
                self._stream.send(requests.unwatch(watch.id))
                watch.id, watch.sent = next(self._ids), watch.order
                self._by_id[watch.id] = watch
                self._progress.sent(watch)
                self._stream.send(requests.watch(watch.id, watch.key, watch.sent, puts=True))

    def _replays_no_more(self, watch: Watch) -> None:
        self._late.pop(watch, None)
        if watch in self._replayed:
            self._replayed.remove(watch)
            self._replay(())

    def _witness(self) -> None:
        """Show whether an own watch was sent in time, where no other watch will."""
        if (watch := self._progress.alone()) is not None and self._stream is not None:
            id = next(self._ids)
            self._progress.witness(id)
            self._stream.send(requests.watch(id, watch.key, watch.start))
            self._stream.send(requests.unwatch(id))

    def _unsent(self, watch: Watch) -> None:
        self._replays_no_more(watch)
        self._by_id.pop(watch.id, None)
        if self._is_live(watch):
            self._progress.unsent(watch)
        watch.id = 0

    def _is_live(self, watch: Watch) -> bool:
        return self._watches.get(watch.place) is watch

    def _remove(self, watch: Watch) -> None:
        self._replays_no_more(watch)
        if self._is_live(watch):
            del self._watches[watch.place]
            self._progress.ended(watch)

    def _unwatch(self, watch: Watch) -> None:
        if self._by_id.pop(watch.id, None) is not None and self._stream is not None:
            self._stream.send(requests.unwatch(watch.id))

    # The thread of the stream.

    def _run(self) -> None:
        with self._lock:
            if self._thread is None:  # Ctrl-C came inside of `start`
                self._thread = threading.current_thread()
            elif self._thread is not threading.current_thread():
                return
        while self._wait_for_watches():
            try:
                self._serve()
            except WatchRefused as error:
                if not self._is_refused:
                    # Its token has ended, which is told only if a new token is refused, too.
                    self._is_refused = True
                    continue
                self._break(str(error))
            except CoordlockError as error:
                self._break(str(error))
            except Exception as error:
                # Waiters depend on this thread, so it goes on after any error.
                if not self._closed and can_start_threads():
                    log.exception("etcd: the watch stream failed")
                self._break(repr(error))
            with self._lock:
                self._changed.wait_for(lambda: self._closed, self._delay)
                self._delay = min(2 * self._delay, _BACKOFF[1])

    def _wait_for_watches(self) -> bool:
        with self._lock:
            self._changed.wait_for(lambda: self._closed or self._watches)
            return not self._closed

    def _serve(self) -> None:
        stream = self._connection.open_stream()
        try:
            with self._lock:
                if self._closed:
                    return
                self._stream = stream
                again = any(watch.sent for watch in self._watches.values())
                for watch in self._watches.values():
                    self._send(watch)
                    self._trial = watch.id
                if again:
                    self._progress.resent()
                    self._is_resent = True
            if not stream.is_current():
                # `restart` came before there was a stream to cancel. This stream has told nothing,
                # and all watches count as behind until they are created on the next.
                return
            for response in stream.responses():
                self._handle(stream, response)
            raise BackendUnavailable(SERVICE, "the server ended the watch stream")
        finally:
            with self._lock:
                self._stream = None
                for watch in self._watches.values():
                    self._unsent(watch)
                self._by_id.clear()
            stream.close()

    def _break(self, reason: str) -> None:
        with self._lock:
            if self._broken or not self._watches:
                return
            self._broken = True
        self._observer.suspect(reason)

    def _mend(self, id: int) -> None:
        with self._lock:
            self._delay = _BACKOFF[0]
            if id >= self._trial:
                self._is_refused = False
            was_broken, self._broken = self._broken, False
            is_resent, self._is_resent = self._is_resent, False
        if was_broken:
            self._observer.recovered()
        if was_broken or is_resent:
            self._recheck_all()

    def _handle(self, stream: Stream, response: pb.WatchResponse) -> None:
        if response.created:
            self._mend(response.watch_id)
        ends: list[pb.Event] = []
        is_unsure = False
        with self._lock:
            revision = response.header.revision
            if response.created:
                self._replay(self._progress.created(response.watch_id, revision))
                self._witness()
            watch = self._by_id.get(response.watch_id)
            if watch is None:
                return  # cancelled meanwhile
            if response.created and watch.began == requests.NOW:
                watch.began = revision + 1
                is_unsure = watch.has_gap or not revision  # which a proxy of etcd does not tell
            ends = [one for one in response.events if watch.is_over_with(one)]
            if response.events and not ends:  # else it ends, and must prove nothing before
                self._progress.told(watch)
                self._replays_no_more(watch)
            # A watch that has caught up is told each revision by itself.
            if ends and not watch.own and ends[-1].kv.mod_revision < revision:
                self._hurries_until = time.monotonic() + _HURRIES
            if response.canceled:
                self._compacted = max(self._compacted, response.compact_revision)
                self._unsent(watch)
                # etcd 3.4 keeps a watch that a compaction has cancelled until it is told to end
                # it, or to the stream's end.
                stream.send(requests.unwatch(response.watch_id))
        if response.canceled or is_unsure:
            self._connection.cluster.saw(revision)
            self._recheck([watch])
        elif ends:
            self._connection.cluster.saw(ends[-1].kv.mod_revision)
            self._depart(watch)

    def _depart(self, watch: Watch, *, in_order: bool = True) -> None:
        with self._lock:
            callbacks = watch.callbacks if self._is_live(watch) else []
            watch.callbacks = []  # a callback cancelled from now on finds nothing
            self._remove(watch)
        for callback in callbacks:
            waiters = callback.waiters
            try:
                # Asked now: when the waiters wake, their watches may be on another stream.
                told_in_order = all(map(self.told_in_order, waiters))
                callback.departed(in_order and bool(waiters) and told_in_order)
            except Exception:
                log.exception("etcd: the callback of a watch failed")
        # Only now: gRPC's thread for requests would compete with the callbacks for the interpreter.
        with self._lock:
            self._unwatch(watch)

    # Reading the keys, by calls whose answers come on gRPC's threads.

    def _recheck_all(self) -> None:
        with self._lock:
            self._checked = time.monotonic()
            watches = list(self._watches.values())
        self._recheck(watches)

    def _recheck(self, watches: Sequence[Watch]) -> None:
        for start in range(0, len(watches), requests.MAX_OPERATIONS):
            batch = watches[start : start + requests.MAX_OPERATIONS]
            request = requests.presence([watch.key for watch in batch])
            seen = self._connection.cluster.revision
            answer = self._connection.call(TXN, request, partial(self._rechecked, batch, seen))
            answer.add_done_callback(partial(self._note_failure, batch))

    def _rechecked(self, batch: Sequence[Watch], seen: int, reply: pb.TxnResponse) -> None:
        revision = reply.header.revision
        if revision < seen:  # see `data`
            raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
        for watch, operation in zip(batch, reply.responses, strict=True):
            if watch.stands(operation.response_range.kvs):
                self._stays(watch, revision)
            else:
                self._depart(watch, in_order=False)

    def _note_failure(self, batch: Sequence[Watch], answer: Promise[None]) -> None:
        if answer.exception() is not None:
            with self._lock:
                live = filter(self._is_live, batch)
                are_unsure = any(not watch.id or watch.has_gap for watch in live)
            if are_unsure:
                self.restart()  # which sends them again, after a while

    def _stays(self, watch: Watch, revision: int) -> None:
        with self._lock:
            watch.start = max(watch.start, revision + 1)
            if self._is_live(watch) and not watch.id:
                self._send(watch)
                self._progress.resent()
