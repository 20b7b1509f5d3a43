"""The contract over a state directory."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar

from coordlock.backend import Backend, Capabilities, ServiceInfo, SessionInfo, SessionListener
from coordlock.errors import (
    BackendUnavailable,
    ConfigurationError,
    CoordlockError,
    Evicted,
    SessionLost,
)
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, failed, resolved
from coordlock.settings import Option, Settings, boolean
from coordlock_local.attempts import Attempts, perform
from coordlock_local.counter import Counter
from coordlock_local.directory import Directory, default_root
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.layout import adopt, check
from coordlock_local.notices import Polling
from coordlock_local.queue import Queue, add, evict, queue_names, sweep, tidy
from coordlock_local.session import LocalSession
from coordlock_local.slots import Place, leave, stands, tell
from coordlock_local.watcher import Watcher, notices

if TYPE_CHECKING:
    from coordlock.backend import Listing, Observation, Operation, Stored
    from coordlock_local import data as data_file
    from coordlock_local import followers, values
    from coordlock_local.data import DataFile
    from coordlock_local.followers import Followers
else:
    data_file = Lazily("coordlock_local.data")  # SQLite takes a while to import
    followers = Lazily("coordlock_local.followers")
    values = Lazily("coordlock_local.values")  # few contenders publish anything

__all__ = ["LocalBackend"]

log = Log("coordlock.local")

#: So many queues' files may be left for the next time, when they are empty.
_KEPT: Final = 256

T = TypeVar("T")

# For the fork handler; a client that was dropped without `close` keeps its session, not this entry.
_backends: Final[weakref.WeakSet[LocalBackend]] = weakref.WeakSet()


class LocalBackend(Backend):
    """A client's session in a state directory of this machine.

    Besides, it has what all additions to the contract ask for.

    Requests are file operations of microseconds, done by the calling thread. Only what needs the
    counter, as adding a contender does, can find others in its way; then a thread goes on
    (`Attempts`).
    """

    scheme: ClassVar[str] = "local"
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="machine", leased=False, durable=True, ordered=True, fenced=True, one_step="all"
    )
    default_root: ClassVar[str] = ""
    shares_keys: ClassVar[bool] = False
    options: ClassVar[Sequence[Option]] = (
        Option(
            "trust_filesystem",
            boolean,
            False,
            "Use the directory though its file system is not known to be local to this machine.",
        ),
    )

    def __init__(
        self,
        root: str,
        connect_timeout: float = 10.0,
        request_timeout: float = 5.0,
        trust_filesystem: bool = False,
    ):
        self.root: Final = root
        self._trusts = trust_filesystem
        self._connect_timeout = connect_timeout
        self._request_timeout = request_timeout
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._directory: Directory | None = None
        self._attempts = Attempts(os.path.join(root, "counter"))
        #: Of what waits for the data, or for the disk.
        self._uses = Attempts(os.path.join(root, "data.lock"))
        self._followers: Followers | None = None
        self._listener: SessionListener | None = None
        self._session: LocalSession | None = None
        self._watcher: Watcher | None = None
        self._queues: dict[str, Queue] = {}  # by name; the longest in use comes first
        self._places: dict[str, Place] = {}  # by entry id, where the session's contenders stand
        self._own: dict[str, Contender] = {}  # by key, these contenders
        self._published: set[str] = set()  # the ids of those that may publish something
        self._closed = False
        _backends.add(self)

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None) -> Self:
        if os.name != "posix":
            raise ConfigurationError(
                f"local:// needs a POSIX system, this is {os.name!r}: use zookeeper:// or etcd://"
            )
        if client is not None:
            raise ConfigurationError("local:// uses no client of another library")
        if settings.hosts or settings.username is not None:
            raise ConfigurationError(
                "local:// takes no host and no user, only a path with a third slash: local:///path"
            )
        if settings.root == "/":
            raise ConfigurationError(
                "local:/// would put its files into the machine's top directory: use local:// for "
                "the user's state directory, or name another one with local:///path"
            )
        root = settings.root or default_root()
        trusts = settings.options["trust_filesystem"]
        return cls(root, settings.connect_timeout, settings.request_timeout, trusts)

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        return self._ask(partial(self._open, listener), self._connect_timeout)

    def heartbeat(self) -> Promise[float]:
        return self._ask(self._heartbeat)

    def enqueue(self, entry: Entry, *, unless_blocked: bool = False) -> Promise[Snapshot]:
        return self._ask(lambda: self._enqueue((entry,), unless_blocked)[0], self._request_timeout)

    def enqueue_all(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        return self._ask(partial(self._enqueue, entries, unless_blocked), self._request_timeout)

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        part = None if conflicting else upto

        def look() -> Snapshot:
            known = self._queues.get(queue) or Queue(self._prepared(), queue)
            return known.snapshot(part, owners=owners, own=self._own)

        return self._ask(look)

    def watch(
        self,
        contender: Contender,
        revision: int,
        departed: Callable[[bool], None],
        waiters: Sequence[Contender] = (),
    ) -> Callable[[], None]:
        return self._watch(lambda watcher: watcher.watch(contender, departed, waiters))

    def _watch(self, add: Callable[[Watcher], Callable[[], None]]) -> Callable[[], None]:
        if self._ended() is not None:  # before the lock, which a forked child may find taken
            return lambda: None
        with self._lock:
            if self._closed or self._session is None:
                return lambda: None
            if self._watcher is None:
                self._watcher = Watcher(self._session)
            watcher = self._watcher
        try:
            return add(watcher)
        except RuntimeError as error:  # no thread: the interpreter is exiting, or has too many
            raise BackendUnavailable(SERVICE, str(error)) from error

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        return self._ask(partial(self._publish, contender, value, version))

    def watch_value(
        self, contender: Contender, revision: int, changed: Callable[[], None]
    ) -> Callable[[], None]:
        return self._watch(lambda watcher: watcher.watch_value(contender, changed))

    def withdraw(self, entry: Entry) -> Promise[bool]:
        return self._ask(partial(self._withdraw, entry))

    def withdraw_all(self, entries: Sequence[Entry]) -> Promise[bool]:
        return self._ask(lambda: sum(map(self._withdraw, entries)) == len(entries))

    def queues(self) -> Promise[list[str]]:
        return self._ask(lambda: queue_names(self._prepared()))

    def evict(self, contender: Contender) -> Promise[bool]:
        return self._ask(partial(self._evict, contender), self._request_timeout)

    def fetch(self, contender: Contender, key: str) -> Promise[Stored | None]:
        return self._use(lambda data: data.fetch(contender, key))

    def commit(
        self,
        contender: Contender,
        operations: Sequence[Operation],
        others: Sequence[Contender] = (),
    ) -> Promise[None]:
        def write(data: DataFile) -> None:
            data.write(operations, (contender, *others))

        return self._use(write)

    def read(self, where: str) -> Promise[Listing]:
        return self._use(lambda data: data.read(where))

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[int]:
        return self._use(lambda data: data.write(operations, guards))

    def follow(self, where: str, news: Callable[[], None]) -> Observation[Listing]:
        return self._all_followers().follow(where, news)

    def observe(self, queue: str, news: Callable[[], None]) -> Observation[Snapshot]:
        return self._all_followers().observe(queue, news)

    def _all_followers(self) -> Followers:
        with self._lock:
            if self._followers is None:
                self._followers = followers.Followers(self._prepared())
                if self._closed:
                    self._followers.close()
            return self._followers

    def _use(self, action: Callable[[DataFile], T]) -> Promise[T]:
        """The outcome of ``action`` on the data, which may wait for the disk."""
        ended = self._ended()
        if ended is not None:
            return failed(ended)
        use = partial(self._used, action)
        # Before the caller's own time is up, so that it is told which process is at work.
        return self._uses.run(use, 0.8 * self._request_timeout, at_once=False)

    def _used(self, action: Callable[[DataFile], T]) -> T:
        return action(data_file.DataFile(self._prepared()))

    def verify(self, contender: Contender) -> Promise[None]:
        return self._ask(partial(self._verify, contender))

    def describe(self) -> Promise[ServiceInfo]:
        return self._ask(self._describe)

    def close(self) -> Promise[None]:
        if os.getpid() != self._pid:
            return resolved(None)
        with self._lock:
            if self._closed:
                return resolved(None)
            self._closed = True
        self._attempts.close()
        self._uses.close()
        if self._followers is not None:
            self._followers.close()
        if self._watcher is not None:
            self._watcher.close()
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            used = {queue.path for queue in self._queues.values()}
            for id, place in list(self._places.items()):
                used.add(place.path)
                with suppress(OSError):  # it is dead with its session
                    _leave(session, id, place)
                    if id in self._published:
                        values.remove(session.directory, session.id, id)
            session.end()
            for path in used:
                _tidy(session, path)
        return resolved(None)

    def forget(self) -> None:
        """In a forked child: give back what was copied, and leave the parent's session alone."""
        if self._followers is not None:
            self._followers.forget()
        if self._watcher is not None:
            self._watcher.forget()

    def _ask(self, action: Callable[[], T], timeout: float | None = None) -> Promise[T]:
        """The outcome of ``action``; with a ``timeout`` it may have to wait for the counter."""
        ended = self._ended()
        if ended is not None:
            return failed(ended)
        return perform(action) if timeout is None else self._attempts.run(action, timeout)

    def _ended(self) -> CoordlockError | None:
        if os.getpid() != self._pid:
            return SessionLost(SERVICE, f"it belongs to process {self._pid}, which forked")
        return SessionLost(SERVICE, "the client was closed") if self._closed else None

    def _prepared(self) -> Directory:
        if self._directory is None:
            directory = Directory.prepare(self.root, trusted=self._trusts)
            check(directory)
            self._directory = directory
        return self._directory

    def _open(self, listener: SessionListener) -> SessionInfo:
        self._directory = directory = Directory.prepare(self.root, trusted=self._trusts)
        session = LocalSession(directory)
        adopt(directory, session.counter)
        others = session.start()
        with self._lock:
            closed = self._closed
            if not closed:
                self._session, self._listener = session, listener
                self._queues.clear()
        if closed:
            session.end()
            raise SessionLost(SERVICE, "the client was closed")
        try:
            dead = sweep(directory, session.counter, others)
        except (OSError, Busy) as error:  # the next `open` tries again
            log.debug("cannot sweep %s: %s", self.root, error)
        else:
            log.debug("removed %d dead session(s) from %s", len(dead), self.root)
        log.info("the locks in %s cover processes of this machine only that use it", self.root)
        return SessionInfo(session.id, math.inf)

    def _heartbeat(self) -> float:
        session = self._session
        if session is None or not session.is_alive():
            raise self._lose(session)
        return math.inf

    def _enqueue(self, entries: Sequence[Entry], unless_blocked: bool) -> tuple[Snapshot, ...]:
        session = self._session
        if session is None:
            raise self._lose(session)
        wanted = [(self._queue(session, entry.queue), entry) for entry in entries]
        places = [self._places[entry.id] for entry in entries if entry.id in self._places]
        if places:
            if len(places) == len(wanted) and all(stands(session.directory, one) for one in places):
                pairs = zip(wanted, places, strict=True)
                return tuple([queue.snapshot(queue.contender(at)) for (queue, _), at in pairs])
            for entry in entries:  # a part has gone, so the rest stands in the wrong order
                self._withdraw(entry)
        self._published.update(entry.id for entry in entries if entry.value)
        snapshots = add(wanted, session, self._places.__setitem__, self._own, unless_blocked)
        if snapshots is None:
            raise self._lose(session)
        for entry, snapshot in zip(entries, snapshots, strict=True):
            if (me := snapshot.find(entry.id)) is not None:
                self._own[me.key] = me
            else:
                self._published.discard(entry.id)
        return snapshots

    def _withdraw(self, entry: Entry) -> bool:
        place = self._places.get(entry.id)
        if place is None:
            return False
        session, watcher = self._session, self._watcher
        if session is None:
            return False  # it has gone with its session
        try:
            was_there = _leave(session, entry.id, place)
        except OSError as error:
            # As long as the session lives, so does the contender: this must be tried again.
            raise BackendUnavailable(SERVICE, translated(error).reason) from error
        # First, so that what Ctrl-C ends here is told when the removal goes on.
        if watcher is not None:
            watcher.left(place.key)
        self._own.pop(place.key, None)
        if entry.id in self._published:
            values.remove(session.directory, session.id, entry.id)
            self._published.discard(entry.id)
        self._places.pop(entry.id, None)
        return was_there

    def _publish(self, contender: Contender, value: bytes, version: int) -> None:
        session, watcher = self._session, self._watcher
        if session is None or not session.is_alive():
            raise self._lose(session)
        self._published.add(contender.id)
        with self._lock:
            values.publish(session.directory, contender, value, version)
        if watcher is not None:
            watcher.changed(contender.key)

    def _evict(self, contender: Contender) -> bool:
        directory = self._prepared()
        return evict(directory, Counter(directory), contender)

    def _verify(self, contender: Contender) -> None:
        session = self._session
        if session is None or not session.is_alive():
            raise self._lose(session)
        if not stands(session.directory, Place.of(contender)):
            raise Evicted(contender.key)

    def _queue(self, session: LocalSession, name: str) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(session.directory, name)
            if len(self._queues) > _KEPT:
                with suppress(KeyError, StopIteration, RuntimeError):  # another thread does it
                    _tidy(session, self._queues.pop(next(iter(self._queues))).path)
        return queue

    def _lose(self, session: LocalSession | None) -> SessionLost:
        """End a session whose file was removed: to the others it is dead."""
        lost = SessionLost(SERVICE, f"its file in {self.root} was removed")
        with self._lock:
            if session is None or session is not self._session:
                return lost
            self._session = None
            watcher, self._watcher = self._watcher, None
            self._places.clear()
            self._own.clear()
            self._queues.clear()
        session.end()
        if watcher is not None:
            watcher.close()
        if self._listener is not None:
            self._listener.lost(lost.reason)
        return lost

    def _describe(self) -> ServiceInfo:
        directory = self._prepared()
        system = os.uname()
        warnings = []
        if directory.shared:
            warnings.append("the directory is shared: every member of its group can break locks")
        if foreign := directory.foreign():
            warnings.append(f"the directory is trusted, though it is on {foreign}")
        source = notices()
        source.close()
        if isinstance(source, Polling):
            warnings.append("no inotify: departures are noticed by polling, up to 50 ms later")
        return ServiceInfo(
            service=SERVICE,
            version=f"{system.sysname} {system.release}",
            endpoints=(directory.root,),
            warnings=tuple(warnings),
        )


def _leave(session: LocalSession, id: str, place: Place) -> bool:
    """Take away the contender of the entry ``id`` at ``place``, and tell of it; if it was there."""
    with session.leaving:
        was_there = not session.has_ended and leave(session.directory, place)
    tell(session.directory, session.id, id)
    return was_there


def _tidy(session: LocalSession, path: str) -> None:
    """Remove a queue's file if it is empty; where that's impossible, another client does it."""
    with suppress(OSError, CoordlockError, Busy):
        tidy(session.directory, session.counter, path)


def _forget() -> None:
    for backend in list(_backends):
        backend.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
