"""How many requests may be under way at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, Generic, TypeVar

from coordlock.promise import Promise

__all__ = ["Turns"]

T = TypeVar("T")


class Turns(Generic[T]):
    """Lets ``most`` requests be under way; the others wait for their turn, in order.

    etcd looks at a whole queue to find its end, so thousands who come to one at once would keep it
    busy for minutes: requests would time out, heartbeats among them. Here they wait unsent.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._lock = threading.Lock()
        self._under_way: set[Future[T]] = set()
        self._waiting: deque[tuple[Callable[[], Future[T]], Promise[T]]] = deque()

    def take(self, send: Callable[[], Future[T]]) -> Future[T]:
        """The answer to what ``send`` sends, here and now or when others have been answered."""
        with self._lock:
            if len(self._under_way) >= self._most:
                # Ctrl-C may have kept a callback from being called.
                self._under_way = {one for one in self._under_way if not one.done()}
            if len(self._under_way) >= self._most:
                # One of those will be answered, and passes its turn on under this lock.
                promise: Promise[T] = Promise()
                self._waiting.append((send, promise))
                return promise
        answer = send()
        if not answer.done():
            self._follow(answer)
        return answer

    def _follow(self, answer: Future[T]) -> None:
        with self._lock:
            self._under_way.add(answer)
        answer.add_done_callback(self._pass_on)  # at once, if it has been answered meanwhile

    def _pass_on(self, answered: Future[T]) -> None:
        """Give the turn to the next one, or to the one after it if that fails at once."""
        while True:
            with self._lock:
                self._under_way.discard(answered)
                if not self._waiting:
                    return
                send, promise = self._waiting.popleft()
            answer = send()
            answer.add_done_callback(partial(_copy, promise))
            if not answer.done():
                self._follow(answer)
                return


def _copy(promise: Promise[T], answer: Future[T]) -> None:
    error = answer.exception()
    if error is None:
        promise.resolve(answer.result())
    else:
        promise.fail(error)
