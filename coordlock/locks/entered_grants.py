"""The grants that `with` blocks of one lock object have entered, and which one each leaves."""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar
from weakref import ref

from coordlock.runtime.log import Log
from coordlock.runtime.statement import Statement

__all__ = ["EnteredGrants"]

log = Log("coordlock")


class _Inheritable(Protocol):
    @property
    def _is_inherited(self) -> bool:
        """Whether it belongs to the process that this one was forked from."""


G = TypeVar("G", bound=_Inheritable)


class EnteredGrants(Generic[G]):
    """The grants that were entered and not left.

    A `with` statement leaves the grant that it entered with. A call of `__exit__` by hand leaves
    the one grant that was entered by hand. If there are several, it does not tell which: it might
    release the lock under another body. So all are held until as many bodies have left.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        #: In the order in which they were entered, by the identity of the grant.
        self._entered: dict[int, tuple[G, ref[Statement] | None]] = {}
        self._waiting = 0  # how many were left by hand and are not released yet
        # Reentrant, because the garbage collector may close a generator in here.
        self._mutex = threading.RLock()

    def enter(self, grant: G, statement: ref[Statement] | None) -> None:
        """Note that ``statement`` has entered with ``grant``; None for a call by hand."""
        self._entered[id(grant)] = grant, statement

    def leave(self, grant: G | None) -> list[G]:
        """The grants to release now: ``grant``, with which the statement that ends has entered.

        Without one, for a call by hand: all that were entered by hand, or nothing yet. A forked
        child releases none of its parent's. Raises RuntimeError if no body was entered.
        """
        if grant is not None and self._entered.pop(id(grant), None) is not None:
            return [grant]
        with self._mutex:
            if self._forget_inherited() and not self._entered:
                return []
            leaving = self._by_hand()
            self._waiting += 1
            if self._waiting < len(leaving):
                log.warning(
                    "lock %r: __exit__ was called by hand, and does not tell which grant it ends: "
                    "all are held until the last body has left",
                    self._name,
                )
                return []
            self._waiting = 0
            return [one for one in leaving if self._entered.pop(id(one), None) is not None]

    def _forget_inherited(self) -> bool:
        """In a forked child, forget what its parent has entered; whether there was anything."""
        inherited = [key for key, (grant, _) in self._entered.items() if grant._is_inherited]
        for key in inherited:
            del self._entered[key]
        if inherited:
            self._waiting = 0
        return bool(inherited)

    def ambiguous(self, count: int) -> RuntimeError:
        """What the last of ``count`` bodies raises, beside the release of all."""
        return RuntimeError(
            f"lock {self._name!r} was entered by hand {count} times at once, so its grants were "
            "held until the last was left: write `with lock.acquire() as grant`, or enter and "
            "leave what acquire() gives"
        )

    def _by_hand(self) -> list[G]:
        """The grants that no statement will leave; all of them, if each has its statement."""
        entered = list(self._entered.values())
        if not entered:
            raise RuntimeError(f"lock {self._name!r} was left where it was not entered")
        by_hand = [grant for grant, statement in entered if statement is None or not statement()]
        return by_hand or [grant for grant, _ in entered]
