"""A thread that is about to block can read its answer itself, where a backend offers that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

__all__ = ["BLOCKING", "Receive", "offer"]

#: Receives until its argument returns True, or for so many seconds. Nothing depends on it.
Receive = Callable[[Callable[[], bool], float], None]
#: The default limit, in seconds: the thread looks only then for what else ends its wait.
_LONGEST: Final = 0.02


class _Blocking(threading.local):
    """What the calling thread may do once it blocks.

    Attributes:
        is_near: whether it waits for what it asks for, and has no event loop to serve.
        receive: what it was offered.
        longest: for how many seconds at most.
    """

    is_near = False
    receive: Receive | None = None
    longest = _LONGEST

    def decline(self) -> None:
        """Give back what was offered: it is called once, to receive nothing."""
        if (receive := self.receive) is not None:
            receive(lambda: True, 0.0)
            self.receive = None  # not before: where a signal handler raises, this is done again

    def receive_for(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Receive what the thread waits for, until ``is_done``, and so long at most."""
        if (receive := self.receive) is not None:
            self.is_near = False  # it may not wait for what callbacks ask for meanwhile
            receive(is_done, min(seconds, self.longest))
            self.receive = None  # not before: see `decline`
        self.is_near = True


BLOCKING: Final = _Blocking()


def offer(receive: Receive, longest: float = _LONGEST) -> bool:
    """Offer ``receive`` to the calling thread; whether it will call it, for ``longest`` seconds.

    With a ``longest`` above the default, ``receive`` looks at ``is_done`` at least that often. A
    thread receives from one place: after an offer from a second one, it receives nothing until it
    has waited.
    """
    if not BLOCKING.is_near:
        return False
    if BLOCKING.receive is not None and BLOCKING.receive != receive:
        BLOCKING.is_near = False
        BLOCKING.decline()
        return False
    BLOCKING.receive, BLOCKING.longest = receive, longest
    return True
