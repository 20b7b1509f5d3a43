"""What the suites of the additions to the contract share: a network that fails on demand."""

from __future__ import annotations

from contextlib import AbstractContextManager

from coordlock.testing.backend_contract import Party, PartySuite

__all__ = ["DisturbedSuite"]


class DisturbedSuite(PartySuite):
    """A subclass says how its service's network is disturbed, for instance by a proxy."""

    def lose_reply(self, party: Party, method: str) -> None:
        """Let the service do the party's next request of that ``method`` without an answer.

        The request then fails with `BackendUnavailable`, and the connection breaks.
        """
        raise NotImplementedError

    def cut_off(self, party: Party) -> AbstractContextManager[object]:
        """Let nothing pass between the party and the service during the block."""
        raise NotImplementedError
