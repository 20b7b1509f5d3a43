"""What locks of every kind share: acquiring them, alone or for a block or a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar
from weakref import ref

from coordlock.errors import AcquireTimeout
from coordlock.kernel.access import Access
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.ticket import Ticket
from coordlock.locks.bodies import Bodies
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.claim import AnyClaim, Mode
from coordlock.runtime.caller import this_caller
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.driver import Steps
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.resident import Resident
from coordlock.runtime.statement import Statement, is_known
from coordlock.settings import DEFAULT, Default, Timeout, timeout_of
from coordlock.settings.settings import label_of, max_hold_of

if TYPE_CHECKING:
    from coordlock.locks import queue_view
else:
    queue_view = Lazily("coordlock.locks.queue_view")

__all__ = ["BaseLock", "runs_too_late"]

P = ParamSpec("P")
G = TypeVar("G", bound=Grant | AsyncGrant)
R = TypeVar("R")


class BaseLock(Resident, Generic[G], shown="Lock"):
    """What sync and async locks share: the queues, how to claim them, and the waits."""

    _instead = "pass its name on, and make it anew with a client there"

    #: Whether its grants have a value.
    _keeps_value = False
    #: For how many seconds the next holder waits after one that has not ended well.
    _lock_delay = 0.0

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        for name in ("__exit__", "__aexit__"):
            if name in vars(cls) and not is_known(vars(cls)[name]):
                raise TypeError(
                    f"{cls.__name__}.{name} cannot replace the lock's own, which knows the "
                    "statement that it ends: write a context manager that enters the lock"
                )

    def __init__(
        self,
        access: Access,
        name: str,
        claims: Mapping[str, AnyClaim],
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> None:
        access.engine.backend.require("ordered")
        self.name: Final = name
        #: Ends the waits for this lock; None for nothing that does.
        self.cancellation: Final = None if cancellation is None else _cancellation_of(cancellation)
        #: What queues show beside host and pid, in place of the client's; None for that.
        self.label: Final = label_of(label)
        #: For how many seconds a grant may be held before it is lost; None for no limit.
        self.max_hold: Final = (
            access.settings.max_hold if isinstance(max_hold, Default) else max_hold_of(max_hold)
        )
        self.timeout: Final = self._seconds(timeout, access.settings.timeout)
        self._access = access
        self._claims = claims
        self._bodies: Bodies[G] = Bodies(name)

    @staticmethod
    def _seconds(timeout: Timeout, default: float | None) -> float | None:
        given = default if isinstance(timeout, Default) else timeout
        return timeout_of("acquire", given)

    def _acquisition(
        self,
        seconds: float | None,
        label: str | None,
        cancellation: Cancellation | None,
        stop: Cancellation | None = None,
    ) -> Steps[Ticket]:
        """Acquire the queues, with what `acquire` was given or its defaults; the ticket.

        ``stop`` ends the wait, too.
        """
        engine, caller = self._access.engine, this_caller()
        ends = tuple([one for one in (cancellation, stop) if one is not None])
        return acquisition(engine, self._claims, seconds, caller, label, ends)

    def _make(self, ticket: Ticket) -> G:
        """The grant of ``ticket``."""
        raise NotImplementedError

    def _acquire(
        self,
        timeout: Timeout = DEFAULT,
        *,
        label: str | None = None,
        cancellation: Cancellation | None = None,
    ) -> Steps[G]:
        """Wait for the lock, first come first served; the grant.

        ``timeout`` (seconds, or such as ``"30s"``) bounds the whole call, and defaults to the
        lock's: None waits forever, 0 tries once. ``label`` is shown in the queue as the owner's,
        and ``cancellation`` ends the wait from elsewhere, each in place of the lock's. A call that
        Ctrl-C or the end of its task ends leaves the queue, too, and is never granted. Raises
        `NotAcquired` when it ends without a grant: `AcquireTimeout` for a busy lock,
        `AcquireUnavailable` for a silent service, `AcquireCancelled`, `DeadlockDetected` when it
        waits in a circle with others, `SessionLost` or `Evicted` when the place in the queue was
        lost. Raises `QueueMismatch` when the name is in use as another kind of lock,
        `AuthenticationFailed`, `ClientClosed` and `ForkedClient`.
        """
        cancellation = self.cancellation if cancellation is None else _cancellation_of(cancellation)
        seconds = self._seconds(timeout, self.timeout)
        label = self.label if label is None else label_of(label)
        return (yield from self._granted(seconds, label, cancellation))

    def _granted(
        self, seconds: float | None, label: str | None, cancellation: Cancellation | None
    ) -> Steps[G]:
        """The grant, with what `acquire` was given or its defaults."""
        started = self._access.engine.clock.now()
        ticket = yield from self._acquisition(seconds, label, cancellation)
        try:
            grant = self._make(ticket)
            if self._keeps_value:
                yield from grant._open_value(started, seconds == 0, self._lock_delay)
            if self.max_hold is not None:  # the caller holds it from here on
                self._access.engine.limit(ticket, self.max_hold)
            return grant
        except BaseException:
            ticket.withdraw()  # Ctrl-C: the caller never gets the grant
            raise

    def _try_acquire(
        self, *, label: str | None = None, cancellation: Cancellation | None = None
    ) -> Steps[G | None]:
        """The grant, or None when the lock is busy. Asks once and does not wait in the queue.

        Raises what `acquire` raises; `AcquireUnavailable` when no answer came within the client's
        ``request_timeout``.
        """
        try:
            return (yield from self._acquire(0, label=label, cancellation=cancellation))
        except AcquireTimeout:
            return None

    def _entered(self, grant: G, statement: ref[Statement] | None) -> G:
        """Note that ``statement`` has entered with ``grant``, or a call by hand."""
        grant._is_entered = True
        if statement is not None and (entering := statement()) is not None:
            entering.entered = grant
        self._bodies.enter(grant, statement)
        return grant

    def _locked(self) -> Steps[bool]:
        """Whether any client holds the lock, as the service says. Raises `BackendUnavailable`.

        It may be otherwise when this returns: `try_acquire` asks and takes it in one step.
        """
        for name in self._claims:
            members = yield from queue_view.queue_view(self._access.engine, name)
            if any(member.holding and member.claim is not Mode.NL for member in members):
                return True
        return False

    def owned(self) -> bool:
        """Whether this client holds the lock, by any of its lock objects. Asks no service.

        False in a forked child, for what its parent holds.
        """
        engine = self._access.engine
        return not engine.inherited and all(engine.held(name) for name in self._claims)

    def __repr__(self) -> str:
        claims = ", ".join(dict.fromkeys(map(str, self._claims.values())))
        return f"<{type(self).__name__} {self.name!r}: {claims} at {self._access.settings}>"


def _cancellation_of(value: object) -> Cancellation:
    """``value``, a `Cancellation`. Raises TypeError for something else."""
    if isinstance(value, Cancellation):
        return value
    raise TypeError(f"cancellation must be a coordlock.Cancellation, not {value!r}")


def runs_too_late(function: object, kind: str) -> TypeError:
    """The error for a function to decorate that makes ``kind``, which runs after the call."""
    what_to_do = (
        "decorate it with a lock of connect_async()"
        if kind == "a coroutine"
        else "take the lock inside of it"
    )
    return TypeError(
        f"{function!r} makes {kind}, whose body would run without the lock: {what_to_do}"
    )
