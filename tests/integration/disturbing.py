"""A network between an observer and its service that fails at random."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from coordlock.testing.proxy import FaultProxy

__all__ = ["disturbed"]


@contextmanager
def disturbed(
    proxy: FaultProxy, chance: random.Random, others: Sequence[Callable[[], object]] = ()
) -> Iterator[None]:
    """Within the block, one fault of the ``proxy``, or one of the ``others``, follows another."""

    def refuse() -> None:
        proxy.refuse()
        proxy.drop_connections()
        time.sleep(chance.uniform(0, 2))

    def hold() -> None:
        chance.choice([proxy.black_hole, proxy.replies.black_hole])()
        time.sleep(chance.uniform(0, 4))

    def lose() -> None:
        proxy.replies.black_hole()
        time.sleep(chance.uniform(0, 2))
        proxy.drop_connections()

    def delay() -> None:
        proxy.delay(chance.uniform(0, 0.1))
        time.sleep(chance.uniform(0, 1))

    def cut() -> None:
        proxy.replies.cut_after(chance.randrange(300_000))
        time.sleep(0.5)

    faults = [proxy.drop_connections, refuse, hold, lose, delay, cut, *others]
    over = threading.Event()

    def disturb() -> None:
        while not over.is_set():
            chance.choice(faults)()
            proxy.heal()
            time.sleep(chance.uniform(0, 1))

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        yield
    finally:
        over.set()
        disturber.join()
