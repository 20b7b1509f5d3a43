"""The bodies that run under the grants of one lock object, and which grant each leaves."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar
from weakref import ref

from coordlock.log import Log
from coordlock.runtime.statement import Statement

__all__ = ["Bodies"]

log = Log("coordlock")

G = TypeVar("G")


class Bodies(Generic[G]):
    """The grants of the bodies that were entered and not left.

    A `with` statement leaves what it entered. Calls by hand leave the one grant there is. Where
    several were entered by hand, no call tells which it leaves: each might release the lock under
    another's body. So all are held until as many bodies have left.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._entered: list[tuple[G, ref[Statement] | None]] = []
        self._waiting = 0  # left by hand, without a release so far
        # Reentrant, because the garbage collector may close a generator in here.
        self._mutex = threading.RLock()

    def enter(self, grant: G, statement: ref[Statement] | None) -> G:
        """Note that ``statement`` has entered with ``grant``, or a call by hand."""
        with self._mutex:
            self._entered.append((grant, statement))
        return grant

    def leave(self, statement: Statement | None) -> list[G]:
        """The grants to release now: one, or none yet, or all of those entered by hand.

        Raises RuntimeError where nothing is entered.
        """
        with self._mutex:
            leaving = [one for one in self._entered if one[1] and one[1]() is statement]
            if statement is None or not leaving:
                leaving = self._by_hand()
                self._waiting += 1
                if self._waiting < len(leaving):
                    leaving = []
                else:
                    self._waiting = 0
            for one in leaving:
                self._entered.remove(one)
        if not leaving:
            log.warning("lock %r was left by hand, and is held until all have left", self._name)
        return [grant for grant, _ in leaving]

    def ambiguous(self, count: int) -> RuntimeError:
        """What the last of ``count`` bodies raises, beside the release of all."""
        return RuntimeError(
            f"lock {self._name!r} was entered by hand {count} times at once, so its grants were "
            "held until the last was left: write `with lock.acquire() as grant`, or enter and "
            "leave what acquire() gives"
        )

    def _by_hand(self) -> list[tuple[G, ref[Statement] | None]]:
        """The entered that no statement will leave; all, where each has its statement."""
        if not self._entered:
            raise RuntimeError(f"lock {self._name!r} was left where it was not entered")
        by_hand = [one for one in self._entered if one[1] is None or one[1]() is None]
        return by_hand or self._entered.copy()
