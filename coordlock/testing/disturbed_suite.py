"""What the suites of the additions to the contract share: a network that fails on demand."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise
from coordlock.testing.backend_contract import BOUND, Party, PartySuite

__all__ = ["DisturbedSuite"]

T = TypeVar("T")


class DisturbedSuite(PartySuite):
    """A subclass says how its service's network is disturbed, for instance by a proxy."""

    def lose_reply(self, party: Party, method: str) -> None:
        """Let the service do the party's next request of that ``method`` without an answer.

        The request then fails with `BackendUnavailable`, and the connection breaks.
        """
        raise NotImplementedError

    @staticmethod
    def repeated(request: Callable[[], Promise[T]]) -> T:
        """The answer to ``request``, repeated as the kernel does while there is no connection."""
        deadline = time.monotonic() + BOUND
        while True:
            try:
                return request().result(BOUND)
            except BackendUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def cut_off(self, party: Party) -> AbstractContextManager[object]:
        """Let nothing pass between the party and the service during the block."""
        raise NotImplementedError
