"""The contract over a `MemoryService`, with a network that can fail in between."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeVar

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
from coordlock.backend.observers import Observers
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.clock import SystemTimers, Timers, sleep, soon
from coordlock.runtime.promise import Promise, failed, resolved
from coordlock.settings import Settings
from coordlock_memory.faults import Fault, Faults
from coordlock_memory.service import MemoryService

__all__ = ["MemoryBackend"]

T = TypeVar("T")

#: After how many seconds a request takes effect that its client had given up.
_LATE: Final = 1.0
#: Seconds after which an observation reads again when it got no answer.
_PAUSE: Final = 0.1


class MemoryBackend(Backend):
    """A client's connection to a `MemoryService`; replies come at once unless `faults` tell."""

    scheme: ClassVar[str] = "memory"
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="process",
        leased=True,
        durable=False,
        ordered=True,
        fenced=True,
        sets=True,
        publishing=True,
        data=True,
        one_step="all",
    )

    _services: ClassVar[weakref.WeakValueDictionary[str, MemoryService]] = (
        weakref.WeakValueDictionary()
    )
    _services_lock: ClassVar = threading.Lock()

    def __init__(self, service: MemoryService, ttl: float, timers: Timers | None = None) -> None:
        self.service: Final = service
        self.faults: Final = Faults(self._break)
        self._ttl = ttl
        self._timers = timers or SystemTimers("coordlock-memory-network")
        self._session = ""
        #: What watches are yet to be told by the network, in the order in which it happened.
        self._under_way: list[object] = []
        self._lock = threading.RLock()
        self._observers = Observers(self, self._timers.clock, self._lock)
        #: What ends the reports of each place that is observed.
        self._reports: dict[Queue | str, Callable[[], None]] = {}
        self._closed = False
        service.connected(self.faults)

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None, *, timers: Timers) -> Self:
        if isinstance(client, MemoryService):
            return cls(client, settings.ttl, timers)
        name = ",".join(settings.hosts) + settings.root
        with cls._services_lock:
            service = cls._services.setdefault(name, MemoryService())
        return cls(service, settings.ttl, timers)

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        def start() -> SessionInfo:
            lost = lambda reason: self._deliver(partial(listener.lost, reason))  # noqa: E731
            return SessionInfo(self.service.open(self._ttl, lost), self._ttl)

        def opened(answer: Promise[SessionInfo]) -> None:
            # Not before: a session that was opened late, or without a reply, belongs to no client.
            if answer.exception() is None:
                self._session = answer.result().id

        answer = self._ask("open", start)
        answer.add_done_callback(opened)
        return answer

    def heartbeat(self) -> Promise[float]:
        return self._ask("heartbeat", partial(self.service.heartbeat, self._session))

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        add = partial(self.service.enqueue, self._session, entries, unless_blocked=unless_blocked)
        return self._ask("enqueue", add)

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        part = None if conflicting else upto
        return self._ask("snapshot", partial(self.service.snapshot, queue, part))

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        me = object()

        def happened(departure: Departure) -> None:
            with self._lock:
                self._under_way.append(me)
            self._deliver(partial(arrive, departure))

        def arrive(departure: Departure) -> None:
            with self._lock:
                is_next = self._under_way[0] is me  # else something earlier is yet to arrive
                self._under_way.remove(me)
            if is_live:
                on_departure(departure if is_next else Departure.UNORDERED)

        is_live = True
        stop = self.service.watch(contender, happened, waiters, changes=changes)

        def cancel() -> None:
            nonlocal is_live
            is_live = False
            stop()

        return cancel

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        return self._ask("withdraw", partial(self.service.withdraw, entries))

    def queues(self) -> Promise[list[str]]:
        return self._ask("queues", self.service.queues)

    def evict(self, contender: Contender) -> Promise[bool]:
        return self._ask("evict", partial(self.service.remove, contender))

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        return self._ask("publish", partial(self.service.publish, contender, value, version))

    def read(self, where: str, *, guard: Contender | None = None) -> Promise[Listing]:
        return self._ask("read", partial(self.service.read, where, guard))

    def names(self, folder: str, first: int | None = None, split: str = "") -> Promise[list[str]]:
        return self._ask("read", partial(self.service.names, folder, first, split))

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[Written]:
        return self._ask("write", partial(self.service.write, operations, guards))

    def service_time(self) -> Promise[float | None]:
        return self._ask("service_time", lambda: self.service.time())

    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        look: Callable[[], Any]
        if isinstance(place, Queue):
            look = partial(self.service.snapshot, place.name)
        else:
            look = partial(self.service.read, place)
        return self._observers.observe(place, partial(self._ask, "follow", look), news)

    def report(self, place: Queue | str) -> bool:
        """See `Reporter`, as for the following two."""
        changed = partial(self._observers.changed, place)
        self._reports[place] = self.service.observe(place, partial(self._deliver, changed))
        return True

    def unreport(self, place: Queue | str) -> None:
        self._reports.pop(place)()

    def pause(self) -> Promise[None]:
        return sleep(self._timers, _PAUSE)

    def describe(self) -> Promise[ServiceInfo]:
        warnings = ("it coordinates this process only: for tests",)
        return self._ask("describe", lambda: ServiceInfo("memory", "", warnings=warnings))

    def close(self) -> Promise[None]:
        return self._uninterrupted(self._close)

    def _close(self) -> Promise[None]:
        if self._closed:
            return resolved(None)
        self._closed = True
        if not self.faults.partitioned:
            self.service.close(self._session)
        self.faults.heal()
        self._observers.close(BackendUnavailable("memory", "the connection is closed"))
        return resolved(None)

    def _uninterrupted(self, ask: Callable[[], Promise[T]]) -> Promise[T]:
        """What ``ask`` returns, called where Ctrl-C cannot strike if others wait for news.

        The thread that makes a change tells them. Struck half-way, it would leave some untold.
        """
        is_main = threading.current_thread() is threading.main_thread()
        is_real = isinstance(self._timers, SystemTimers) and not self._closed
        if not (is_main and is_real and self.service.is_watched):
            return ask()
        reply: Promise[T] = Promise()
        soon(self._timers, lambda: ask().add_done_callback(reply.follow))
        return reply

    def _ask(self, method: str, action: Callable[[], T]) -> Promise[T]:
        """Let the service do ``action``; its reply, as the network lets it through."""
        return self._uninterrupted(partial(self._send, method, action))

    def _send(self, method: str, action: Callable[[], T]) -> Promise[T]:
        if self._closed:
            return failed(BackendUnavailable("memory", "the connection is closed"))
        reply: Promise[T] = Promise()
        lost = BackendUnavailable("memory", "the network was partitioned")
        if self.faults.hold_back(partial(reply.fail, lost)):
            return reply
        match self.faults.take(method):
            case Fault.LOSE_REQUEST:
                self._break()
                return failed(BackendUnavailable("memory", "the request was lost"))
            case Fault.LOSE_REPLY:
                self._perform(action)
                self._break()
                return failed(BackendUnavailable("memory", "the reply was lost"))
            case Fault.LATE:
                self._later(_LATE, partial(self._perform, action))
                self._break()
                return failed(BackendUnavailable("memory", "the connection broke"))
        outcome = self._perform(action)
        if self.faults.latency is None:
            return outcome
        self._later(self.faults.latency(), partial(reply.follow, outcome))
        return reply

    def _break(self) -> None:
        """The connection broke, or is back."""
        self._observers.gap(self._timers.clock.now(), is_over=True)

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
