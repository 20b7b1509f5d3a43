"""Locks that their owner acquires again: counted in the client, without the service."""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar
from typing import Final

from coordlock.errors import LockLost
from coordlock.grant import AsyncGrant, BaseGrant, Grant, GrantState
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.runtime.caller import Caller, described

__all__ = ["AsyncReentrantGrant", "Hold", "Reentrance", "ReentrantGrant"]


class Hold:
    """A ticket, and the grants of one owner that share it. The last to be released withdraws it."""

    def __init__(self, engine: Engine, ticket: Ticket, owner: Hashable, caller: Caller) -> None:
        self.ticket: Final = ticket
        self.owner: Final = owner
        self.caller: Final = caller
        self._engine = engine
        #: The identities of the grants that are not released. Changed under the engine's lock, so
        #: that each change may be made twice: Ctrl-C may have come after the first.
        self._grants: set[int] = set()
        self._is_over = False

    @property
    def name(self) -> str:
        """The lock's name."""
        return self.ticket.entries[0].queue

    @property
    def is_over(self) -> bool:
        """Whether its last grant was released."""
        return self._is_over

    def has(self, grant: BaseGrant) -> bool:
        """Whether ``grant`` is of it, and not released."""
        return id(grant) in self._grants

    def enter(self, grant: BaseGrant) -> bool:
        """Take ``grant`` in; False where the last one has been released."""
        with self._engine.lock:
            if not self._is_over:
                self._grants.add(id(grant))
            return not self._is_over

    def leave(self, grant: BaseGrant) -> bool:
        """Let ``grant`` go; whether none is left."""
        with self._engine.lock:
            self._grants.discard(id(grant))
            if not self._grants:
                self._is_over = True
                if self._engine.reentrant.get((self.name, self.owner)) is self:
                    del self._engine.reentrant[self.name, self.owner]
            return not self._grants


#: The holds of this task, thread or program, and of those that it was started by.
_inherited: Final[ContextVar[tuple[Hold, ...]]] = ContextVar("coordlock_holds", default=())


class Reentrance:
    """Who counts as the owner of a reentrant lock: the thread or the task, or who is named."""

    def __init__(self, owner: Hashable | None = None) -> None:
        self._named = owner

    def again(self, engine: Engine, name: str, mode: Mode, caller: Caller) -> Hold | None:
        """What the caller holds of the lock ``name``, for another grant; None for nothing.

        Raises `LockLost` for what was lost and is not released yet, ValueError for a mode that is
        not contained in the one that is held, and RuntimeError where the lock is held by the task
        or the thread that has started this one.
        """
        engine.check()
        hold: Hold | None = engine.reentrant.get((name, self._owner(caller)))
        if hold is None or hold.is_over:
            self._refuse_inherited(name, caller)
            return None
        held, lost = hold.ticket.entries[0].claim, hold.ticket.lost
        if lost is not None:
            token = hold.ticket.contenders[0].token or 0
            raise LockLost(name, token, getattr(lost, "reason", str(lost)))
        if not isinstance(held, Mode) or held.joined(mode) is not held:
            raise ValueError(
                f"lock {name!r} is held as {held}, which does not contain {mode}: acquire the "
                "stronger mode first"
            )
        return hold

    def first(self, engine: Engine, ticket: Ticket, caller: Caller) -> Hold:
        """The caller's hold by ``ticket``, which was granted just now."""
        hold = Hold(engine, ticket, self._owner(caller), caller)
        engine.reentrant[hold.name, hold.owner] = hold
        alive = (one for one in _inherited.get() if not one.is_over)
        _inherited.set((*alive, hold))
        return hold

    def _owner(self, caller: Caller) -> Hashable:
        return caller if self._named is None else (self._named,)

    def _refuse_inherited(self, name: str, caller: Caller) -> None:
        for hold in _inherited.get():
            is_others = hold.caller is not caller and self._named is None
            if hold.name == name and not hold.is_over and is_others:
                raise RuntimeError(
                    f"lock {name!r} is held {described(hold.caller, caller)}, which has started "
                    "this one, and what a task or a thread holds is not inherited: acquire it "
                    "after that is released, or give both the same owner=..."
                )


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
