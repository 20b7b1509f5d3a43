"""Locks that their owner may acquire again: counted in the client, without the service.

What an owner holds is a `_Hold`: a ticket, and a part for each grant that is not released. The last
part to leave withdraws the ticket.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Final, TypeVar

from coordlock.errors import AcquireTimeout, CoordlockError, LockLost, WaitCancelled
from coordlock.kernel.access import Access
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.kernel.tickets import SWEEP_PAUSE_S
from coordlock.locks.base_grant import BaseGrant, GrantState
from coordlock.locks.blocks import Holding
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.lock import AcquireOptions, AwaitingLock, BlockingLock, NamedLock
from coordlock.model.claim import Mode
from coordlock.runtime.caller import this_caller
from coordlock.runtime.clock import within
from coordlock.runtime.deadline import Cancellation, Cancelled, DeadlineReached
from coordlock.runtime.driver import Call, Steps, awaited, awaiting, blocking, bounded
from coordlock.runtime.promise import Promise

__all__ = [
    "AsyncReentrantGrant",
    "AsyncReentrantLock",
    "ReentrantGrant",
    "ReentrantLock",
]


class _ReentrantGrant(BaseGrant):
    """What sync and async grants of reentrant locks share."""

    #: Whether it was released while other grants of its owner went on to hold the lock.
    _is_left_to_others = False

    def __init__(self, engine: Engine, hold: _Hold, part: object) -> None:
        assert hold.ticket is not None
        # First: where a signal handler raises from here on, the grant that is dropped looks at it.
        self._over: Promise[CoordlockError | None] = Promise()
        super().__init__(engine, hold.ticket)
        self._hold = hold
        self._part = part
        hold.ticket.end.add_done_callback(self._over.follow)

    @property
    def _end(self) -> Promise[CoordlockError | None]:
        return self._over

    @property
    def state(self) -> GrantState:
        """The state now. Cheap: it looks at the clock and does not ask the service."""
        state = super().state
        is_released = state is not GrantState.LOST and self._part not in self._hold.parts
        return GrantState.RELEASED if is_released else state

    def _loss(self) -> str | None:
        return None if self._is_left_to_others else super()._loss()

    def _hold_while(self, holder: object) -> None:
        self._hold.parts[self._part] = Holding(holder)

    def _let_go(self) -> bool:
        was_held = self._ticket.lost is None
        is_last = self._hold.leave(self._part)
        if was_held and not is_last:
            self._is_left_to_others = True
            self._ticket.end.remove_done_callback(self._over.follow)
            self._over.resolve(None)
        return is_last


class ReentrantGrant(_ReentrantGrant, Grant):
    """A grant of a reentrant lock; the grants of one owner share a token."""


class AsyncReentrantGrant(_ReentrantGrant, AsyncGrant):
    """A grant of a reentrant lock, for asyncio; the grants of one owner share a token."""


G = TypeVar("G", bound=ReentrantGrant | AsyncReentrantGrant)


class _ReentrantLock(NamedLock[G]):
    """What sync and async reentrant locks share."""

    _acquired_alone = (
        "is reentrant, and several locks at once are not: give its name, and acquire nothing of "
        "them twice"
    )

    def __init__(
        self,
        access: Access,
        name: str,
        mode: Mode,
        options: AcquireOptions | None = None,
        owner: Hashable | None = None,
    ) -> None:
        super().__init__(access, name, mode, options)
        self._mode = mode
        #: Who may acquire it again; None for the thread or the task that holds it.
        self.owner: Final = owner

    def _acquire_within(self, seconds: float | None, cancellation: Cancellation | None) -> Steps[G]:
        """One more grant of what the owner holds, or the first one.

        Raises also `LockLost` for what was lost and is not released yet, and ValueError for a mode
        that the held one does not contain.
        """
        engine, part = self._access.engine, object()
        engine.check()
        # Where a signal handler strikes before the `try`, the next call finds it by its part.
        hold, left = yield from self._hold(part, seconds, cancellation)
        try:
            if hold.ticket is None:
                ticket = yield from acquisition(
                    engine,
                    self._claims,
                    left,
                    this_caller(),
                    self.label,
                    cancellation,
                    max_hold=self.max_hold,
                )
                hold.granted(ticket)
            hold.check(self._mode)
            grant: G = self._grant_kind(engine, hold, part)
            return grant
        except BaseException:
            if hold.leave(part) and hold.ticket is not None:
                hold.ticket.withdraw()
            raise
        finally:
            hold.decided.resolve(None)

    def _hold(
        self, part: object, seconds: float | None, cancellation: Cancellation | None
    ) -> Steps[tuple[_Hold, float | None]]:
        """The owner's hold, with ``part``, and the seconds left to acquire it if it has no ticket.

        While another call of the same owner acquires it, this one waits for that.
        """
        engine = self._access.engine
        key = (self.name, this_caller() if self.owner is None else (self.owner,))
        holds: _Holds = engine.share(_Hold, weakref.WeakValueDictionary)
        started, left = engine.clock.now(), seconds
        call: Call = yield Call
        while True:
            with engine.lock:
                hold = holds.get(key)
                if hold is not None and hold.ticket is not None:
                    hold.ticket.sweep()  # what a signal handler has struck leaves its queue now
                if hold is None or hold.is_given_up:
                    hold = holds[key] = _Hold(engine, self.name)
                if hold.ticket is not None or not hold.parts:
                    hold.parts[part] = call
                    return hold, left
            try:
                if left == 0:
                    raise DeadlineReached
                # Not for longer than a sweep: the call that acquires it may have been struck.
                decided = within(engine.timers, hold.decided, SWEEP_PAUSE_S)
                yield from bounded(awaited(decided), engine.until(left, cancellation))
            except Cancelled as cancelled:
                raise WaitCancelled(self.name, str(cancelled)) from None
            except DeadlineReached:
                raise AcquireTimeout(self.name, engine.clock.now() - started) from None
            if seconds is not None:
                left = max(0.0, started + seconds - engine.clock.now())


class ReentrantLock(_ReentrantLock[ReentrantGrant], BlockingLock[ReentrantGrant]):
    """A lock that its owner, a thread or a named caller, may acquire again.

    The rest is as for `Lock`.
    """

    _grant_kind = ReentrantGrant

    contenders = blocking(NamedLock[ReentrantGrant]._contenders)


class AsyncReentrantLock(_ReentrantLock[AsyncReentrantGrant], AwaitingLock[AsyncReentrantGrant]):
    """A lock that its owner, a task or a named caller, may acquire again.

    The rest is as for `AsyncLock`.
    """

    _grant_kind = AsyncReentrantGrant

    contenders = awaiting(NamedLock[AsyncReentrantGrant]._contenders)


class _Hold(Call):
    """What one owner holds or acquires: a ticket, and a part for each grant that is not released.

    A grant that was dropped keeps its part, and so the lock.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine: Final = engine
        self.name: Final = name
        #: None until it is granted.
        self.ticket: Ticket | None = None
        #: Each with the call that acquires it, then with its block. Guarded by the engine's lock.
        self.parts: Final[dict[object, Call | None]] = {}
        #: Kept when the call that acquires it has ended.
        self.decided: Final[Promise[None]] = Promise()

    def granted(self, ticket: Ticket) -> None:
        """``ticket`` was granted: let its owner's calls share it."""
        self.ticket = ticket
        ticket.call = self
        ticket.end.add_done_callback(lambda _: setattr(ticket, "call", None))

    @property
    def is_given_up(self) -> bool:
        """Whether no part is left, without those whose block a signal handler has struck."""
        for part, call in [*self.parts.items()]:
            if call is not None and call.is_given_up:
                self.leave(part)
        return not self.parts

    def leave(self, part: object) -> bool:
        """Let ``part`` go; whether none is left."""
        with self.engine.lock:
            self.parts.pop(part, None)
            return not self.parts

    def check(self, mode: Mode) -> None:
        """Raise what keeps its owner from another grant, in ``mode``: LockLost or ValueError."""
        assert self.ticket is not None
        held, lost = self.ticket.entries[0].claim, self.ticket.lost
        if lost is not None:
            token = self.ticket.contenders[0].token or 0
            reason = getattr(lost, "reason", str(lost))
            raise LockLost(self.name, token, reason, kind=self.ticket.kind)
        if held is not mode and not (isinstance(held, Mode) and held.joined(mode) is held):
            raise ValueError(
                f"lock {self.name!r} is held as {held}, which does not contain {mode}: acquire the "
                "stronger mode first"
            )


#: What each owner of one client holds. Weak: the grants keep their hold, and the ticket does until
#: its end. So what was lost is forgotten once its grants were dropped.
_Holds = weakref.WeakValueDictionary[tuple[str, Hashable], _Hold]
