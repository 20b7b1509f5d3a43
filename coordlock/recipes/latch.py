"""Latches: closed until they were counted down, and open for good from then on."""

from __future__ import annotations

from typing import Any, Final

from coordlock.backend import Listing, data
from coordlock.errors import BarrierTimeout, QueueMismatch
from coordlock.kernel.access import Access
from coordlock.model.names import check_name
from coordlock.recipes.shared.record import Record
from coordlock.recipes.shared.waiting import waiting_until
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.runtime.resident import Resident
from coordlock.settings import Duration, timeout_of

__all__ = ["FOLDER", "AsyncLatch", "Latch"]

#: Where all of them are kept.
FOLDER: Final = "@latches"


class _BaseLatch(Resident, shown="Latch"):
    """What sync and async latches share."""

    _instead = "pass its name and its count on, and make it anew with a client there"

    def __init__(self, access: Access, name: str, count: int) -> None:
        if type(count) is not int or not 1 <= count < 2**31:
            raise ValueError(f"count must be an integer from 1 to 2**31 - 1, not {count!r}")
        self.name: Final = check_name(name)
        #: How often it is counted down until it opens. The same for all clients.
        self.count: Final = count
        self._access: Final = access
        data.of(access.engine.backend)

    def _count_down(self) -> Steps[int]:
        """Count down by one, exactly once; how many are left, and 0 once it is open.

        Raises `QueueMismatch` where another client has given it another count, and what
        `Counter.add` raises.
        """

        def count(value: Any) -> tuple[Any, int]:
            left = max(self._left_of(value) - 1, 0)
            return [self.count, left], left

        return (yield from self._record.change(count))

    def _left(self) -> Steps[int]:
        """How many are left; 0 when it is open.

        Raises `QueueMismatch`, as `count_down`, and `BackendUnavailable`.
        """
        return self._left_of((yield from self._record.read()))

    def _wait(self, timeout: Duration | None = None) -> Steps[None]:
        """Wait until it is open.

        ``timeout`` is in seconds; None waits for ever, and 0 looks once. Raises `BarrierTimeout`
        when the time is up, `QueueMismatch`, as `count_down`, and `BackendUnavailable` where the
        service is silent then.
        """
        seconds = timeout_of("wait", timeout)
        record = self._record

        def left(listing: Listing) -> int:
            return self._left_of(record.value_in(listing))

        def in_vain(listing: Listing, waited: float) -> BarrierTimeout:
            down = self.count - left(listing)
            problem = f"latch {self.name!r} was counted down {down} of {self.count} times"
            return BarrierTimeout(self.name, waited, problem, down, self.count)

        engine = self._access.engine
        yield from waiting_until(engine, record.follow, lambda one: not left(one), seconds, in_vain)

    @property
    def _record(self) -> Record:
        return Record(self._access.engine, FOLDER, self.name)

    def _left_of(self, value: Any) -> int:
        """How many are left in what the record keeps. Raises `QueueMismatch`."""
        count, left = (self.count, self.count) if value is None else value
        if count != self.count:
            raise QueueMismatch(self.name, f"a latch of {self.count}", f"a latch of {count}", "")
        return int(left)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.count} at {self._access.settings}>"


class Latch(_BaseLatch):
    """Closed until it was counted down, and then open for good. Made by `Client`; reusable.

    As in::

        client.latch("imports", 3).count_down()  # each of three importers, when it is done
        client.latch("imports", 3).wait(timeout=600)  # whoever needs all of them
    """

    count_down = blocking(_BaseLatch._count_down)
    left = blocking(_BaseLatch._left)
    wait = blocking(_BaseLatch._wait)


class AsyncLatch(_BaseLatch):
    """Closed until it was counted down, and then open for good. Made by `AsyncClient`."""

    count_down = awaiting(_BaseLatch._count_down)
    left = awaiting(_BaseLatch._left)
    wait = awaiting(_BaseLatch._wait)
