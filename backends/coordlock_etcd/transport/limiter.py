"""Limits how many requests are under way at once."""

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
        while self._send_next():
            pass

    def _send_next(self) -> bool:
        """Send the first that waits, if it may be sent; whether it may.

        A signal handler may raise here, also in a thread that takes another caller's turn. That
        request then fails as one without an answer, and its caller repeats it.
        """
        turn: tuple[Callable[[], Answer], Answer] | None = None
        try:
            with self._lock:
                self._sent = [answer for answer in self._sent if not answer.done()]
                if self._waiting and len(self._sent) < self._most:
                    turn = self._waiting[0]  # first: whatever strikes after this fails it
                    self._waiting.popleft()
                    self._sent.append(turn[1])
            if turn is None:
                return False
            send, promise = turn
            if not promise.done():  # else it was struck as it was taken before
                send().add_done_callback(promise.follow)
            if not promise.done():
                promise.add_done_callback(self._go_on)
            return True
        except BaseException as error:
            if turn is not None:
                turn[1].fail(BackendUnavailable(SERVICE, f"the request was not sent: {error!r}"))
            self._go_on()
            raise
