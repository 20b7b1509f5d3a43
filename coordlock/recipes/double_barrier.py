"""Double barriers: parties that begin together, and end together."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from coordlock.kernel.access import Access
from coordlock.model.names import check_name
from coordlock.recipes.shared.party import Party, check_parties, queues_of
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.runtime.resident import Resident
from coordlock.runtime.statement import EnteredByAsyncWith, EnteredByWith
from coordlock.settings import DEFAULT, Default, Duration, Timeout, timeout_of

__all__ = ["AsyncDoubleBarrier", "DoubleBarrier"]


class _BaseDoubleBarrier(Resident, shown="DoubleBarrier"):
    """What sync and async double barriers share."""

    _instead = "pass its name and its parties on, and make it anew with a client there"

    def __init__(
        self, access: Access, name: str, parties: int, timeout: Duration | None = None
    ) -> None:
        self.name: Final = check_name(name)
        #: How many enter together. The same for all clients.
        self.parties: Final = check_parties(parties)
        #: For how many seconds `enter` waits, and `leave`; None for ever.
        self.timeout: Final = timeout_of("double_barrier", timeout)
        self._access: Final = access
        self._party: Party | None = None
        queues_of(access.engine)

    def _enter(self, timeout: Timeout = DEFAULT) -> Steps[None]:
        """Wait until as many are here as the barrier takes; then all of them go in.

        ``timeout`` is in seconds, by default the barrier's; None waits for ever, and 0 looks once.
        Raises what `Barrier.wait` raises, and RuntimeError where it was entered and not left.
        """
        if self._party is not None:
            raise RuntimeError(f"{self!r} was entered already: leave it, or make another object")
        party = self._party = Party(self._access.engine, self.name, self.parties, "double barrier")
        try:
            yield from party.arrive(self._seconds("enter", timeout))
        except BaseException:
            self._party = None
            raise

    def _leave(self, timeout: Timeout = DEFAULT) -> Steps[None]:
        """Leave, and wait until all have left that went in together. The dead count as left.

        ``timeout`` is as for `enter`. However it ends, this party has left. Raises `BarrierTimeout`
        when the time is up, and `BackendUnavailable` where the service is silent then. Raises
        `SessionLost` or `Evicted` where this party was lost inside, and so had left for the others
        before. Raises RuntimeError where it was not entered.
        """
        party, self._party = self._party, None
        if party is None:
            raise RuntimeError(f"{self!r} was not entered")
        yield from party.depart(self._seconds("leave", timeout))

    def _abandon(self) -> None:
        """Leave without waiting for the others."""
        party, self._party = self._party, None
        if party is not None:
            party.go()

    def _seconds(self, call: str, timeout: Timeout) -> float | None:
        return self.timeout if isinstance(timeout, Default) else timeout_of(call, timeout)

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"<{kind} {self.name!r} of {self.parties} at {self._access.settings}>"


class DoubleBarrier(EnteredByWith, _BaseDoubleBarrier):
    """Parties that begin together, and end together. Made by `Client`; for one at a time.

    A context manager that enters and leaves. When the body raises, it leaves at once. As in::

        with client.double_barrier("round", 4, timeout=60):
            play()
    """

    enter = blocking(_BaseDoubleBarrier._enter)
    leave = blocking(_BaseDoubleBarrier._leave)

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if body is None:
                self.leave()
        finally:
            self._abandon()


class AsyncDoubleBarrier(EnteredByAsyncWith, _BaseDoubleBarrier):
    """Parties that begin together, and end together. Made by `AsyncClient`.

    An async context manager that enters and leaves. When the body raises, it leaves at once.
    """

    enter = awaiting(_BaseDoubleBarrier._enter)
    leave = awaiting(_BaseDoubleBarrier._leave)

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if body is None:
                await self.leave()
        finally:
            self._abandon()
