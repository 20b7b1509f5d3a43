"""What acquiring returns: the token, the deadline, the loss signal and the release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from coordlock.errors import (
    BackendUnavailable,
    ClientClosed,
    CoordlockError,
    Evicted,
    LockLost,
    SessionLost,
    Unfenceable,
)
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Claim, Convertible, Mode, Permit
from coordlock.model.contender import Contender
from coordlock.runtime.clock import within
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.methods import awaiting, blocking
from coordlock.runtime.promise import Promise, all_of
from coordlock.runtime.resident import Resident
from coordlock.runtime.statement import EnteredByAsyncWith, EnteredByWith
from coordlock.settings import DEFAULT, Duration, Timeout, timeout_of
from coordlock.settings.settings import max_hold_of

if TYPE_CHECKING:
    import asyncio

    from coordlock.backend import Backend, Listing, Operation, Stored, Written
    from coordlock.kernel import conversion
    from coordlock.kernel.conversion import Conversions
    from coordlock.locks import asking, kept_value, loss_signal, sequencer, transaction
    from coordlock.locks.asking import AskedSignal, AsyncAskedSignal, Requests
    from coordlock.locks.kept_value import KeptValue
    from coordlock.locks.loss_signal import AsyncLossSignal, GrantEnd, LossSignal
    from coordlock.locks.transaction import AsyncTransaction, Transaction
else:
    asyncio = Lazily("asyncio")
    conversion = Lazily("coordlock.kernel.conversion")
    asking = Lazily("coordlock.locks.asking")
    kept_value = Lazily("coordlock.locks.kept_value")
    loss_signal = Lazily("coordlock.locks.loss_signal")
    sequencer = Lazily("coordlock.locks.sequencer")
    transaction = Lazily("coordlock.locks.transaction")

__all__ = ["AsyncGrant", "BaseGrant", "Grant", "GrantState"]

T = TypeVar("T")


class GrantState(Enum):
    """Where a grant stands. It goes from HELD to SUSPECT and back, and never back from the rest."""

    HELD = "held"  #: the service acknowledged the session's last heartbeat in time
    SUSPECT = "suspect"  #: disconnected or late, but the deadline has not been reached
    LOST = "lost"  #: another client may hold the lock
    RELEASED = "released"  #: `release` was called while it was held


class BaseGrant(Resident, shown="Grant"):
    """What sync and async grants share: everything that needs no waiting."""

    _instead = "pass its token on"
    #: Of a grant that was converted.
    _conversions: Conversions | None = None
    #: Of a lock that keeps one.
    _kept: KeptValue | None = None
    #: Of a grant that was asked whether it was asked to end.
    _requests: Requests | None = None

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        #: The lock's name; of several locks, their names.
        self.name = ticket.name
        self._engine = engine
        self._ticket = ticket
        #: Whether a block was entered that releases it.
        self._is_entered = False
        #: Whether `release` was called, and so has told its caller of a loss.
        self._released = False
        self._end: GrantEnd | None = None
        self._scopes_in: dict[asyncio.AbstractEventLoop, set[Callable[[], None]]] = {}

    @property
    def claim(self) -> Claim:
        """The mode that is held, or the permit."""
        claim = self._ticket.entries[0].claim
        if not isinstance(claim, Convertible):
            return claim
        return claim.mode if self._conversions is None else self._conversions.mode

    @property
    def token(self) -> int:
        """The fencing token, 1 to 2**63 - 1: greater than that of all grants it waited for.

        Raises `Unfenceable` while the grant is converted to more than was acquired.
        """
        if (conversions := self._conversions) is not None:
            acquired, held = conversions.acquired, conversions.mode
            if acquired.joined(held) is not acquired:
                problem = (
                    f"was converted from {acquired.name} to {held.name}, and others had the lock "
                    "with newer tokens before that: a fence would refuse it. Use "
                    "grant.transaction(), or acquire the stronger mode at once"
                )
                raise Unfenceable(self.name, self._first_token, str(held), problem)
        return self._first_token

    @property
    def sequencer(self) -> str:
        """The token as a text that names the lock and its mode, such as ``orders:lock:42``.

        For other processes: give it to a server along with a request, which `Client.verify_token`
        then checks there. Raises `Unfenceable` as ``token`` does.
        """
        return sequencer.sequencer(self.name, self.claim, self.token)

    @property
    def _first_token(self) -> int:
        token = self._ticket.contenders[0].token
        assert token is not None
        return token

    @property
    def value(self) -> bytes | None:
        """The small value that belongs to the lock, where that was made with ``keeps_value=True``.

        What the last holder in mode EX or PW had set when it released; None where there was none,
        and where it was lost, or its process died, before that. A holder in one of those modes sets
        it, and the release writes it. Up to 65,536 bytes. Raises ValueError where the lock keeps no
        value, and at setting in another mode; to set it raises `LockLost` once the lock is lost or
        released, because nothing would write it any more.
        """
        return self._value_kept().value

    @value.setter
    def value(self, value: bytes | None) -> None:
        kept = self._value_kept()
        if not kept.is_writable:
            raise ValueError(f"the value of {self.name!r} is set by holders in mode EX or PW alone")
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"value must be bytes or None, not {type(value).__name__}")
        if value is not None and len(value) > kept_value.LONGEST:
            raise ValueError(
                f"a lock's value has up to {kept_value.LONGEST} bytes, not {len(value)}: keep what "
                "is larger elsewhere, and its address here"
            )
        self.check()
        kept.value = value

    def _value_kept(self) -> KeptValue:
        if self._kept is None:
            raise ValueError(
                f"the lock {self.name!r} keeps no value: make it with "
                f"client.lock({self.name!r}, keeps_value=True)"
            )
        return self._kept

    def _open_value(self, started: float, once: bool, lock_delay: float) -> Steps[None]:
        """Read the value of the lock, and note that it is open: the last step of acquiring it."""
        kept = kept_value.KeptValue(self._engine, self._ticket, lock_delay)
        try:
            yield from self._guarded(kept.begin(started, once))
        except LockLost:  # the caller never had the grant
            lost = self._ticket.lost
            raise (Evicted(self.name) if lost is None else copy(lost)) from None
        self._kept = kept

    @property
    def label(self) -> str:
        """What queues show of its owner beside host and pid: given to acquire, lock or client."""
        return self._ticket.entries[0].owner.label

    @property
    def _is_inherited(self) -> bool:
        return self._engine.inherited

    @property
    def state(self) -> GrantState:
        """The state now. Cheap: it looks at the clock and does not ask the service."""
        ticket = self._ticket
        # In a forked child it is the parent's.
        if self._engine.inherited or ticket.lost is not None or ticket.was_missing:
            return GrantState.LOST
        if ticket.is_leaving:
            return GrantState.RELEASED
        return GrantState.HELD if ticket.session.suspicion is None else GrantState.SUSPECT

    def remaining(self) -> float:
        """Seconds for which the lock is certainly held, if this process reads them at once.

        Heartbeats keep it above two thirds of the time-to-live, on ZooKeeper above a third, where
        one counts only when the leader must know of it. It runs down to 0 when they fail. Infinite
        on backends without leases; 0 when lost or released. No more than is left of ``max_hold``.
        """
        if self.state not in (GrantState.HELD, GrantState.SUSPECT):
            return 0.0
        limit, session = self._ticket.limit, self._ticket.session.remaining
        return session if limit is None else min(session, limit.remaining)

    def extend(self, seconds: Duration | None = None) -> None:
        """Let the lock be held for ``seconds`` from now, by default for its ``max_hold`` again.

        Before or after the end that was set so far, and also where there was none. Asks no service.
        Raises `LockLost` once the lock is lost or released, and ValueError for less than 0.1 s, and
        where no time is given and the lock has no ``max_hold``.
        """
        self.check()
        limit = self._ticket.limit
        if seconds is None and limit is None:
            raise ValueError(f"lock {self.name!r} has no max_hold: say for how long to extend it")
        allowed = max_hold_of(seconds)
        if limit is None:
            assert allowed is not None
            self._engine.limit(self._ticket, allowed)
        else:
            limit.extend(limit.seconds if allowed is None else allowed)
        self.check()

    def check(self) -> None:
        """Raise `LockLost` unless the lock is held, before a step that must not happen otherwise.

        It looks at the clock and at what the service has told so far, and asks nothing. So it sees
        every loss at the deadline, but an eviction only when the service tells of it, which may be
        after the successor's grant: up to half a second later for one in the first 0.2 s of a hold.
        And a process can be paused between this check and the step. Only the resource's own check
        of the token is proof against both. Raises `ForkedClient` in a forked child.
        """
        if self._engine.inherited:
            self._engine.check()
        match self.state:
            case GrantState.LOST:
                raise self._lost_error()
            case GrantState.RELEASED:
                raise LockLost(self.name, self._first_token, "it was released")

    def _loss(self) -> str | None:
        """Why the lock was lost, or None."""
        return self._lost_error().reason if self.state is GrantState.LOST else None

    def _listening(self) -> Requests:
        """The requests to end this grant, which are followed from the first call on."""
        with self._engine.lock:
            if self._requests is None:
                self._requests = asking.Requests(self._engine, self._ticket)
            return self._requests

    def _when_asked(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` at the request to end, in any thread, or now if it has come."""

        def asked(request: Promise[str | None]) -> None:
            if request.result() is not None:
                tell()

        self._listening().asked.add_done_callback(asked)

    def _waits(self) -> GrantEnd:
        """What signals of this grant wait with."""
        if self._end is None:
            self._end = loss_signal.GrantEnd(self._ticket.end)
        return self._end

    def _lost_error(self) -> LockLost:
        if self._engine.inherited:
            reason = "it is the parent's, which forked"
        else:
            lost = self._ticket.lost
            if lost is None:
                reason = "its contender had left the queue"
            else:  # not the whole text of these two, which would name the lock a second time
                reason = lost.reason if isinstance(lost, Evicted | LockLost) else str(lost)
        return LockLost(self.name, self._first_token, reason)

    def _enter(self) -> None:
        """Raise what `check` does, so that no body runs without the lock."""
        try:
            self.check()
        except BaseException:
            self._abandon()  # no body means no exit that would do it, after Ctrl-C neither
            raise
        if self._is_entered:
            raise RuntimeError(
                f"the grant of {self.name!r} is entered already, and is released when that block "
                "ends: do not enter it again inside"
            )
        self._is_entered = True

    def _abandon(self) -> None:
        """Withdraw, if that was not done, without waiting for the answer."""
        if not self._engine.inherited and self._frees():
            self._ticket.withdraw()

    def _frees(self) -> bool:
        """Whether the end of this grant is that of the lock: no other grant shares it."""
        return True

    def _release(self, timeout: Duration | None = None) -> Steps[bool]:
        """Release the lock; whether it was still held.

        The value of a lock that keeps one is written first; where that gets no answer in time, the
        lock is released and `BackendUnavailable` raised.

        Waits up to ``timeout`` seconds for the service's acknowledgement (default: the client's
        ``request_timeout``); the removal goes on in the background until it is certain, also when
        Ctrl-C or a cancellation ends this call. Called again, it repeats its answer. Raises
        `ForkedClient` in a forked child.
        """
        if self._engine.inherited:
            self._engine.check()
        seconds = timeout_of("release", timeout)
        if seconds is None:
            seconds = self._engine.settings.request_timeout
        if not self._frees():
            self._released = True
            return self.state is GrantState.RELEASED
        if self._kept is not None and not self._ticket.is_leaving:
            yield from self._close_value(self._kept, seconds)
        if not self._ticket.is_leaving:
            held = self._ticket.lost is None
            removal = self._ticket.withdraw()
            self._released = True
            yield within(self._engine.timers, removal, seconds if held else 0.0)
        self._released = True
        return self.state is GrantState.RELEASED

    def _close_value(self, kept: KeptValue, seconds: float) -> Steps[None]:
        """Write the value before the lock is released; release it if that fails."""
        is_written = False
        try:
            yield self._engine.deadline(seconds)
            if self._ticket.lost is None:
                yield from self._guarded(kept.close())
            is_written = True
        except LockLost:
            is_written = True  # as the release will tell
        except DeadlineReached as late:
            silent = self._engine.silent(late)
            reason = f"{silent.reason}; the lock is released, and its value may not be written"
            raise BackendUnavailable(silent.service, reason) from late.__cause__
        finally:
            if not is_written:
                self._released = True
                self._ticket.withdraw()
        yield None

    def _verify(self) -> Steps[None]:
        """Ask the service whether the lock is held; raise `LockLost` if not.

        For a step that matters more than a round trip: `check` knows what this process was told,
        which may be late after an eviction. The answer is the service's as a whole, by consensus,
        and was true at a moment during this call. Raises `BackendUnavailable` when none came within
        the client's ``request_timeout``, `AuthenticationFailed`, `ForkedClient`.
        """
        engine, mine = self._engine, self._ticket.contenders

        def verify() -> Promise[Written]:
            self.check()
            return engine.backend.write((), mine)

        yield from self._guarded(engine.ask(verify))
        self.check()

    def _convert(self, mode: Mode, timeout: Timeout = DEFAULT) -> Steps[None]:
        """Hold the lock in ``mode`` from now on, without giving up the place in its queue.

        For grants of a lock that was made with ``convertible=True``, or of an upgradeable one. It
        waits for all holders that conflict with ``mode``, and for waiters that came before this
        grant; those that come later wait for it. Nobody else has the lock in between in a mode that
        conflicts with that of now. For a mode that conflicts with less it does not wait.

        ``timeout`` (seconds, or such as ``"30s"``) bounds the call, by default the client's: None
        waits forever, 0 tries once. Raises `ConversionTimeout`, `ConversionDeadlock` where another
        holder converts, too, and each would wait for the other, `DeadlockDetected`, and
        `ConversionCancelled` where it would have to wait after a signal that `release_on_signals`
        has heard: the grant is held in its mode as before then. Raises `LockLost` once it is lost
        or released, ValueError for a grant or a mode that cannot be converted,
        `BackendUnavailable`, `AuthenticationFailed`, `ForkedClient`.
        """
        self.check()
        conversions = self._converting()
        mode = _real(mode)
        default = self._engine.settings.timeout
        seconds = timeout_of("convert", default if timeout is DEFAULT else timeout)
        if mode is not conversions.mode:
            yield from self._guarded(conversions.convert(mode, seconds))
        self.check()

    def _upgrade(self, timeout: Timeout = DEFAULT) -> Steps[None]:
        """Hold the lock exclusively from now on: ``convert(Mode.EX)``."""
        yield from self._convert(Mode.EX, timeout)

    def _downgrade(self, mode: Mode = Mode.PR) -> Steps[None]:
        """Hold the lock in ``mode``, shared with readers by default; waits for nobody.

        Those that now may hold it, too, are let in, as far as they stand before all others. The
        rest is as for `convert`. Raises ValueError for a mode that is not weaker than that of now,
        and `BackendUnavailable` when no answer came within the client's ``request_timeout``: it
        counts as weaker then, and the service learns of it later.
        """
        held = self.claim
        if isinstance(held, Mode) and held.joined(_real(mode)) is not held:
            raise ValueError(
                f"{mode!r} is not weaker than {held!r}, which is held: say convert({mode!r})"
            )
        yield from self._convert(mode, self._engine.settings.request_timeout)

    def _converting(self) -> Conversions:
        """The conversions of this grant. Raises ValueError where it cannot be converted."""
        if (conversions := self._conversions) is None:
            claim = self._ticket.entries[0].claim
            if len(self._ticket.entries) > 1:
                raise ValueError("a grant of several locks cannot be converted: acquire it anew")
            if isinstance(claim, Permit):
                raise ValueError(f"{self.name!r} is a semaphore, and has no modes to convert")
            if not isinstance(claim, Convertible):
                raise ValueError(
                    f"the grant of {self.name!r} cannot be converted: acquire it with "
                    f"client.lock({self.name!r}, mode={claim!r}, convertible=True), or with "
                    f"client.upgradeable_lock({self.name!r})"
                )
            with self._engine.lock:
                conversions = self._conversions
                if conversions is None:
                    made = conversion.Conversions(self._engine, self._ticket, self.check)
                    conversions = self._conversions = made
        return conversions

    def _when_lost(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` at the loss, in any thread, or now if it has come; not after a release."""

        def ended(end: Promise[CoordlockError | None]) -> None:
            if end.result() is not None:
                tell()

        self._ticket.end.add_done_callback(ended)

    def _read(self, key: str) -> Steps[Stored | None]:
        """What the service keeps under ``key``, an absolute path, or None.

        It was so at a moment at which the lock was held, and shows all that was written under it
        before. Only where the service keeps data. Raises `LockLost`,
        `InvalidKey`, `Unsupported`, `BackendUnavailable`, `AuthenticationFailed`, `ForkedClient`.
        """
        service, (me, *others) = self._guard(), self._ticket.contenders
        transaction.check_key(key, *self._writable)

        def fetch(contender: Contender) -> Promise[Listing]:
            self.check()
            return service.read(key, guard=contender)

        listing = yield from self._guarded(self._engine.ask(lambda: fetch(me)))
        if others:  # which were held at that moment, too, if they are now
            rest = self._engine.ask(lambda: all_of(map(fetch, others)))
            yield from self._guarded(rest)
        return listing.values.get(key)

    @property
    def _writable(self) -> tuple[str, list[str]]:
        """The root and the queues, where transactions must not write."""
        return transaction.root_of(self._engine), [one.queue for one in self._ticket.entries]

    def _commit(self, operations: Sequence[Operation]) -> Steps[None]:
        service, mine = self._guard(), self._ticket.contenders
        yield from self._guarded(self._send(lambda: service.write(operations, mine)))

    def _send(self, request: Callable[[], Promise[Written]]) -> Steps[None]:
        """Send ``request``, once."""
        self.check()
        yield from self._engine.send(request, "the transaction")

    def _guard(self) -> Backend:
        """The service, where it makes writes that a contender guards."""
        service = self._engine.backend
        service.require("data")
        return service

    def _guarded(self, steps: Steps[T]) -> Steps[T]:
        """The result of ``steps``, or `LockLost` when they find that the contender has gone.

        Then every grant of the session, or this one, is told at once. Otherwise only a watch or a
        heartbeat would tell.
        """
        try:
            return (yield from steps)
        except Evicted:
            self._ticket.vanished(self.name)
        except SessionLost as error:
            self._ticket.session.gone_with(error)
        except ClientClosed as error:
            self._ticket.lose(error)
        self.check()  # it may have been released meanwhile
        raise self._lost_error()

    def _chain(self, body: BaseException | None) -> None:
        """The lock was lost under ``body``: raise, or go under the body's own exception."""
        lost = self._lost_error()
        if body is None:
            raise lost
        if isinstance(body, LockLost) and (body.name, body.token) == (lost.name, lost.token):
            return
        _go_under(body, lost)

    def __del__(self) -> None:
        if self.__dict__.get("_released", True):
            return  # released, or never made
        # No state is asked for: it may end the session, and this may be any thread, at any step.
        engine, over = self._engine, self._ticket.end.done()
        if not (over or engine.closed or engine.inherited or sys.is_finalizing()):
            kind, name = type(self).__name__, self.name
            warnings.warn(
                f"{kind} {name!r} token={self._first_token} was dropped while it was held: the "
                "lock stays held until the client is closed",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        state = self.state.value
        return f"<{type(self).__name__} {self.name!r} token={self._first_token} {state}>"


def _real(mode: object) -> Mode:
    """``mode``, in which a lock can be held. Raises ValueError for something else."""
    if isinstance(mode, Mode) and mode is not Mode.NL:
        return mode
    modes = ", ".join(repr(one) for one in Mode if one is not Mode.NL)
    raise ValueError(f"mode must be one of {modes}, not {mode!r}")


def _raise_or_go_under(body: BaseException | None, error: CoordlockError) -> None:
    """The release has failed with ``error``: raise it, or go under the body's own exception."""
    if body is None:
        raise error
    _go_under(body, copy(error))  # without what is above it, which is the body's


def _go_under(error: BaseException, lost: CoordlockError) -> None:
    """Let ``lost`` be the first context of ``error``, and a note where no traceback shows that."""
    is_shown, seen = True, {id(error)}
    last = error
    while (before := last.__context__) is not None and id(before) not in seen:
        is_shown = is_shown and (not last.__suppress_context__ or last.__cause__ is before)
        seen.add(id(before))
        last = before
    if before is None:  # else they make a circle
        last.__context__ = lost
    if before is not None or last.__suppress_context__ or not is_shown:
        error.add_note(str(lost))


def _in_this_loop(callback: Callable[[T], object], argument: T) -> Callable[[], None]:
    """What calls ``callback(argument)`` in the running loop, from any thread."""
    loop = asyncio.get_running_loop()

    def schedule() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(callback, argument)

    return schedule


class Grant(EnteredByWith, BaseGrant):
    """A lock that is held. A context manager that releases it; in a forked child it does nothing.

    Any thread of the process may use it: a lock belongs to its grant, not to a thread. To enter one
    that was released or lost raises `LockLost`.
    """

    @property
    def lost(self) -> LossSignal:
        """The loss signal."""
        return loss_signal.LossSignal(self._loss, self._waits())

    def on_lost(self, callback: Callable[[Grant], object]) -> None:
        """Call ``callback(grant)`` once if the lock is lost, in a thread for such callbacks.

        It is called for a loss that has already happened, too, and not after a release. Its
        exceptions are logged.
        """
        engine = self._engine
        self._when_lost(lambda: engine.call_back(lambda: callback(self)))

    @property
    def asked(self) -> AskedSignal:
        """Set when another client asks that the lock be released: `Client.ask_to_release`.

        A word, and no more: the lock stays held. The first use begins to listen, so a request may
        show a moment later. Raises `Unsupported` where the backend keeps no data.
        """
        notes = self._listening()
        return asking.AskedSignal(lambda: notes.reason, notes.end)

    def on_asked(self, callback: Callable[[Grant], object]) -> None:
        """Call ``callback(grant)`` once when another client asks that the lock be released.

        In a thread for such callbacks. It is called for a request that has already come, too, and
        not after the end of the grant. Raises `Unsupported` where the backend keeps no data.
        """
        engine = self._engine
        self._when_asked(lambda: engine.call_back(lambda: callback(self)))

    release = blocking(BaseGrant._release)
    convert = blocking(BaseGrant._convert)
    upgrade = blocking(BaseGrant._upgrade)
    downgrade = blocking(BaseGrant._downgrade)
    verify = blocking(BaseGrant._verify)
    read = blocking(BaseGrant._read)

    def transaction(self) -> Transaction:
        """Writes to the service itself, which it makes only while this grant lives.

        As in::

            grant.transaction().put("/app/config", b"on").delete("/app/old").commit()

        No fence is safer: the service checks the grant's own contender in the same step. For grants
        of every kind, those of semaphores too. Raises `Unsupported` at once where the
        service keeps no data; its ``commit`` raises what else `read` does.
        """
        self._guard()  # where the backend keeps no data, that is to be said before any key is
        return transaction.Transaction(*self._writable, self._commit)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        has_lost = False
        try:
            has_lost = not (self._engine.inherited or self._released or self.release())
        except CoordlockError as error:
            _raise_or_go_under(body, error)
        finally:
            self._abandon()  # where Ctrl-C came before that: a block is left only once
        if has_lost:
            self._chain(body)


class AsyncGrant(EnteredByAsyncWith, BaseGrant):
    """A lock that is held. An async context manager that releases it.

    To enter one that was released or lost raises `LockLost`.
    """

    @property
    def lost(self) -> AsyncLossSignal:
        """The loss signal."""
        return loss_signal.AsyncLossSignal(self._loss, self._waits())

    def on_lost(self, callback: Callable[[AsyncGrant], object]) -> None:
        """Call ``callback(grant)`` once if the lock is lost, in the event loop of this call.

        It is called for a loss that has already happened, too, and not after a release.
        """
        self._when_lost(_in_this_loop(callback, self))

    @asynccontextmanager
    async def cancel_on_loss(self) -> AsyncIterator[Self]:
        """Cancel the body when the lock is lost, and raise `LockLost` in its place.

        As ``asyncio.timeout`` does it at a deadline: the body sees a ``CancelledError`` at its next
        ``await``; a cancellation that comes from elsewhere stays one.
        """
        task = asyncio.current_task()
        assert task is not None
        cancelled = False
        before = task.cancelling()

        def cancel() -> None:
            nonlocal cancelled
            cancelled = task.cancel()

        scopes = self._scopes()
        scopes.add(cancel)
        try:
            try:
                self.check()
                yield self
            finally:
                scopes.remove(cancel)
        except BaseException as error:
            ours = cancelled and task.uncancel() <= before
            if ours and isinstance(error, asyncio.CancelledError):
                raise self._lost_error() from error
            raise
        if cancelled:
            task.uncancel()
        if self.state is GrantState.LOST:
            raise self._lost_error()

    def _scopes(self) -> set[Callable[[], None]]:
        """What cancels the bodies in the running loop; a loss finds those that are in it then."""
        loop = asyncio.get_running_loop()
        if (scopes := self._scopes_in.get(loop)) is None:
            loss_signal.forget_closed(self._scopes_in)
            entered: set[Callable[[], None]] = set()
            scopes = self._scopes_in[loop] = entered

            def cancel_all(_: AsyncGrant) -> None:
                for cancel in tuple(entered):
                    cancel()

            # One for all, because what is called back is never forgotten before.
            self.on_lost(cancel_all)
        return scopes

    @property
    def asked(self) -> AsyncAskedSignal:
        """Set when another client asks that the lock be released: `Client.ask_to_release`.

        A word, and no more: the lock stays held. The first use begins to listen, so a request may
        show a moment later. Raises `Unsupported` where the backend keeps no data.
        """
        notes = self._listening()
        return asking.AsyncAskedSignal(lambda: notes.reason, notes.end)

    def on_asked(self, callback: Callable[[AsyncGrant], object]) -> None:
        """Call ``callback(grant)`` once when another client asks that the lock be released.

        In the event loop of this call. It is called for a request that has already come, too, and
        not after the end of the grant. Raises `Unsupported` where the backend keeps no data.
        """
        self._when_asked(_in_this_loop(callback, self))

    release = awaiting(BaseGrant._release)
    convert = awaiting(BaseGrant._convert)
    upgrade = awaiting(BaseGrant._upgrade)
    downgrade = awaiting(BaseGrant._downgrade)
    verify = awaiting(BaseGrant._verify)
    read = awaiting(BaseGrant._read)

    def transaction(self) -> AsyncTransaction:
        """Writes to the service itself, which it makes only while this grant lives.

        As in::

            await grant.transaction().put("/app/config", b"on").delete("/app/old").commit()

        No fence is safer: the service checks the grant's own contender in the same step. For grants
        of every kind, those of semaphores too. Raises `Unsupported` at once where the
        service keeps no data; its ``commit`` raises what else `read` does.
        """
        self._guard()  # where the backend keeps no data, that is to be said before any key is
        return transaction.AsyncTransaction(*self._writable, self._commit)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            has_lost = not (self._engine.inherited or self._released or await self.release())
        except CoordlockError as error:
            _raise_or_go_under(body, error)
        else:
            if has_lost:
                self._chain(body)
