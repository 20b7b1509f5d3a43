"""Double barriers: parties that begin together, and end together."""

from __future__ import annotations

from typing import Final, Self

from coordlock.kernel.access import Access
from coordlock.recipes.shared.participant import BarrierRecipe, Participant
from coordlock.recipes.shared.recipe import wait_of
from coordlock.runtime.deadline import Cancellation
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.settings import DEFAULT, Default, Timeout, timeout_of

__all__ = ["AsyncDoubleBarrier", "DoubleBarrier"]


class _BaseDoubleBarrier(BarrierRecipe):
    """What sync and async double barriers share."""

    _kind = "double barrier"

    def __init__(self, access: Access, name: str, parties: int, timeout: Timeout = DEFAULT) -> None:
        super().__init__(access, name, parties)
        #: For how many seconds `enter` waits, and `leave`; None for ever.
        self.timeout: Final = wait_of(access, timeout, "double_barrier")
        self._inside: Participant | None = None

    def _enter(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Wait until all parties of the barrier have arrived; then they enter together.

        ``timeout`` is in seconds, by default the barrier's; None waits for ever, and 0 looks once.
        ``cancellation`` ends the wait from elsewhere, with `WaitCancelled`. Raises what
        `Barrier.wait` raises, and RuntimeError if it is already entered.
        """
        if self._inside is not None:
            raise RuntimeError(f"{self!r} was entered already: leave it, or make another object")
        self._inside = participant = self._participant()
        try:
            yield from participant.arrive(self._seconds("enter", timeout), cancellation)
        except BaseException:
            self._inside = None
            raise

    def _leave(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Leave, and wait until all that entered together have left. The dead count as left.

        ``timeout`` and ``cancellation`` are as for `enter`. However it ends, this party has left.
        Raises `WaitTimeout` when the time is up, `WaitCancelled`, and `WaitUnavailable` if the
        service does not answer. Raises `SessionLost` or `Evicted` if this party was lost inside,
        and so had already left for the others, and `SessionLost` if the session ends during the
        wait. Raises RuntimeError if it was not entered.
        """
        participant, self._inside = self._inside, None
        if participant is None:
            raise RuntimeError(f"{self!r} was not entered")
        yield from participant.leave_together(self._seconds("leave", timeout), cancellation)

    def _abandon(self) -> None:
        """Leave without waiting for the others."""
        participant, self._inside = self._inside, None
        if participant is not None:
            participant.leave()

    def _seconds(self, call: str, timeout: Timeout) -> float | None:
        return self.timeout if isinstance(timeout, Default) else timeout_of(call, timeout)


class DoubleBarrier(_BaseDoubleBarrier):
    """Parties that begin together and end together. Made by `Client`; for one party at a time.

    A context manager that enters and leaves. When the body raises, it leaves at once. As in::

        with client.double_barrier("round", 4, timeout=60):
            play()
    """

    enter = blocking(_BaseDoubleBarrier._enter)
    leave = blocking(_BaseDoubleBarrier._leave)

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(self, kind: object, body: object, traceback: object) -> None:
        try:
            if body is None:
                self.leave()
        finally:
            self._abandon()


class AsyncDoubleBarrier(_BaseDoubleBarrier):
    """Parties that begin together, and end together. Made by `AsyncClient`.

    An async context manager that enters and leaves. When the body raises, it leaves at once.
    """

    enter = awaiting(_BaseDoubleBarrier._enter)
    leave = awaiting(_BaseDoubleBarrier._leave)

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(self, kind: object, body: object, traceback: object) -> None:
        try:
            if body is None:
                await self.leave()
        finally:
            self._abandon()
