"""What parties of the simulated world are told to do."""

from __future__ import annotations

from coordlock.locks.grant import Grant
from tests.simulation.world import Party

__all__ = ["delay", "release"]


def release(grant: Grant) -> None:
    """Withdraw its contender, without waiting for the answer."""
    grant._ticket.withdraw()


def delay(*parties: Party, seconds: float = 0.01) -> None:
    """Have each request of theirs take so long from now on."""
    for party in parties:
        party.network.faults.latency = lambda: seconds
