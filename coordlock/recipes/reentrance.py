"""Locks that their owner acquires again: counted in the client, without the service."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Final

from coordlock.errors import LockLost, NotAcquired
from coordlock.grant import AsyncGrant, BaseGrant, Grant, GrantState
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.runtime.caller import Caller, described, this_caller
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.driver import Steps

__all__ = ["AsyncReentrantGrant", "Attempt", "Hold", "Reentrance", "ReentrantGrant"]

#: A lock's name, and who owns it: a caller, or what was named.
_Key = tuple[str, Hashable]


class _Register:
    """What owners hold of one client's reentrant locks, and which calls acquire for them."""

    def __init__(self) -> None:
        #: Grants keep theirs, and tickets until their end: what was lost and dropped is forgotten.
        self.holds: Final[weakref.WeakValueDictionary[_Key, Hold]] = weakref.WeakValueDictionary()
        self.attempts: Final[dict[_Key, list[Attempt]]] = {}


class Hold:
    """A ticket, and the grants of one owner that share it. The last to be released withdraws it."""

    def __init__(
        self, engine: Engine, ticket: Ticket, key: _Key, register: _Register, caller: Caller
    ) -> None:
        self.ticket: Final = ticket
        self.engine: Final = engine
        self.caller: Final = caller
        self._key = key
        self._register = register
        #: The identities of the grants that are not released, and of the calls that will have one.
        #: Changed under the engine's lock, so that each change may be made twice: Ctrl-C may have
        #: come after the first.
        self._parts: set[int] = set()
        self._is_over = False

    def begin(self) -> None:
        """Let its owner, and whom the caller starts, know of it."""
        self._register.holds[self._key] = self
        self.ticket.end.add_done_callback(lambda _: self)  # keeps it until then
        _inherited.set((*_visible_holds().values(), weakref.ref(self)))

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._key[0]

    @property
    def is_over(self) -> bool:
        """Whether its last grant was released."""
        return self._is_over

    def has(self, part: BaseGrant | Attempt) -> bool:
        """Whether ``part`` is of it, and not released."""
        return id(part) in self._parts

    def enter(self, part: BaseGrant | Attempt) -> None:
        """Take ``part`` in, while another one is in it or its owner has just been granted."""
        with self.engine.lock:
            self._parts.add(id(part))

    def leave(self, part: BaseGrant | Attempt) -> bool:
        """Let ``part`` go; whether none is left."""
        with self.engine.lock:
            self._parts.discard(id(part))
            if not self._parts:
                self._is_over = True
                if self._register.holds.get(self._key) is self:
                    del self._register.holds[self._key]
            return not self._parts

    def check(self, mode: Mode) -> None:
        """Raise what keeps its owner from another grant, in ``mode``: LockLost or ValueError."""
        held, lost = self.ticket.entries[0].claim, self.ticket.lost
        if lost is not None:
            token = self.ticket.contenders[0].token or 0
            raise LockLost(self.name, token, getattr(lost, "reason", str(lost)))
        if not isinstance(held, Mode) or held.joined(mode) is not held:
            raise ValueError(
                f"lock {self.name!r} is held as {held}, which does not contain {mode}: acquire the "
                "stronger mode first"
            )


#: The holds of this task or thread, and of those that it was started by.
_inherited: Final[ContextVar[tuple[weakref.ref[Hold], ...]]] = ContextVar(
    "coordlock_holds", default=()
)


def _visible_holds() -> dict[Hold, weakref.ref[Hold]]:
    found = ((reference(), reference) for reference in _inherited.get())
    return {hold: reference for hold, reference in found if hold is not None and not hold.is_over}


class Attempt:
    """One call that acquires a reentrant lock.

    It stands in the queue for itself, so it has its place whatever becomes of others. When another
    call of the same owner is granted first, it shares that hold, and its wait is ended.
    """

    #: Whether there is nothing to end.
    _is_over = True

    def __init__(
        self, owner: Reentrance, engine: Engine, name: str, mode: Mode, max_hold: float | None
    ) -> None:
        caller = this_caller()
        self._key = name, owner.of(caller)
        self._engine = engine
        self._mode = mode
        self._max_hold = max_hold
        self._caller = caller
        self._register = engine.share(_Register, _Register)
        self._given: Cancellation | None = None
        #: Ends the wait in the queue; None for a thread or a task, which makes one call at a time.
        self._cancellation: Final = Cancellation() if owner.is_named else None
        #: What the owner holds, with this call among its parts, once it does.
        self._hold: Hold | None = None

    def steps(
        self,
        given: Cancellation | None,
        acquisition: Callable[[Cancellation | None], Steps[Ticket]],
    ) -> Steps[Hold]:
        """What the owner holds: by now, or by ``acquisition``. To be followed by `end`.

        ``given`` ends the wait. Raises what ``acquisition`` does; `LockLost` for what was lost and
        is not released yet, ValueError for a mode that is not contained in the one that is held,
        and RuntimeError where the lock is held by the task or the thread that has started this one.
        """
        self._engine.check()
        self._is_over = False
        self._given = given
        ticket: Ticket | None = None
        try:
            if not self._begin():
                if self._cancellation is not None and given is not None:
                    given.add(self._look)
                    self._look()
                ticket = yield from acquisition(self._cancellation or given)
                self._granted(ticket)
        except NotAcquired:
            if self._hold is None or self._hold.is_over:
                raise
        except BaseException:
            if ticket is not None and self._hold is None:
                ticket.withdraw()  # Ctrl-C
            raise
        finally:
            if self._cancellation is not None and given is not None:
                given.discard(self._look)
        assert self._hold is not None
        self._hold.check(self._mode)
        return self._hold

    def _begin(self) -> bool:
        """Whether the owner holds the lock by now; else it is known that this call acquires it."""
        with self._engine.lock:
            hold = self._register.holds.get(self._key)
            if hold is not None and not hold.is_over:
                self._share(hold)
                return True
            if self._cancellation is None:
                self._refuse_inherited()
            else:
                self._register.attempts.setdefault(self._key, []).append(self)
            return False

    def _granted(self, ticket: Ticket) -> None:
        """``ticket`` was granted to this call: share it with the others of the same owner."""
        with self._engine.lock:
            if self._hold is None:
                hold = Hold(self._engine, ticket, self._key, self._register, self._caller)
                self._share(hold)
                hold.begin()
                for attempt in self._register.attempts.get(self._key, ()):
                    attempt._share(hold)
        if self._hold is not None and self._hold.ticket is not ticket:
            ticket.withdraw()  # another call was granted at the same time
        elif self._max_hold is not None:
            self._engine.limit(ticket, self._max_hold)

    def end(self) -> None:
        """The call has ended, with a grant that is among the parts of the hold, or without.

        May be called twice: Ctrl-C may have ended the first.
        """
        if self._cancellation is not None:
            self._withdraw()
        if self._hold is not None and self._hold.leave(self):
            self._hold.ticket.withdraw()
        self._is_over = True

    def _withdraw(self) -> None:
        """This call acquires the lock no longer."""
        with self._engine.lock:
            attempts = self._register.attempts.get(self._key, [])
            if self in attempts:
                attempts.remove(self)
            if not attempts:
                self._register.attempts.pop(self._key, None)

    def __del__(self) -> None:
        if not self._is_over and not self._engine.inherited:
            self.end()  # Ctrl-C has kept the call from it

    def _share(self, hold: Hold) -> None:
        self._hold = hold
        hold.enter(self)
        if self._cancellation is not None:
            self._cancellation.cancel("its owner holds the lock")

    def _look(self, _: object = None) -> None:
        """End the wait, if what was given says so."""
        given, mine = self._given, self._cancellation
        if mine is not None and given is not None and given.reason is not None:
            mine.cancel(given.reason)

    def _refuse_inherited(self) -> None:
        name = self._key[0]
        for hold in _visible_holds():
            if hold.name != name or hold.caller == self._caller or hold.ticket.end.done():
                continue
            if hold.engine.is_of(self._engine) and not hold.engine.inherited:
                raise RuntimeError(
                    f"lock {name!r} is held {described(hold.caller, self._caller)}, which has "
                    "started this one, and what a task or a thread holds is not inherited: acquire "
                    "it after that is released, or give both the same owner=..."
                )


class Reentrance:
    """Who counts as the owner of a reentrant lock: the thread or the task, or who is named."""

    def __init__(self, owner: Hashable | None = None) -> None:
        self._named = owner

    @property
    def is_named(self) -> bool:
        """Whether an owner was named."""
        return self._named is not None

    def of(self, caller: Caller) -> Hashable:
        """Who owns what ``caller`` acquires."""
        return caller if self._named is None else (self._named,)


class _Reentrant(BaseGrant, shown="ReentrantGrant"):
    """What sync and async grants of reentrant locks share."""

    def __init__(self, engine: Engine, hold: Hold) -> None:
        super().__init__(engine, hold.ticket)
        self._hold = hold

    @property
    def state(self) -> GrantState:
        """The state now. Cheap: it looks at the clock and does not ask the service."""
        state = super().state
        is_released = state is not GrantState.LOST and not self._hold.has(self)
        return GrantState.RELEASED if is_released else state

    def _frees(self) -> bool:
        return self._hold.leave(self)


class ReentrantGrant(_Reentrant, Grant):
    """A grant of a reentrant lock: it shares its token with its owner's others."""


class AsyncReentrantGrant(_Reentrant, AsyncGrant):
    """A grant of a reentrant lock, for asyncio: it shares its token with its owner's others."""
