"""What every backend offers: sessions, queues of contenders, and news of departures."""

from __future__ import annotations

from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from coordlock.backend.capabilities import Capabilities
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.promise import Promise
from coordlock.settings import Option, Settings

__all__ = ["Addition", "Backend", "ServiceInfo", "SessionInfo", "SessionListener"]


class Addition(metaclass=ABCMeta):  # noqa: B024 - its subclasses have abstract methods
    """What some backends can do besides: a backend derives from it, or just has its methods.

    The latter where it is used by few: then its module is not imported before that.
    """

    __slots__ = ()

    @classmethod
    def __subclasshook__(cls, kind: type) -> Any:
        wanted: frozenset[str] = getattr(cls, "__abstractmethods__", frozenset())
        if not wanted:
            return NotImplemented
        return all(any(name in vars(base) for base in kind.__mro__) for name in wanted)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """An open session: its id in the service and its time-to-live in seconds, as granted.

    ``shared`` tells that others use the session too, so that closing must withdraw each contender
    instead of ending it.
    """

    id: str
    ttl: float
    shared: bool = False


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """What `coordlock doctor` shows: the service, its versions, and what to know about them."""

    service: str
    version: str
    endpoints: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class SessionListener(Protocol):
    """What a backend tells the kernel about its session, from any thread; they never block."""

    def suspect(self, reason: str) -> None:
        """The connection is gone; the session may still live."""

    def recovered(self) -> None:
        """The connection is back, with the same session: the kernel sends a heartbeat at once."""

    def lost(self, reason: str) -> None:
        """The service says that the session has ended."""


class Backend(ABC):
    """One client's connection to one coordination service."""

    scheme: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    #: The options that its URLs take, beside the common ones.
    options: ClassVar[Sequence[Option]] = ()
    #: The root where the URL has no path.
    default_root: ClassVar[str] = "/coordlock"
    #: Whether contenders are keys below the root, among the keys of data.
    shares_keys: ClassVar[bool] = True
    #: The port of hosts that name none; 0 where hosts have no ports.
    default_port: ClassVar[int] = 0
    #: What a program is told that forks with an open connection, where a child may not survive it.
    fork_warning: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def configure(cls, settings: Settings, client: object | None = None) -> Self:
        """A backend for ``settings``; no I/O happens before `open`.

        ``client`` is an existing client of the service's own library whose connection is to be
        used. Raises `ConfigurationError` for what this backend cannot do.
        """

    @abstractmethod
    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        """Connect where needed and start a new session, which ``listener`` follows until its end.

        Called again after a session was lost, never while one lives.
        """

    @abstractmethod
    def heartbeat(self) -> Promise[float]:
        """Extend the session; for how many seconds the service has certainly granted that.

        Sends one request. The kernel counts them from before this call.
        """

    @abstractmethod
    def enqueue(self, entry: Entry, *, unless_blocked: bool = False) -> Promise[Snapshot]:
        """Add a contender to the end of its queue and read the queue, in one round trip.

        Idempotent by the entry's id: called again after its reply was lost, it finds the contender
        of the CURRENT session instead of adding a second. The snapshot holds the contender, with
        its token, and at least the ``entry.claim.window`` nearest before it.

        With ``unless_blocked``, add it only where nothing in the queue is in its way, by
        `coordlock.model.admission.is_blocked`: contenders that wait are, like those that hold.
        Otherwise change nothing; the snapshot then lists what is in the way, and the contender is
        not in it. A service that can't do this in one step reads first, and adds it only while the
        session is still the one of the call. Others may have come between the two: the snapshot,
        not this option, tells whether the lock is granted.
        """

    @abstractmethod
    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        """Read a queue: all of it, or the part that ends with ``upto``. Empty when there is none.

        Given ``upto``, at least the ``upto.claim.window`` nearest before it are listed, and it
        itself exactly if it is still in the queue. Otherwise nothing is omitted. With ``owners``,
        every contender comes with its token and owner and the read is linearizable.

        With ``conflicting``, given ``upto``, every contender before it whose claim conflicts with
        its own is listed, and none counts as omitted: of thousands that share a lock, few are read.
        """

    @abstractmethod
    def watch(
        self,
        contender: Contender,
        revision: int,
        departed: Callable[[bool], None],
        waiters: Sequence[Contender] = (),
    ) -> Callable[[], None]:
        """Call ``departed(in_order)`` once, when ``contender`` has left after ``revision``.

        At once, when it has left already. Never before it has left, and not at all after the
        session ended. Survives reconnects. Returns what cancels the watch; idempotent. All watches
        of a contender share one of the service's.

        ``waiters`` are the session's own contenders on whose behalf this is asked, which are
        granted together. They are watched, too, and one stands behind ``contender``, in whose place
        it is granted without reading the queue. So ``in_order`` says whether that is safe: had any
        of ``waiters`` departed before ``contender``, its departure would have been told by now.
        Where that is not certain, and without ``waiters``, it is False, and the queue is read.
        Reasons for doubt are a watch that the service is not yet known to have, as after a
        connection broke, and departures that are found by looking at one contender after another.
        """

    @abstractmethod
    def withdraw(self, entry: Entry) -> Promise[bool]:
        """Remove every contender with the entry's id that this client may have made.

        True when one was removed, False when there was none. Called only when no `enqueue` of the
        entry is under way; the kernel repeats it after `BackendUnavailable`.
        """

    @abstractmethod
    def queues(self) -> Promise[list[str]]:
        """The names of the queues under the root that have contenders, in any order.

        Also of those that this client may not read.
        """

    @abstractmethod
    def evict(self, contender: Contender) -> Promise[bool]:
        """Remove any client's contender, for operators; whether it was there."""

    @abstractmethod
    def verify(self, contender: Contender) -> Promise[None]:
        """Ask whether ``contender``, of any session, stands in its queue: else `Evicted`.

        The answer is the service's as a whole: not that of one server, which may have lost its
        majority without knowing it. The kernel repeats it after `BackendUnavailable`.
        """

    @abstractmethod
    def describe(self) -> Promise[ServiceInfo]:
        """Ask the service for its name, version and warnings. Works without a session."""

    @abstractmethod
    def close(self) -> Promise[None]:
        """End the session, unless it is shared, and the connection, unless it was given.

        Idempotent. Every pending future fails and no thread is left behind. It is done within the
        request timeout, whatever the service does.
        """
