"""How many requests may be under way at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise
from coordlock_etcd.errors import SERVICE

__all__ = ["Turns"]

T = TypeVar("T")


class _Line(Generic[T]):
    """Those who come to one place."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way: dict[Future[T], None] = {}
        self.waiting: deque[tuple[Callable[[], Future[T]], Promise[T]]] = deque()


class Turns(Generic[T]):
    """Lets ``most`` requests to a place be under way; others wait for their turn, in order.

    etcd looks at a whole queue to find its end, so thousands who come to one at once would keep it
    busy for minutes: requests would time out, heartbeats among them. Here they wait unsent.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._lock = threading.RLock()
        self._lines: dict[Hashable, _Line[T]] = {}

    def take(self, place: Hashable, send: Callable[[], Future[T]]) -> Future[T]:
        """The answer to what ``send`` sends, here and now or when others have been answered."""
        with self._lock:
            line = self._lines.get(place)
            if line is not None and (line.waiting or len(line.under_way) >= self._most):
                # Ctrl-C may have kept one from passing its turn on.
                line.under_way = {one: None for one in line.under_way if not one.done()}
                if len(line.under_way) >= (1 if line.waiting else self._most):
                    # One of those will be answered, and passes its turn on under this lock.
                    promise: Promise[T] = Promise()
                    line.waiting.append((send, promise))
                    return promise
        answer = send()
        if not answer.done():
            line = _Line()
            # Nothing is called under the lock, where a signal handler could run and wait for an
            # answer that needs it.
            with self._lock:
                if place not in self._lines:
                    self._lines[place] = line
                self._lines[place].under_way[answer] = None
            self._pass_on_after(place, answer)
        return answer

    def _pass_on_after(self, place: Hashable, answer: Future[T]) -> None:
        # At once, if it has been answered meanwhile.
        answer.add_done_callback(lambda answered: self._pass_on(place, answered))

    def _pass_on(self, place: Hashable, answered: Future[T]) -> None:
        """Give the turn to the next one, or to the one after it if that fails at once."""
        while (turn := self._next(place, answered)) is not None:
            send, promise = turn
            answered = promise
            try:
                send().add_done_callback(promise.follow)
            except BaseException as error:
                promise.fail(BackendUnavailable(SERVICE, f"the request was not sent: {error!r}"))
                if not isinstance(error, Exception):
                    self._pass_on(place, promise)
                    raise  # Ctrl-C is for whoever runs this
            if not promise.done():
                self._pass_on_after(place, promise)
                return

    def _next(
        self, place: Hashable, answered: Future[T]
    ) -> tuple[Callable[[], Future[T]], Promise[T]] | None:
        with self._lock:
            line = self._lines.get(place)
            if line is None:
                return None
            line.under_way.pop(answered, None)
            if line.waiting:
                send, promise = line.waiting.popleft()
                line.under_way[promise] = None
                return send, promise
            if not line.under_way:
                del self._lines[place]
            return None
