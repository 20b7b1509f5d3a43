"""A service that refuses requests for a while, as where a right is missing or a disk is full."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from coordlock import Cancellation, Client, CoordlockError
from coordlock.testing.waiting import eventually

__all__ = ["check_nothing_stays"]


def check_nothing_stays(
    client: Client, other: Client, refuse: Callable[[], object], accept: Callable[[], object]
) -> None:
    """What ``client`` gives up during a refusal is free for ``other`` soon after it."""
    held, busy = client.lock("held").acquire(30), other.lock("busy").acquire(30)
    gives_up = Cancellation()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.lock("busy").acquire, None, cancellation=gives_up)
        eventually(lambda: len(other.admin.contenders("busy")) == 2)
        refuse()
        try:
            assert held.release(timeout=0.5) is False
            gives_up.cancel()
            assert isinstance(waiting.exception(30), CoordlockError)
        finally:
            accept()
    busy.release()
    for name in ("held", "busy"):
        other.lock(name).acquire(60).release()
    eventually(lambda: not other.admin.names())
    client.lock("held").acquire(30).release()  # in the same session: nothing else was lost
