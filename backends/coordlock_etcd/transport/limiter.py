"""Requests that wait for others: a queue has only a few under way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise
from coordlock_etcd.errors import SERVICE

__all__ = ["Limiter"]

Answer = Promise[Any]


class Limiter:
    """Lets ``most`` enqueues for a queue be under way; others wait for their turn, in order.

    etcd looks at a whole queue to find its end, so thousands of requests for one queue at once
    would keep it busy for minutes: requests would time out, heartbeats too. Here they wait unsent.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._lock = threading.RLock()
        self._sent: dict[str, list[Answer]] = {}
        self._waiting: dict[str, deque[tuple[Callable[[], Answer], Answer]]] = {}

    def submit(self, queue: str, send: Callable[[], Answer]) -> Answer:
        """The answer to what ``send`` sends, here and now or when others have been answered."""
        promise: Answer = Promise()
        with self._lock:
            self._waiting.setdefault(queue, deque()).append((send, promise))
        self._go_on(queue)
        return promise

    def _go_on(self, queue: str, _: object = None) -> None:
        """Send what may be sent, and go on when one of that is answered."""
        while self._send_next(queue):
            pass

    def _send_next(self, queue: str) -> bool:
        """Send the first that waits, if it may be sent; whether it may.

        A signal handler may raise here, also in a thread that takes another caller's turn. That
        request then fails as one without an answer, and its caller repeats it.
        """
        turn: tuple[Callable[[], Answer], Answer] | None = None
        try:
            with self._lock:
                sent = [answer for answer in self._sent.get(queue, ()) if not answer.done()]
                waiting = self._waiting.get(queue)
                if waiting and len(sent) < self._most:
                    turn = waiting[0]  # first: whatever strikes after this fails it
                    waiting.popleft()
                    sent.append(turn[1])
                self._sent[queue] = sent
                if not sent:
                    del self._sent[queue]
                if not waiting:
                    self._waiting.pop(queue, None)
            if turn is None:
                return False
            send, promise = turn
            if not promise.done():  # else it was struck as it was taken before
                send().add_done_callback(promise.follow)
            if not promise.done():
                promise.add_done_callback(partial(self._go_on, queue))
            return True
        except BaseException as error:
            if turn is not None:
                turn[1].fail(BackendUnavailable(SERVICE, f"the request was not sent: {error!r}"))
            self._go_on(queue)
            raise
