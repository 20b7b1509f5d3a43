"""Requests that wait for others: a queue has only a few under way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise
from coordlock_etcd.errors import SERVICE

__all__ = ["Limiter"]

Result = TypeVar("Result")


class _Queue(Generic[Result]):
    """The requests for one queue."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way: dict[Promise[Result], None] = {}
        self.waiting: deque[tuple[Callable[[], Promise[Result]], Promise[Result]]] = deque()


class Limiter(Generic[Result]):
    """Lets ``most`` requests for a queue be under way; others wait for their turn, in order.

    etcd looks at a whole queue to find its end, so thousands of requests for one queue at once
    would keep it busy for minutes: requests would time out, heartbeats too. Here they wait unsent.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._lock = threading.RLock()
        self._queues: dict[str, _Queue[Result]] = {}

    def submit(self, queue: str, send: Callable[[], Promise[Result]]) -> Promise[Result]:
        """The answer to what ``send`` sends, here and now or when others have been answered."""
        with self._lock:
            state = self._queues.get(queue)
            if state is not None and (state.waiting or len(state.under_way) >= self._most):
                # Ctrl-C may have kept an answer from passing its turn on.
                state.under_way = {one: None for one in state.under_way if not one.done()}
                if len(state.under_way) >= (1 if state.waiting else self._most):
                    # A request that is under way will pass its turn on, under this lock.
                    promise: Promise[Result] = Promise()
                    state.waiting.append((send, promise))
                    return promise
        answer = send()
        if not answer.done():
            state = _Queue()
            # Nothing is called under the lock, where a signal handler could run and wait for an
            # answer that needs it.
            with self._lock:
                if queue not in self._queues:
                    self._queues[queue] = state
                self._queues[queue].under_way[answer] = None
            self._pass_on_after(queue, answer)
        return answer

    def _pass_on_after(self, queue: str, answer: Promise[Result]) -> None:
        # At once, if it has been answered meanwhile.
        answer.add_done_callback(lambda answered: self._pass_on(queue, answered))

    def _pass_on(self, queue: str, answered: Promise[Result]) -> None:
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
        self, queue: str, answered: Promise[Result]
    ) -> tuple[Callable[[], Promise[Result]], Promise[Result]] | None:
        with self._lock:
            state = self._queues.get(queue)
            if state is None:
                return None
            state.under_way.pop(answered, None)
            if state.waiting:
                send, promise = state.waiting.popleft()
                state.under_way[promise] = None
                return send, promise
            if not state.under_way:
                del self._queues[queue]
            return None
