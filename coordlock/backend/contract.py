"""What a coordination service must offer, and what it may: one class for every service.

A backend is one client's connection to one service, with one session at a time. It keeps ordered,
ephemeral contenders, and small values where the service can. It knows nothing of locks: the kernel
decides about admission, deadlines, retries and loss, once for all services.

Rules for every method that returns a promise:

* It returns at once and never blocks, also without a connection.
* Any thread may complete the promise, also before the method returns.
* The promise fails with these errors alone:

  * `BackendUnavailable`: no answer came, so the outcome may be unknown. The kernel asks again.
  * `SessionLost`: the session has ended.
  * `AuthenticationFailed`: the service refuses the credentials, or they do not allow the request.
  * `Evicted`: the contender that the request needs is not in its queue.
  * `VersionMismatch`: what the request changes has another version than it expects.
  * `TooLarge`: the request exceeds a limit of the service, which did nothing.
  * `BackendError`: the service refused the request for any other reason.

* It may stay pending while the service is silent; the kernel bounds every wait. A request that
  can no longer be answered must fail, so that nothing leaks.

A service that keeps no order (`Capabilities.ordered`) fulfils the abstract methods alone, and its
`Backend.enqueue` is only ever called with ``unless_blocked``. Each other method belongs to the
capability that the comment above it names, and raises `Unsupported` unless a backend overrides it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, overload

from coordlock.backend.capabilities import Capabilities, Capability, reason_for
from coordlock.backend.data import Listing, Operation, Written
from coordlock.backend.observation import Observation, Queue
from coordlock.errors import Unsupported
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.model.handover import Departure
from coordlock.runtime.clock import Timers
from coordlock.runtime.promise import Promise, all_of, resolved
from coordlock.settings import Option, Settings

__all__ = ["Backend", "ServiceInfo", "SessionInfo", "SessionListener"]


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """An open session: its id in the service and its time-to-live in seconds, as granted.

    ``shared``: other code uses the session, too. So a client that closes withdraws its contenders
    one by one, and does not end the session. ``beat_gap``: heartbeats less than so many seconds
    apart prove less, because the service learns of them late.
    """

    id: str
    ttl: float
    shared: bool = False
    beat_gap: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """What `coordlock doctor` shows: the service, its versions, and what to know about them.

    ``notes`` say what is as it should be, where that is not a matter of course.
    """

    service: str
    version: str
    endpoints: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class SessionListener(Protocol):
    """What a backend reports to the kernel about its session, from any thread; they never block."""

    def suspect(self, reason: str) -> None:
        """The connection is gone; the session may still live."""

    def recovered(self) -> None:
        """The connection is back, with the same session: the kernel sends a heartbeat at once."""

    def lost(self, reason: str) -> None:
        """The service has reported that the session has ended."""


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
    #: The warning for a program that forks with an open connection, if that endangers the child.
    fork_warning: ClassVar[str] = ""

    @classmethod
    def require(cls, capability: Capability) -> None:
        """Raise `Unsupported`, with the reason, if the service lacks ``capability``."""
        if not getattr(cls.capabilities, capability):
            raise cls._without(capability)

    @classmethod
    def _without(cls, capability: Capability) -> Unsupported:
        return Unsupported(f"the {cls.scheme} backend {reason_for(capability)}")

    # Every service

    @classmethod
    @abstractmethod
    def configure(cls, settings: Settings, client: object | None = None, *, timers: Timers) -> Self:
        """A backend for ``settings``; no I/O happens before `open`.

        ``client`` is an existing client of the service's own library whose connection is to be
        used. The backend takes the time from ``timers`` alone, which tests replace. Raises
        `ConfigurationError` for what this backend cannot do.
        """

    @abstractmethod
    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        """Connect where needed and start a new session, which ``listener`` follows until its end.

        Called again after a session was lost, never while one lives.
        """

    @abstractmethod
    def heartbeat(self) -> Promise[float]:
        """Extend the session, by one request; the seconds that the service has certainly granted.

        The kernel counts them from the moment of this call.
        """

    @abstractmethod
    def describe(self) -> Promise[ServiceInfo]:
        """Ask the service for its name, version and warnings. Works without a session."""

    @abstractmethod
    def close(self) -> Promise[None]:
        """End the session, unless it is shared, and the connection, unless it was given.

        Idempotent. Every pending promise fails and no thread is left behind. It is done within the
        request timeout, whatever the service does.
        """

    @abstractmethod
    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        """Add a contender for each entry at the end of its queue, and read the queues.

        One entry or more, each of another queue. All are added in one step, or none. The snapshots
        come in the order of ``entries``, and need not be of one moment. Each holds the entry's
        contender, with its token, and at least the ``entry.claim.window`` nearest before it. One
        entry takes one round trip. Several need the capability ``sets``.

        Idempotent by the entries' ids: called again after its reply was lost, it finds the
        contenders of the CURRENT session, if all of them are in their queues, instead of adding
        others. If a set is not complete, as after an eviction, it removes the rest and adds the set
        anew. No contender that was added before is ever one of the new set.

        Single entries and sets have one order over all queues: of two sets that meet in several
        queues, one is before the other in all of them. So contenders that wait only for earlier
        ones never wait in a cycle. The tokens of a set may be equal.

        Fails with `BackendError` for more entries than the service takes in one step, and says how
        many it takes; then none was added.

        With ``unless_blocked``, add them only if nothing is in the way of any of them, by
        `coordlock.model.admission.is_blocked`: waiters are in the way, as holders are. Otherwise
        change nothing. Then no snapshot shows any of them, and each lists what is in the way in its
        queue. A service that can't do this in one step reads first, and adds them only while the
        session is still the one of the call. Other contenders may have come between the two steps:
        the snapshots, not this option, tell whether the lock is granted.
        """

    @abstractmethod
    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        """Remove every contender with the entries' ids that this client may have made.

        In one request if all are there. A contender that has left already keeps no other from being
        removed. True when each entry had one, False when any had none. Called only when no
        `enqueue` of the entries is under way. The kernel repeats it after `BackendUnavailable`, and
        then does not rely on the answer: the first request may have removed them.
        """

    # Capability "ordered"

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        """Read a queue: all of it, or the part that ends with ``upto``. Empty when there is none.

        Given ``upto``, the snapshot lists at least the ``upto.claim.window`` nearest before it, and
        ``upto`` itself exactly if it is still in the queue. Without it, nothing is omitted. With
        ``owners``, every contender comes with its token and owner and the read is linearizable.

        With ``conflicting``, given ``upto``, every contender before it whose claim conflicts with
        its own is listed, and the others do not count as omitted: if thousands share a lock, the
        service reads few of them.
        """
        raise self._without("ordered")

    def snapshots(self, queues: Sequence[str]) -> Promise[tuple[Snapshot, ...]]:
        """Read all of up to some hundred ``queues``, with owners, each at a moment of its own."""
        return all_of([self.snapshot(queue, owners=True) for queue in queues])

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        """Call ``on_departure`` once, when ``contender`` has left after ``revision``.

        At once, when it has left already. Never before it has left, and not at all after the
        session ended. A watch survives reconnects. Returns a function that cancels the watch, and
        is idempotent. All watches of a contender share one watch in the service.

        With ``changes``, also when the contender has published another value than that at
        ``contender.version``; this needs the capability ``publishing``. Other watches report
        no publications.

        ``waiters`` are the contenders of this session that wait for ``contender``, are granted
        together, and are watched, too. The `Departure` says what they may conclude. It is
        ``UNORDERED`` in doubt, without ``waiters``, and with ``changes``: then the kernel reads
        their queues. It is ``IN_ORDER`` only if the departure of each of ``waiters``, had it come
        before, would have been reported by now. Doubtful are watches that the service may not have
        yet, as after the connection broke; departures that a backend finds by looking at one
        contender after another; and those of several queues that the service reports in no order.
        It is ``FIRST`` if, besides, ``contender`` is known to have held the lock: none stood before
        it that conflicts with it.
        """
        raise self._without("ordered")

    def queues(self) -> Promise[list[str]]:
        """The names of the queues under the root that have contenders, in any order.

        Including queues that this client may not read.
        """
        raise self._without("ordered")

    def evict(self, contender: Contender) -> Promise[bool]:
        """Remove any client's contender, for operators; whether it was there."""
        raise self._without("ordered")

    # Capability "publishing"

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        """Set the value of an own contender from ``version`` to ``version + 1``, in its place.

        `enqueue` publishes ``entry.value``, version 1, in the step that adds the contender.
        Snapshots with ``owners``, and those of observations, carry ``value`` and ``version``. The
        claim of a convertible contender is what it publishes, so snapshots of every kind carry
        that, as it was at that moment or later. A value leaves with its contender.

        The contender keeps its place, token and owner, and this is no departure. Idempotent: called
        again after its reply was lost, it succeeds where the contender has this value at ``version
        + 1``. So a caller first brings one change to its end and then begins the next, and no
        change that arrives late undoes a newer one.

        Fails with `Evicted` when the contender is not in its queue, with `VersionMismatch`, whose
        key is the contender's, for another version, and with `BackendError` for a value that is too
        large. Then nothing was changed. The kernel repeats it after `BackendUnavailable`.
        """
        raise self._without("publishing")

    # Capability "data"
    #
    # Keys are absolute paths, which the caller has checked. ``where`` is a key, or a folder: a path
    # that ends with a slash, which holds all keys that have one part more. A folder exists as far
    # as it has keys. No key is a contender, so callers write outside of the root, or below it under
    # ``@``. Without guards, none of this needs a session.

    def read(self, where: str, *, guard: Contender | None = None) -> Promise[Listing]:
        """Read all that is kept at ``where``, all at one moment between this call and the answer.

        It shows each write that was acknowledged to any client before this call. The kernel repeats
        it after `BackendUnavailable`.

        With ``guard``, a contender of the own session and one key: at a moment at which the guard
        stands in its queue, else it fails with `Evicted`. That shows every write that was guarded
        by a contender for whose departure the guard waited, and all of the own that were
        acknowledged.
        """
        raise self._without("data")

    def names(self, folder: str, first: int | None = None, split: str = "") -> Promise[list[str]]:
        """The names of the keys in ``folder``, in the order of code points.

        Of those before ``split`` come the ``first``, and of those from it on, too; None for all.
        Each key of the folder must have been written once, and none may be a folder itself. The
        names show each write that was acknowledged to any client before this call. The kernel
        repeats it after `BackendUnavailable`.
        """
        raise self._without("data")

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[Written]:
        """Do all of ``operations``, or nothing.

        Every `Expect` is about the state before, wherever it stands; the others come in any order,
        no two of them with the same key. Every one of ``guards``, contenders of any session, must
        stand in its queue in that same step. A write under way while a guard leaves is done before
        the guard has left, or fails with `Evicted`.

        What a `Read` finds is as of that step, or of a moment between it and the answer, and no
        `Read` is older than those before it. It shows each write that was acknowledged to any
        client before this call.

        Fails with `Evicted` for a guard that is not there, with `VersionMismatch` for an unmet
        `Expect`, and with `BackendError` for what the service does not take, such as too much data;
        then nothing was done. Fails with `BackendUnavailable` when the outcome is unknown: it may
        have been done, or may be yet. Neither the kernel nor a library below may repeat it unless
        it certainly did nothing: the caller finds out, by what it expects and reads.

        Without a `Put` or a `Delete` it changes nothing, and may be repeated. Without operations it
        only asks whether the guards stand in their queues: every ordered service can do that. The
        answer is the service's as a whole: not that of one server, which may have lost its majority
        without knowing it.
        """
        raise self._without("data")

    def service_time(self) -> Promise[float | None]:
        """The service's own clock, in seconds since 1970; None where it can't be had.

        As it was at a moment during this call, or up to a second before. It may write to the
        service, so the caller has opened a session. Servers of one cluster may differ.
        """
        return resolved(None)

    # Services that are a database, which may be that of the program's data

    @classmethod
    def setup_source(cls) -> str:
        """What `set_up` executes, for people."""
        raise Unsupported(f"{cls.scheme}:// needs no setup")

    @classmethod
    def set_up(
        cls, settings: Settings, *, max_ttl: float | None = None, restored: bool = False
    ) -> bool:
        """Make in the service what clients need, for ``coordlock setup``; False if it is there.

        ``max_ttl`` is the longest time-to-live to allow; None keeps what is set. ``restored`` says
        that the data is from a backup. Raises `BackendError`.
        """
        raise Unsupported(f"{cls.scheme}:// needs no setup")

    def guard(
        self,
        connection: Any,
        contenders: Sequence[Contender],
        seconds: float,
        *,
        removes: bool,
        awaits: bool,
    ) -> Any:
        """Ask in the program's own transaction on ``connection``; the answer.

        With ``awaits``, ``connection`` is one for asyncio, and the answer an awaitable. Until the
        transaction ends, ``contenders`` of one session stay in their queues, also if that session
        ends. With ``removes``, they leave with its commit. The server ends a transaction that is
        idle for ``seconds``. The answer is ``held``, ``lost`` for contenders that have left,
        ``snapshot`` if the transaction's snapshot is older than the contenders, or ``elsewhere`` in
        another database.
        """
        raise Unsupported(
            f"the {self.scheme} backend keeps its locks outside of your database, so a grant is no "
            "part of a transaction there: use a fence, such as coordlock.fencing.sql.SQLFence"
        )

    # Capabilities "ordered" for a queue, "data" for a key or a folder

    @overload
    def follow(self, place: Queue, news: Callable[[], None]) -> Observation[Snapshot]: ...
    @overload
    def follow(self, place: str, news: Callable[[], None]) -> Observation[Listing]: ...
    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        """Observe a queue, a key or a folder: see `Observation`.

        The snapshots of a queue omit no contender and carry tokens, owners and values. Each listing
        is complete and was so at one moment: a write of several keys shows as a whole. Needs no
        session, and asks the service for nothing once it has been cancelled.
        """
        raise self._without("data" if isinstance(place, str) else "ordered")

    def follow_news(self, key: str, news: Callable[[], None]) -> Observation[Listing]:
        """Observe that a key changes: as `follow`, but the listings need not show what it holds.

        So where the service says only that something has changed, nothing is read.
        """
        return self.follow(key, news)
