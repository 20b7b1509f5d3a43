"""What grants of every kind share: the token, the deadline, the state, the loss and the release."""

from __future__ import annotations

import sys
import warnings
from copy import copy
from enum import Enum
from typing import TypeVar

from coordlock.backend.capabilities import reason_for
from coordlock.errors import (
    ClientClosed,
    CoordlockError,
    Evicted,
    LockLost,
    SessionLost,
    Unsupported,
)
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import HAD_LEFT, Ticket
from coordlock.locks.blocks import Holding
from coordlock.model.claim import Claim, in_force
from coordlock.runtime.clock import within
from coordlock.runtime.driver import Steps
from coordlock.runtime.guards import Resident
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise
from coordlock.settings import DEFAULT, Duration, Timeout, max_hold_of, timeout_of

__all__ = ["BaseGrant", "GrantState", "no_token", "raise_or_chain"]

T = TypeVar("T")


def no_token(name: str, scheme: str) -> Unsupported:
    """The error for the token of a grant of ``name`` where the service has none."""
    return Unsupported(f"the grant of {name!r} has no token: {scheme} {reason_for('fenced')}")


class GrantState(Enum):
    """The state of a grant. HELD and SUSPECT alternate; the other states are final."""

    HELD = "held"  #: the service acknowledged the session's last heartbeat in time
    SUSPECT = "suspect"  #: disconnected or late, but the deadline has not been reached
    LOST = "lost"  #: another client may hold the lock
    RELEASED = "released"  #: `release` was called while it was held


class BaseGrant(Resident):
    """What grants of every kind share, sync and async: everything that needs no waiting."""

    _instead = "pass its token instead"

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        #: The lock's name; of several locks, their names.
        self.name = ticket.name
        self._engine = engine
        self._ticket = ticket
        #: Whether a block was entered that releases it.
        self._is_entered = False
        #: Whether `release` was called, and so has reported a loss to its caller.
        self._released = False

    @property
    def _end(self) -> Promise[CoordlockError | None]:
        """Kept when the grant ends: with the error of a loss, or with None."""
        return self._ticket.end

    @property
    def claim(self) -> Claim:
        """The mode that is held, or the permit."""
        return in_force(self._ticket.entries[0].claim)

    @property
    def token(self) -> int:
        """The fencing token, 1 to 2**63 - 1: greater than that of all grants it waited for.

        Raises `Unsupported` where the service has none.
        """
        if not self._engine.backend.capabilities.fenced:
            raise no_token(self.name, self._engine.settings.scheme)
        return self._first_token

    @property
    def _first_token(self) -> int:
        return self._ticket.contenders[0].token or 0

    @property
    def sequencer(self) -> str:
        """The token as a text that names the lock and its mode, such as ``orders:lock:42``.

        Send it to a server with a request; the server checks it with `Admin.verify_sequencer`.
        Raises what ``token`` raises.
        """
        from coordlock.model.sequencer import sequencer

        return sequencer(self.name, self.claim, self.token)

    @property
    def waited(self) -> float:
        """Seconds from the call that acquired it to the grant, also where it did not have to wait.

        Grants of one owner of a reentrant lock share that of the first.
        """
        return self._ticket.waited

    @property
    def label(self) -> str:
        """What queues show beside the owner's host and pid, as given to acquire, lock or client."""
        return self._ticket.entries[0].owner.label

    def _loss(self) -> str | None:
        """Why the lock is lost, or None; for state, signals and errors. Looks at the clock."""
        if self._engine.inherited:
            return "the parent process holds it, not this forked child"
        if (lost := self._ticket.lost) is not None:
            # The other errors' texts say which lock it was, as the text of `LockLost` does.
            return lost.reason if isinstance(lost, Evicted | LockLost) else str(lost)
        return None

    def _lost_error(self) -> LockLost:
        return self._lost_because(self._loss() or HAD_LEFT)

    def _lost_because(self, reason: str) -> LockLost:
        return LockLost(self.name, self._first_token, reason, kind=self._kind)

    @property
    def _kind(self) -> str:
        """What errors call it."""
        return self._ticket.kind

    @property
    def state(self) -> GrantState:
        """The state now. Cheap: it looks at the clock and does not ask the service."""
        if self._loss() is not None:
            return GrantState.LOST
        if self._ticket.is_leaving:
            return GrantState.RELEASED
        return GrantState.HELD if self._ticket.session.suspicion is None else GrantState.SUSPECT

    def remaining(self) -> float:
        """Seconds for which the lock is certainly held, counted from this call.

        Heartbeats keep it above two thirds of the time-to-live, on ZooKeeper above a third. When
        they fail, it runs down to 0. It is infinite on backends without leases, 0 once lost or
        released, and never more than is left of ``max_hold``.
        """
        if self.state not in (GrantState.HELD, GrantState.SUSPECT):
            return 0.0
        limit, session = self._ticket.limit, self._ticket.session.remaining
        return session if limit is None else min(session, limit.remaining)

    def extend(self, seconds: Duration | None = None) -> None:
        """Limit the hold to ``seconds`` from now, by default to its ``max_hold`` again.

        The new end may be before or after the old one, if there was one. It does not ask the
        service. Raises `LockLost` once the lock is lost or released, and ValueError for less than
        0.1 s, or without ``seconds`` for a lock without ``max_hold``.
        """
        self.check()
        limit = self._ticket.limit
        if seconds is None and limit is None:
            raise ValueError(
                f"{self._kind} {self.name!r} has no max_hold: say for how long to extend it"
            )
        allowed = max_hold_of(seconds)
        if limit is None:
            assert allowed is not None
            self._engine.tickets.limit(self._ticket, allowed)
        else:
            limit.extend(limit.seconds if allowed is None else allowed)
        self.check()

    def check(self) -> None:
        """Raise `LockLost` unless the lock is held. Call it before a step that needs the lock.

        It looks at the clock and at what the service has reported, and does not ask it. So it sees
        every loss at the deadline, but an eviction only when the service reports it. That may be
        after the next holder's grant: up to half a second later, in the first 0.2 s of a hold. A
        process can also be paused between this check and the step. Only a fence, the resource's own
        check of the token, protects from both. Raises `ClientClosed` in a forked child.
        """
        if self._engine.inherited:
            self._engine.check()
        match self.state:
            case GrantState.LOST:
                raise self._lost_error()
            case GrantState.RELEASED:
                raise self._lost_because("it was released")

    def _enter(self) -> None:
        """Raise what `check` does, so that no body runs without the lock."""
        if self._is_entered:
            self.check()
            raise RuntimeError(
                f"the grant of {self.name!r} is entered already, and is released when that block "
                "ends: do not enter it again inside"
            )
        try:
            self.check()
            self._is_entered = True
            self._hold_while(self)
        except BaseException:
            self._withdraw()  # no body runs, so no exit will release it
            raise

    def _hold_while(self, holder: object) -> None:
        """Let the sweep release it once ``holder``, on which its end depends, was dropped."""
        self._ticket.call = Holding(holder)

    def _withdraw(self) -> None:
        """Withdraw, if that was not done, without waiting for the answer."""
        if not (sys.is_finalizing() or self._engine.inherited) and self._let_go():
            self._ticket.withdraw()

    def _let_go(self) -> bool:
        """Hold the lock no longer; whether it is to be withdrawn, as no other grant shares it."""
        return True

    def _release(self, timeout: Timeout = DEFAULT) -> Steps[bool]:
        """Release the lock; returns whether it was still held.

        Waits up to ``timeout`` seconds for the service's acknowledgement (default: the client's
        ``request_timeout``; None: as long as it takes). The removal goes on in the background until
        it is certain, also when Ctrl-C or a cancellation ends this call. Another call waits for
        the same removal and gives the same answer. False, too, while the service refuses the
        removal, as where it lacks a right or its disk is full. Raises `ClientClosed` in a forked
        child.
        """
        if sys.is_finalizing():
            return False  # the client was closed before
        if self._engine.inherited:
            self._engine.check()
        seconds: float | None = self._engine.settings.request_timeout
        if timeout is not DEFAULT:
            seconds = timeout_of("release", timeout)
        if self._let_go():
            try:
                yield from self._leave_queue(seconds)
            finally:
                self._ticket.is_given_up = True  # wherever that was struck
        self._released = True
        return self._loss() is None and not self._ticket.is_refused

    def _leave_queue(self, seconds: float | None) -> Steps[None]:
        """Withdraw, and wait up to ``seconds`` for the answer unless the lock is lost anyway."""
        ticket = self._ticket
        if ticket.limit is not None:
            ticket.limit.look()
        ticket.withdraw()
        self._released = True
        if ticket.replied.done() or THREAD.must_not_wait:
            return
        is_lost = ticket.end.done() and ticket.end.result() is not None
        if not is_lost:
            yield within(self._engine.timers, ticket.replied, seconds)

    def _guarded(self, steps: Steps[T]) -> Steps[T]:
        """The result of ``steps``; raises `LockLost` when they find that the contender has gone.

        Then this grant, or every grant of the session, learns of the loss at once, and not only by
        a watch or a heartbeat.
        """
        try:
            return (yield from steps)
        except Evicted:
            self._ticket.removed_by_service(self.name)
        except SessionLost as error:
            self._ticket.session.gone_with(error)
        except ClientClosed as error:
            self._ticket.lose(error)
        self.check()  # it may have been released meanwhile
        raise self._lost_error()

    def _chain(self, body: BaseException | None, lost: LockLost | None = None) -> None:
        """The lock was lost during a block: raise that, or chain the block's exception to it."""
        if sys.is_finalizing():
            return  # the client was closed, and a generator that never ended is dropped
        if self._loss() is None:
            return  # still held: the service refuses the removal, which is logged and repeated
        lost = lost or self._lost_error()
        is_raised = isinstance(body, LockLost) and (body.name, body.token) == (
            lost.name,
            lost.token,
        )
        if not is_raised:
            raise_or_chain(lost, body)

    def __del__(self) -> None:
        if self.__dict__.get("_released", True):
            return  # released, or never made
        # No state is asked for: it may end the session, and this may be any thread, at any step.
        engine, over = self._engine, self._is_entered or self._end.done()
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


def raise_or_chain(error: CoordlockError, body: BaseException | None) -> None:
    """Raise ``error`` at the end of a block; if the block raised ``body``, show it with that.

    As the context of ``body``, and as a note where ``body`` has another context or hides its own.
    """
    if body is None:
        raise error
    if body.__context__ is not None or body.__suppress_context__:
        body.add_note(str(error))
    else:
        body.__context__ = copy(error)  # the copy has no context; that of ``error`` may be ``body``
