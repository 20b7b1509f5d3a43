"""The contract over a state directory."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from coordlock.backend import (
    Backend,
    Capabilities,
    Departure,
    Listing,
    Observation,
    Operation,
    Queue,
    ServiceInfo,
    SessionInfo,
    SessionListener,
    Written,
)
from coordlock.backend.session import OneSession
from coordlock.errors import (
    BackendUnavailable,
    ConfigurationError,
    CoordlockError,
    SessionLost,
)
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime import shared_file
from coordlock.runtime.clock import SystemTimers, Timers
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS
from coordlock.runtime.promise import Promise, failed, resolved
from coordlock.settings import Option, Settings, boolean
from coordlock_local import values
from coordlock_local.attempts import Attempts
from coordlock_local.contenders import Contenders
from coordlock_local.counter import check
from coordlock_local.directory import Directory, default_root
from coordlock_local.errors import SERVICE, Busy
from coordlock_local.flock import refuse_without_flock
from coordlock_local.leaving import evict
from coordlock_local.queue import LocalQueue, queue_names, sweep, verify
from coordlock_local.session import LocalSession

if TYPE_CHECKING:
    from coordlock_local.data import DataFile
    from coordlock_local.followers import Followers

__all__ = ["LocalBackend"]

log = Log("coordlock.local")

T = TypeVar("T")


class LocalBackend(Backend):
    """A client's session in a state directory of this machine.

    Requests are file operations of microseconds, done by the calling thread. Only what needs the
    counter, as adding a contender does, can find another process in its way; then a thread goes on
    (`Attempts`).
    """

    scheme: ClassVar[str] = "local"
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="machine",
        leased=False,
        durable=True,
        ordered=True,
        fenced=True,
        one_step="all",
        sets=True,
        publishing=True,
        data=True,
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
        request_timeout: float = 5.0,
        trust_filesystem: bool = False,
        timers: Timers | None = None,
    ):
        self.root: Final = root
        self._trusts = trust_filesystem
        self._request_timeout = request_timeout
        self._timers = timers or SystemTimers()
        self._pid = PROCESS.id
        self._lock = threading.RLock()
        self._directory: Directory | None = None
        self._attempts = Attempts(os.path.join(root, "counter"))
        #: Uses of the data, which wait for its lock and for the disk.
        self._uses = Attempts(os.path.join(root, "data.lock"))
        self._followers: Followers | None = None
        self._session: OneSession[Contenders] = OneSession(SERVICE, self._lock)
        self._closed = False

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None, *, timers: Timers) -> Self:
        refuse_without_flock()
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
        return cls(
            settings.root or default_root(),
            settings.request_timeout,
            settings.options["trust_filesystem"],
            timers,
        )

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        return self._ask(partial(self._open, listener))

    def heartbeat(self) -> Promise[float]:
        return self._ask(self._heartbeat)

    def describe(self) -> Promise[ServiceInfo]:
        return self._ask(self._describe)

    def close(self) -> Promise[None]:
        if PROCESS.id != self._pid:
            return resolved(None)
        with self._lock:
            if self._closed:
                return resolved(None)
            self._closed = True
        if self._followers is not None:
            self._followers.close()
        self._attempts.close(self._request_timeout)
        self._uses.close(self._request_timeout)
        if (contenders := self._session.forget(closes=True)) is not None:
            contenders.end()
        return resolved(None)

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        # Behind those that wait for the counter: each try of the caller takes milliseconds then.
        is_free = self._attempts.is_idle
        return self._ask(partial(self._enqueue, entries, unless_blocked), at_once=is_free)

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        return self._ask(partial(self._withdraw, entries))

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        def read() -> Snapshot:
            part = None if conflicting else upto  # all are read anyway, to find those
            return LocalQueue(self._prepared(), queue).snapshot(part, owners=owners)

        return self._ask(read)

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        contenders = self._session.current
        if contenders is None or self._ended() is not None:
            return lambda: None
        try:
            return contenders.watcher.watch(contender, on_departure, waiters, changes)
        except RuntimeError as error:  # no thread: the interpreter is exiting, or has too many
            raise BackendUnavailable(SERVICE, str(error)) from error

    def queues(self) -> Promise[list[str]]:
        return self._ask(lambda: queue_names(self._prepared()))

    def evict(self, contender: Contender) -> Promise[bool]:
        return self._ask(lambda: evict(self._prepared(), contender))

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        return self._ask(lambda: values.publish(self._living().session, contender, value, version))

    def read(self, where: str, *, guard: Contender | None = None) -> Promise[Listing]:
        return self._use(lambda data: data.read(where, guard))

    def names(self, folder: str, first: int | None = None, split: str = "") -> Promise[list[str]]:
        return self._use(lambda data: data.names(folder, first, split))

    def service_time(self) -> Promise[float | None]:
        return resolved(time.time())

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[Written]:
        if not operations:
            return self._ask(partial(self._verify, guards))
        return self._use(lambda data: data.write(operations, guards))

    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        return self._following().follow(place, news)

    def follow_news(self, key: str, news: Callable[[], None]) -> Observation[Listing]:
        return self._following().follow(key, news, reads=False)

    def _following(self) -> Followers:
        with self._lock:
            if self._followers is None:
                from coordlock_local.followers import Followers  # rare, and it imports SQLite

                directory = self._uses.perform(self._prepared).result()  # with coordlock's errors
                self._followers = Followers(directory, self._timers, self._attempt)
                if self._closed:
                    self._followers.close()
            return self._followers

    def _ask(self, action: Callable[[], T], *, at_once: bool = True) -> Promise[T]:
        """The outcome of ``action``, which may have to wait for the counter."""
        ended = self._ended()
        if ended is not None:
            return failed(ended)
        return self._attempts.run(action, self._request_timeout, at_once=at_once)

    def _use(self, action: Callable[[DataFile], T]) -> Promise[T]:
        """The outcome of ``action`` on the data."""

        def use() -> T:
            from coordlock_local.data import DataFile  # rare, and it imports SQLite

            return action(DataFile(self._prepared()))

        return self._attempt(use)

    def _attempt(self, action: Callable[[], T]) -> Promise[T]:
        """The outcome of ``action``, which may wait for the disk."""
        ended = self._ended()
        if ended is not None:
            return failed(ended)
        # Before the caller's own time is up, so that its error names the process that is at work.
        return self._uses.run(action, 0.8 * self._request_timeout, at_once=False)

    def _ended(self) -> CoordlockError | None:
        if PROCESS.id != self._pid:
            return SessionLost(SERVICE, f"it belongs to process {self._pid}, which forked")
        return SessionLost(SERVICE, "the client was closed") if self._closed else None

    def _prepared(self) -> Directory:
        return self._directory or self._prepare()

    def _prepare(self) -> Directory:
        directory = Directory.prepare(self.root, trusted=self._trusts)
        check(directory)
        self._directory = directory
        return directory

    def _open(self, listener: SessionListener) -> SessionInfo:
        directory = self._prepare()
        session = LocalSession(directory)
        dead = session.start()
        if not self._session.begin(Contenders(session, self._look), listener):
            session.end()
            raise SessionLost(SERVICE, "the client was closed")
        try:
            sweep(directory, dead)
        except (OSError, Busy) as error:  # the next client tries again
            log.debug("cannot remove dead sessions from %s: %s", self.root, error)
        log.info("the locks in %s cover only the processes of this machine that use it", self.root)
        return SessionInfo(session.id, math.inf)

    def _heartbeat(self) -> float:
        self._living()
        return math.inf

    def _enqueue(self, entries: Sequence[Entry], unless_blocked: bool) -> tuple[Snapshot, ...]:
        if (contenders := self._session.current) is None:
            raise self._session.missing()
        snapshots = contenders.add(entries, unless_blocked)
        self._living()  # else others may not see what was added
        return snapshots

    def _withdraw(self, entries: Sequence[Entry]) -> bool:
        contenders = self._session.current
        if contenders is None:
            return False  # they have gone with their session
        were_there = True
        for entry in entries:
            were_there &= contenders.remove(entry.id)
        return were_there

    def _verify(self, guards: Sequence[Contender]) -> Written:
        """Whether ``guards`` stand in their queues, which takes no look at the data."""
        verify(self._living().session.directory, guards)
        return Written(0, None)

    def _living(self) -> Contenders:
        """The contenders of the session. Raises `SessionLost` when it is not alive.

        Its file is not where others look then: to them it is dead.
        """
        contenders = self._session.current
        if contenders is None:
            raise self._session.missing()
        if not contenders.session.is_alive():
            reason = contenders.session.why_dead()
            raise self._session.lose(contenders, reason, contenders.watcher.end)
        return contenders

    def _look(self) -> None:
        """Notice if the session has died."""
        with suppress(SessionLost):
            self._living()

    def _describe(self) -> ServiceInfo:
        directory = self._prepared()
        system = os.uname()
        warnings = []
        if directory.shared:
            warnings.append("the directory is shared: every member of its group can break locks")
        if foreign := shared_file.foreign(directory.root):
            warnings.append(f"the directory is trusted, though it is on {foreign}")
        return ServiceInfo(
            service=SERVICE,
            version=f"{system.sysname} {system.release}",
            endpoints=(directory.root,),
            warnings=tuple(warnings),
        )
