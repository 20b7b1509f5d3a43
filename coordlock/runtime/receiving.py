"""A thread that is about to block can read its answer itself, where a backend offers that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from coordlock.runtime.promise import Promise

__all__ = ["Receive", "blocks", "blocks_no_longer", "offer", "receive_for"]

#: Receives until its argument returns True, or for so many seconds. Nothing depends on it.
Receive = Callable[[Callable[[], bool], float], None]
#: So long at most: whatever else ends a wait is seen later.
_LONGEST: Final = 0.02


class _Offer(threading.local):
    is_wanted = False
    receive: Receive | None = None


_offer: Final = _Offer()


def blocks() -> None:
    """From now on, the calling thread blocks where it has to wait."""
    _offer.is_wanted = True


def blocks_no_longer() -> None:
    """The end of that: what was offered is called once more, to receive nothing."""
    _offer.is_wanted = False
    if _offer.receive is not None:
        receive, _offer.receive = _offer.receive, None
        receive(lambda: True, 0.0)


def offer(receive: Receive) -> bool:
    """Offer ``receive`` to the calling thread; whether it will call it, since it blocks soon."""
    if _offer.is_wanted:
        _offer.receive = receive
    return _offer.is_wanted


def receive_for(promise: Promise[Any], seconds: float) -> None:
    """Receive what may keep ``promise``, for which the calling thread waits so long at most."""
    if _offer.receive is not None:
        receive, _offer.receive = _offer.receive, None
        receive(promise.done, min(seconds, _LONGEST))
