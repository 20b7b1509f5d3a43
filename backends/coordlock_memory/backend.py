"""The contract over a `MemoryService`, with a network that can fail in between."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import ClassVar, Final, Self, TypeVar

from coordlock.backend import Backend, Capabilities, ServiceInfo, SessionInfo, SessionListener
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.clock import SystemTimers, Timers
from coordlock.runtime.promise import Promise, failed, resolved
from coordlock.settings import Settings
from coordlock.transaction import Operation, Stored, Transactions
from coordlock_memory.faults import Fault, Faults
from coordlock_memory.service import MemoryService

__all__ = ["MemoryBackend"]

T = TypeVar("T")

#: After how many seconds a request takes effect that its client had given up.
_LATE: Final = 1.0


class MemoryBackend(Backend, Transactions):
    """A client's connection to a `MemoryService`; replies come at once unless `faults` tell."""

    scheme: ClassVar[str] = "memory"
    capabilities: ClassVar[Capabilities] = Capabilities(reach="process", leased=True, durable=False)

    _services: ClassVar[weakref.WeakValueDictionary[str, MemoryService]] = (
        weakref.WeakValueDictionary()
    )
    _services_lock: ClassVar = threading.Lock()

    def __init__(self, service: MemoryService, ttl: float, timers: Timers | None = None) -> None:
        self.service: Final = service
        self.faults: Final = Faults()
        self._ttl = ttl
        self._timers = timers or SystemTimers("coordlock-memory-network")
        self._session = ""
        self._listener: SessionListener | None = None
        #: Departures that the network has not brought yet, in the order in which they happened.
        self._under_way: list[object] = []
        self._lock = threading.RLock()
        self._closed = False

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None) -> Self:
        if isinstance(client, MemoryService):
            return cls(client, settings.ttl)
        name = ",".join(settings.hosts) + settings.root
        with cls._services_lock:
            service = cls._services.setdefault(name, MemoryService())
        return cls(service, settings.ttl)

    def open(self, listener: SessionListener) -> Future[SessionInfo]:
        def start() -> SessionInfo:
            id = self.service.open(self._ttl, partial(self._tell_loss, listener))
            return SessionInfo(id, self._ttl)

        def opened(answer: Future[SessionInfo]) -> None:
            # Not before: a session that was opened late, or without a reply, belongs to no client.
            if answer.exception() is None:
                self._session, self._listener = answer.result().id, listener

        answer = self._ask("open", start)
        answer.add_done_callback(opened)
        return answer

    def heartbeat(self) -> Future[float]:
        return self._ask("heartbeat", partial(self.service.heartbeat, self._session))

    def enqueue(self, entry: Entry) -> Future[Snapshot]:
        return self._ask("enqueue", partial(self.service.enqueue, self._session, entry))

    def snapshot(
        self, queue: str, upto: Contender | None = None, *, owners: bool = False
    ) -> Future[Snapshot]:
        return self._ask("snapshot", partial(self.service.snapshot, queue, upto))

    def watch(
        self,
        contender: Contender,
        revision: int,
        departed: Callable[[bool], None],
        waiter: Contender | None = None,
    ) -> Callable[[], None]:
        live = True

        def cancel() -> None:
            nonlocal live
            live = False
            stop()

        me = object()

        def tell() -> None:
            with self._lock:
                first = self._under_way[0] is me  # else an earlier departure is yet to be told
                self._under_way.remove(me)
            if live:
                departed(first and waiter is not None)

        def left() -> None:
            with self._lock:
                self._under_way.append(me)
            self._deliver(tell)

        stop = self.service.watch(contender, left)
        return cancel

    def withdraw(self, entry: Entry) -> Future[bool]:
        return self._ask("withdraw", partial(self.service.withdraw, entry))

    def queues(self) -> Future[list[str]]:
        return self._ask("queues", self.service.queues)

    def evict(self, contender: Contender) -> Future[bool]:
        return self._ask("evict", partial(self.service.remove, contender))

    def fetch(self, contender: Contender, key: str) -> Future[Stored | None]:
        return self._ask("fetch", partial(self.service.fetch, contender, key))

    def commit(self, contender: Contender, operations: Sequence[Operation]) -> Future[None]:
        return self._ask("commit", partial(self.service.commit, contender, operations))

    def describe(self) -> Future[ServiceInfo]:
        info = ServiceInfo(
            service="memory",
            version="",
            warnings=("it coordinates this process only: for tests",),
        )
        return self._ask("describe", lambda: info)

    def close(self) -> Future[None]:
        if not self._closed:
            self._closed = True
            if not self.faults.partitioned:
                self.service.close(self._session)
            self.faults.heal()
            self._timers.close()
        return resolved(None)

    def _ask(self, method: str, action: Callable[[], T]) -> Future[T]:
        """Let the service do ``action``; its reply, as the network lets it through."""
        if self._closed:
            return failed(BackendUnavailable("memory", "the connection is closed"))
        reply: Promise[T] = Promise()
        lost = BackendUnavailable("memory", "the network was partitioned")
        if self.faults.hold_back(partial(reply.fail, lost)):
            return reply
        match self.faults.take(method):
            case Fault.LOSE_REQUEST:
                return failed(BackendUnavailable("memory", "the request was lost"))
            case Fault.LOSE_REPLY:
                self._perform(action)
                return failed(BackendUnavailable("memory", "the reply was lost"))
            case Fault.LATE:
                self._later(_LATE, partial(self._perform, action))
                return failed(BackendUnavailable("memory", "the connection broke"))
        outcome = self._perform(action)
        if self.faults.latency is None:
            return outcome
        self._later(self.faults.latency(), partial(reply.follow, outcome))
        return reply

    def _tell_loss(self, listener: SessionListener, reason: str) -> None:
        self._deliver(partial(listener.lost, reason))

    def _deliver(self, news: Callable[[], object]) -> None:
        """Bring news to the client, as the network lets it through."""

        def arrive() -> None:
            if not self._closed and not self.faults.hold_back(arrive):
                news()

        if self._closed or self.faults.hold_back(arrive):
            return
        if self.faults.latency is None:
            news()
        else:
            self._later(self.faults.latency(), arrive)

    def _perform(self, action: Callable[[], T]) -> Promise[T]:
        try:
            return resolved(action())
        except CoordlockError as error:
            return failed(error)

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        self._timers.call_at(self._timers.clock.now() + seconds, action)
