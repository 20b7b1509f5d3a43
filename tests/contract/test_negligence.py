"""The contract suite fails a backend that claims an order of departures without keeping it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from coordlock_memory import MemoryBackend

from coordlock.config import configure
from coordlock.model.contender import Contender
from coordlock.testing.backend_contract import BackendContract, Party


class Negligent(MemoryBackend):
    """Tells departures in pairs, the later one first, and says that all is in order."""

    def watch(
        self,
        contender: Contender,
        revision: int,
        departed: Callable[[bool], None],
        waiter: Contender | None = None,
    ) -> Callable[[], None]:
        late = self.__dict__.setdefault("late", [])

        def keep(_: bool) -> None:
            late.append(partial(departed, waiter is not None))
            if len(late) == 2:
                while late:
                    late.pop()()

        return super().watch(contender, revision, keep, waiter)


def test_a_backend_that_claims_an_order_that_it_does_not_keep_fails(root: str) -> None:
    one, two = (Party(Negligent.configure(configure(f"memory://{root}"))) for _ in range(2))
    suite = BackendContract()
    with pytest.raises(AssertionError):
        suite.test_a_departure_told_in_order_comes_after_an_earlier_one_of_the_waiter(one, two)
