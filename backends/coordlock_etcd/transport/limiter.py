"""Requests that wait for others: only so many are under way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise
from coordlock_etcd.errors import SERVICE

__all__ = ["Limiter"]

Answer = Promise[Any]


class Limiter:
    """Lets ``most`` requests be under way; others wait for their turn, in order.

    Of thousands at once, most would time out and be repeated, and heartbeats with them: etcd makes
    one change after another, and looks at a whole queue to find its end. Here they wait unsent.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._lock = threading.RLock()
        self._sent: list[Answer] = []
        self._waiting: deque[tuple[Callable[[], Answer], Answer]] = deque()

    def submit(self, send: Callable[[], Answer]) -> Answer:
        """The answer to what ``send`` sends, here and now or when others have been answered."""
        promise: Answer = Promise()
        self._waiting.append((send, promise))
        self._go_on()
        return promise

    def _go_on(self, _: object = None) -> None:
        """Send what may be sent, and go on when one of that is answered."""
        while (turn := self._next()) is not None:
            send, promise = turn
            try:
                send().add_done_callback(promise.follow)
            except BaseException as error:
                promise.fail(BackendUnavailable(SERVICE, f"the request was not sent: {error!r}"))
                if not isinstance(error, Exception):
                    self._go_on()
                    raise  # Ctrl-C is for the caller
            if not promise.done():
                promise.add_done_callback(self._go_on)

    def _next(self) -> tuple[Callable[[], Answer], Answer] | None:
        with self._lock:
            self._sent = [answer for answer in self._sent if not answer.done()]
            if not self._waiting or len(self._sent) >= self._most:
                return None
            turn = self._waiting.popleft()
            self._sent.append(turn[1])
            return turn
