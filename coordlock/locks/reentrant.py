"""Locks that their owner may acquire again: counted in the client, without the service.

Each acquire is an `_Attempt`. It becomes a part of its owner's `_Hold`, which has the ticket: at
once if the owner holds the lock, else when this attempt or another of the same owner is granted. A
release takes the part away again, and the last one withdraws the ticket.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeVar

from coordlock.errors import LockLost, WaitError
from coordlock.kernel.access import Access
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.locks.base_grant import BaseGrant, GrantState
from coordlock.locks.base_lock import AcquireOptions
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.lock import AwaitingLock, BlockingLock, NamedLock
from coordlock.model.claim import Mode
from coordlock.runtime.caller import Caller, described, this_caller
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking

__all__ = [
    "AsyncReentrantGrant",
    "AsyncReentrantLock",
    "ReentrantGrant",
    "ReentrantLock",
]

#: A lock's name, and its owner: a caller, or the one that ``owner=`` named, in a tuple.
_Key = tuple[str, Hashable]


class _ReentrantGrant(BaseGrant, shown="ReentrantGrant"):
    """What sync and async grants of reentrant locks share."""

    #: Whether it was released while other grants of its owner went on to hold the lock.
    _is_left_to_others = False

    def __init__(self, engine: Engine, hold: _Hold, part: _Attempt) -> None:
        super().__init__(engine, hold.ticket)
        self._hold = hold
        self._part = part

    @property
    def state(self) -> GrantState:
        """The state now. Cheap: it looks at the clock and does not ask the service."""
        state = super().state
        is_released = state is not GrantState.LOST and self._part not in self._hold.parts
        return GrantState.RELEASED if is_released else state

    def _loss(self) -> str | None:
        return None if self._is_left_to_others else super()._loss()

    def _holds_alone(self) -> bool:
        return self._hold.parts <= {self._part}

    def _let_go(self) -> bool:
        was_held = self._ticket.lost is None
        is_last = self._hold.leave(self._part)
        self._is_left_to_others = self._is_left_to_others or (was_held and not is_last)
        return is_last


class ReentrantGrant(_ReentrantGrant, Grant):
    """A grant of a reentrant lock; the grants of one owner share a token."""


class AsyncReentrantGrant(_ReentrantGrant, AsyncGrant):
    """A grant of a reentrant lock, for asyncio; the grants of one owner share a token."""


G = TypeVar("G", bound=ReentrantGrant | AsyncReentrantGrant)


class _ReentrantLock(NamedLock[G], shown="ReentrantLock"):
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
        """One more grant of what the owner holds, or the first one."""
        engine = self._access.engine
        attempt = _Attempt(self.owner, engine, self.name, self._mode)
        try:
            acquisition = partial(self._acquisition, seconds, cancellation)
            hold = yield from attempt.steps(acquisition, self.max_hold)
            grant: G = self._grant_kind(engine, hold, attempt)
            return grant
        except BaseException:
            attempt.end()
            raise


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


class _Attempt:
    """One call that acquires a reentrant lock; then the part that its grant has in the hold.

    It has a contender of its own, so it keeps its position when other calls give up. When another
    call of the same owner is granted first, this one shares that hold and stops waiting.
    """

    __slots__ = ("_caller", "_engine", "_hold", "_key", "_mode", "_register", "_stop")

    def __init__(self, owner: Hashable | None, engine: Engine, name: str, mode: Mode) -> None:
        self._caller: Final = this_caller()
        self._key: Final = (name, self._caller if owner is None else (owner,))
        self._engine: Final = engine
        self._mode: Final = mode
        self._register: Final = engine.share(_Register, _Register)
        #: Ends the wait in the queue; None for a thread or a task, which makes one call at a time.
        self._stop: Final = None if owner is None else Cancellation()
        #: What the owner holds, once it does.
        self._hold: _Hold | None = None

    def steps(
        self,
        acquisition: Callable[[Cancellation | None], Steps[Ticket]],
        max_hold: float | None,
    ) -> Steps[_Hold]:
        """What the owner holds, with this call as a part: already, or by ``acquisition``.

        Raises what ``acquisition`` does; `LockLost` for what was lost and is not released yet,
        ValueError for a mode that the held one does not contain, and RuntimeError if the task or
        the thread that has started this one holds the lock. After an error the caller calls `end`,
        because Ctrl-C may have kept this call from it.
        """
        self._engine.check()
        try:
            if not self._share_or_register():
                yield from self._wait(acquisition, max_hold)
            assert self._hold is not None
            self._hold.check(self._mode)
            return self._hold
        except BaseException:
            self.end()
            raise
        finally:
            self._unregister()

    def _wait(
        self,
        acquisition: Callable[[Cancellation | None], Steps[Ticket]],
        max_hold: float | None,
    ) -> Steps[None]:
        """Wait until this call has a hold: that of its own ticket, or another call's."""
        ticket: Ticket | None = None
        try:
            ticket = yield from acquisition(self._stop)
            self._granted(ticket, max_hold)
        except WaitError:
            if not self._shares:
                raise
        except BaseException:
            held = self._hold.ticket if self._hold is not None and self._shares else None
            if ticket is not None and ticket is not held:
                ticket.withdraw()  # Ctrl-C; `end` withdraws the one that is held
            raise

    @property
    def _shares(self) -> bool:
        return self._hold is not None and self in self._hold.parts

    def _share_or_register(self) -> bool:
        """Share what the owner holds, or note that this call acquires it; whether it shares."""
        with self._engine.lock:
            hold = self._register.holds.get(self._key)
            if hold is not None:
                hold.ticket.sweep()  # what a signal handler has struck is over, and not shared
                if not (hold.is_over or hold.ticket.is_leaving):
                    self._share(hold)
                    return True
            if self._stop is None:
                self._refuse_if_starter_holds()
            else:
                self._register.attempts.setdefault(self._key, []).append(self)
            return False

    def _granted(self, ticket: Ticket, max_hold: float | None) -> None:
        """``ticket`` was granted to this call: share it with the others of the same owner."""
        with self._engine.lock:
            if not self._shares:
                hold = _Hold(self._engine, ticket, self._key, self._register, self._caller)
                self._share(hold)
                hold.register()
                for attempt in self._register.attempts.get(self._key, ()):
                    attempt._share(hold)
        if self._hold is not None and self._hold.ticket is not ticket:
            ticket.withdraw()  # another call was granted at the same time
        elif max_hold is not None:
            self._engine.limit(ticket, max_hold)

    def end(self) -> None:
        """The call has ended without a grant. May be called twice."""
        self._unregister()
        if self._hold is not None and self._hold.leave(self):
            self._hold.ticket.withdraw()

    def _unregister(self) -> None:
        """Share no later grant of the owner's other calls."""
        if self._stop is None:
            return
        with self._engine.lock:
            attempts = self._register.attempts.get(self._key, [])
            if self in attempts:
                attempts.remove(self)
            if not attempts:
                self._register.attempts.pop(self._key, None)

    def _share(self, hold: _Hold) -> None:
        self._hold = hold
        if hold.parts - {self}:
            # The parts keep it, whatever becomes of the first.
            hold.ticket.call = hold.ticket.releasing = None
        hold.parts.add(self)
        if self._stop is not None:
            self._stop.cancel("its owner holds the lock")

    def _refuse_if_starter_holds(self) -> None:
        """Raise RuntimeError if a task or thread that has started this one holds the lock."""
        name = self._key[0]
        for hold in _holds_in_context():
            if hold.name != name or hold.caller == self._caller or hold.ticket.end.done():
                continue
            if hold.engine.is_of(self._engine) and not hold.engine.inherited:
                raise RuntimeError(
                    f"lock {name!r} is held {described(hold.caller, self._caller)}, which has "
                    "started this one. Locks are not inherited: acquire it after that release, or "
                    "give both locks the same owner=..."
                )


class _Register:
    """Of one client: what each owner holds, and the attempts that wait for each named owner."""

    def __init__(self) -> None:
        #: Grants keep their hold, and a ticket keeps it until its end. So a hold whose lock
        #: was lost and whose grants were dropped is forgotten.
        self.holds: Final[weakref.WeakValueDictionary[_Key, _Hold]] = weakref.WeakValueDictionary()
        self.attempts: Final[dict[_Key, list[_Attempt]]] = {}


class _Hold:
    """A ticket, and the calls of one owner that share it. The last to leave withdraws it."""

    def __init__(
        self, engine: Engine, ticket: Ticket, key: _Key, register: _Register, caller: Caller
    ) -> None:
        self.ticket: Final = ticket
        self.engine: Final = engine
        self.caller: Final = caller
        self.name: Final = key[0]
        self._key = key
        self._register = register
        #: The calls whose grants are being made, or are not released. A grant that was dropped
        #: keeps its part, and so the lock. Changed under the engine's lock; each change may be made
        #: twice, because Ctrl-C may have come after the first.
        self.parts: Final[set[_Attempt]] = set()
        self.is_over = False

    def register(self) -> None:
        """Let its owner's calls find it, and the tasks and threads that the caller starts."""
        self._register.holds[self._key] = self
        self.ticket.end.add_done_callback(lambda _: self)  # keeps it until then
        _context.set(tuple(map(weakref.ref, (*_holds_in_context(), self))))

    def leave(self, part: _Attempt) -> bool:
        """Let ``part`` go; whether none is left."""
        with self.engine.lock:
            self.parts.discard(part)
            if self.parts or self.is_over:
                return not self.parts
            if self._register.holds.get(self._key) is self:
                del self._register.holds[self._key]
            self.is_over = True
            return True

    def check(self, mode: Mode) -> None:
        """Raise what keeps its owner from another grant, in ``mode``: LockLost or ValueError."""
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


#: The holds of this task or thread, and of those that it was started by.
_context: Final[ContextVar[tuple[weakref.ref[_Hold], ...]]] = ContextVar(
    "coordlock_holds", default=()
)


def _holds_in_context() -> list[_Hold]:
    found = [reference() for reference in _context.get()]
    return [hold for hold in found if hold is not None and not hold.is_over]
