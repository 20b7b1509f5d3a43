"""Latches: closed until they are counted down, then open for good."""

from __future__ import annotations

from typing import Any, Final

from coordlock.errors import NameConflict, WaitTimeout
from coordlock.kernel.access import Access
from coordlock.recipes.shared.exactly_once import ExactlyOnce
from coordlock.records.stored_record import Folder
from coordlock.runtime.deadline import Cancellation
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.settings import DEFAULT, Timeout

__all__ = ["AsyncLatch", "Latch"]


class _BaseLatch(ExactlyOnce):
    """What sync and async latches share."""

    _folder = Folder.LATCHES
    _kind = "latch"

    _instead = "pass its name and count instead, and make another object with a client there"

    def __init__(self, access: Access, name: str, count: int) -> None:
        if type(count) is not int or not 1 <= count < 2**31:
            raise ValueError(f"count must be an integer from 1 to 2**31 - 1, not {count!r}")
        super().__init__(access, name)
        #: How often it is counted down until it opens. The same for all clients.
        self.count: Final = count
        self._size = f" of {count}"

    def _check_kept(self, value: Any) -> None:
        count, left = value
        if not type(count) is type(left) is int:
            raise TypeError

    def _count_down(self) -> Steps[int]:
        """Count down by one, exactly once; returns how many are left, 0 once it is open.

        Raises `NameConflict` if another client gave it another count, and what `Counter.add`
        raises.
        """

        def count(value: Any) -> tuple[Any, int]:
            left = max(self._left_of(value) - 1, 0)
            return [self.count, left], left

        return (yield from self._change(count))

    def _remaining(self) -> Steps[int]:
        """How many are left; 0 when it is open.

        Raises `NameConflict`, as `count_down`, and `BackendUnavailable`.
        """
        return self._left_of((yield from self._value()))

    def _wait(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Wait until it is open.

        ``timeout`` is in seconds, by default the client's; None waits for ever, and 0 looks once.
        ``cancellation`` ends the wait from elsewhere, with `WaitCancelled`. Raises `WaitTimeout`
        when the time is up, `NameConflict`, as `count_down`, `WaitUnavailable` if the service does
        not answer, and `BackendError` if the latch was counted down and its record is gone: it was
        deleted, or the service has lost its data.
        """

        def in_vain(value: Any, waited: float) -> WaitTimeout:
            down = self.count - self._left_of(value)
            problem = f"was counted down {down} of {self.count} times"
            return WaitTimeout(self.name, waited, kind="latch", problem=problem)

        yield from self._wait_until(
            lambda state: not self._left_of(state), timeout, in_vain, cancellation
        )

    def _left_of(self, value: Any) -> int:
        """How many are left in what the record keeps. Raises `NameConflict`."""
        count, left = (self.count, self.count) if value is None else value
        if count != self.count:
            raise NameConflict(self.name, f"a latch of {self.count}", f"a latch of {count}", "")
        remaining: int = left
        return remaining


class Latch(_BaseLatch):
    """A latch, which opens for good once it is counted down. Made by `Client`; reusable.

    As in::

        client.latch("imports", 3).count_down()  # each of three importers, when it is done
        client.latch("imports", 3).wait(timeout=600)  # whoever needs all of them
    """

    count_down = blocking(_BaseLatch._count_down)
    remaining = blocking(_BaseLatch._remaining)
    wait = blocking(_BaseLatch._wait)


class AsyncLatch(_BaseLatch):
    """A latch, which opens for good once it is counted down. Made by `AsyncClient`."""

    count_down = awaiting(_BaseLatch._count_down)
    remaining = awaiting(_BaseLatch._remaining)
    wait = awaiting(_BaseLatch._wait)
