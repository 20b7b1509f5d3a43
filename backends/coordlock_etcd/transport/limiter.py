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
        while (turn := self._next(queue)) is not None:
            send, promise = turn
            try:
                send().add_done_callback(promise.follow)
            except BaseException as error:
                promise.fail(BackendUnavailable(SERVICE, f"the request was not sent: {error!r}"))
                if not isinstance(error, Exception):
                    self._go_on(queue)
                    raise  # Ctrl-C is for the caller
            if not promise.done():
                promise.add_done_callback(partial(self._go_on, queue))

    def _next(self, queue: str) -> tuple[Callable[[], Answer], Answer] | None:
        with self._lock:
            sent = [answer for answer in self._sent.get(queue, ()) if not answer.done()]
            waiting = self._waiting.get(queue)
            turn = waiting.popleft() if waiting and len(sent) < self._most else None
            if turn is not None:
                sent.append(turn[1])
            self._sent[queue] = sent
            if not sent:
                del self._sent[queue]
            if not waiting:
                self._waiting.pop(queue, None)
            return turn
