"""Barriers: a number of parties that wait for each other, again and again."""

from __future__ import annotations

from coordlock.recipes.shared.participant import BarrierRecipe
from coordlock.recipes.shared.recipe import wait_of
from coordlock.runtime.deadline import Cancellation
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.settings import DEFAULT, Timeout

__all__ = ["AsyncBarrier", "Barrier"]


class _BaseBarrier(BarrierRecipe):
    """What sync and async barriers share."""

    _kind = "barrier"

    def _wait(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Wait until all parties of the barrier have arrived.

        Later parties form the next group. A party counts while it waits and its session lives.
        ``timeout`` is in seconds, by default the client's; None waits for ever, and 0 looks once.
        ``cancellation`` ends the wait from elsewhere, with `WaitCancelled`.

        Raises `WaitTimeout` when the time is up: then nobody has passed with this party. Raises
        `WaitUnavailable`, up to the client's ``request_timeout`` later, when the service does not
        answer: then the others may have passed. Raises `SessionLost` and `Evicted` if the party was
        lost before it passed, and `NameConflict` if an earlier party gave the barrier another
        number of parties.
        """
        participant = self._participant()
        yield from participant.arrive(wait_of(self._access, timeout), cancellation)
        participant.leave()


class Barrier(_BaseBarrier):
    """Parties that wait for each other, again and again. Made by `Client`; reusable.

    As in::

        barrier = client.barrier("epoch", 4)
        for epoch in epochs:
            compute(epoch)
            barrier.wait(timeout=600)  # until all four have computed it
    """

    wait = blocking(_BaseBarrier._wait)


class AsyncBarrier(_BaseBarrier):
    """Parties that wait for each other, again and again. Made by `AsyncClient`."""

    wait = awaiting(_BaseBarrier._wait)
