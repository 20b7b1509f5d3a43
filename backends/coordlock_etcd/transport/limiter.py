"""How many requests for one queue may be under way at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise
from coordlock_etcd.errors import SERVICE

__all__ = ["Limiter"]

T = TypeVar("T")


class _Line(Generic[T]):
    """The requests for one queue."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way: dict[Promise[T], None] = {}
        self.waiting: deque[tuple[Callable[[], Promise[T]], Promise[T]]] = deque()


class Limiter(Generic[T]):
    """Lets ``most`` requests for a queue be under way; others wait for their turn, in order.

    etcd looks at a whole queue to find its end, so thousands of requests for one queue at once
    would keep it busy for minutes: requests would time out, heartbeats too. Here they wait unsent.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._lock = threading.RLock()
        self._lines: dict[str, _Line[T]] = {}

    def submit(self, queue: str, send: Callable[[], Promise[T]]) -> Promise[T]:
        """The answer to what ``send`` sends, here and now or when others have been answered."""
        with self._lock:
            line = self._lines.get(queue)
            if line is not None and (line.waiting or len(line.under_way) >= self._most):
                # Ctrl-C may have kept an answer from passing its turn on.
                line.under_way = {one: None for one in line.under_way if not one.done()}
                if len(line.under_way) >= (1 if line.waiting else self._most):
                    # A request that is under way will pass its turn on, under this lock.
                    promise: Promise[T] = Promise()
                    line.waiting.append((send, promise))
                    return promise
        answer = send()
        if not answer.done():
            line = _Line()
            # Nothing is called under the lock, where a signal handler could run and wait for an
            # answer that needs it.
            with self._lock:
                if queue not in self._lines:
                    self._lines[queue] = line
                self._lines[queue].under_way[answer] = None
            self._pass_on_after(queue, answer)
        return answer

    def _pass_on_after(self, queue: str, answer: Promise[T]) -> None:
        # At once, if it has been answered meanwhile.
        answer.add_done_callback(lambda answered: self._pass_on(queue, answered))

    def _pass_on(self, queue: str, answered: Promise[T]) -> None:
        """Give the turn to the next request, or to the one after it if that fails at once."""
        while (turn := self._next(queue, answered)) is not None:
            send, promise = turn
            answered = promise
            try:
                send().add_done_callback(promise.follow)
            except BaseException as error:
                promise.fail(BackendUnavailable(SERVICE, f"the request was not sent: {error!r}"))
                if not isinstance(error, Exception):
                    self._pass_on(queue, promise)
                    raise  # Ctrl-C is for the caller
            if not promise.done():
                self._pass_on_after(queue, promise)
                return

    def _next(
        self, queue: str, answered: Promise[T]
    ) -> tuple[Callable[[], Promise[T]], Promise[T]] | None:
        with self._lock:
            line = self._lines.get(queue)
            if line is None:
                return None
            line.under_way.pop(answered, None)
            if line.waiting:
                send, promise = line.waiting.popleft()
                line.under_way[promise] = None
                return send, promise
            if not line.under_way:
                del self._lines[queue]
            return None
