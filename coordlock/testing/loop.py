"""The thread of fault proxies: it waits for sockets and for time, and moves bytes."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from coordlock.testing.connection import Connection

__all__ = ["Loop"]

_T = TypeVar("_T")
_PATIENCE: Final = 30.0


class Loop:
    """Serves all connections of any number of relays in one thread.

    Their state belongs to that thread; others reach it with `run`.
    """

    def __init__(self) -> None:
        self.selector: Final = selectors.DefaultSelector()
        self.connections: list[Connection] = []
        #: Those that may have something to write, or need to be watched otherwise.
        self.touched: set[Connection] = set()
        self._orders: deque[Callable[[], None]] = deque()
        self._wakeup, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self.selector.register(self._wakeup, selectors.EVENT_READ, self._wake)
        self._is_running = True
        self._thread = threading.Thread(target=self._loop, name="fault-proxy", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Reset all connections and end the thread. Idempotent."""
        self.run(self._finish)
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)
        for closed in (self._wakeup, self._waker, self.selector):
            closed.close()

    def run(self, order: Callable[[], _T]) -> _T:
        """Run ``order`` on the thread and return its result."""
        if not self._thread.is_alive() or threading.current_thread() is self._thread:
            return order()
        done: Future[_T] = Future()

        def obey() -> None:
            try:
                done.set_result(order())
            except Exception as error:
                done.set_exception(error)

        self._orders.append(obey)
        with contextlib.suppress(BlockingIOError):  # full: it will wake up anyway
            self._waker.send(b"!")
        return done.result(_PATIENCE)

    def _wake(self, _end: object, _events: int) -> None:
        self._wakeup.recv(4096)

    def _finish(self) -> None:
        for connection in self.connections:
            connection.reset()
        self._is_running = False

    def _loop(self) -> None:
        waiting: dict[Connection, float] = {}
        while self._is_running:
            timeout = max(0.0, min(waiting.values()) - time.monotonic()) if waiting else None
            for key, events in self.selector.select(timeout):
                key.data(key.fileobj, events)
            if self._orders:
                while self._orders:
                    self._orders.popleft()()
                self.touched.update(self.connections)  # an order may have changed anything
            now = time.monotonic()
            self.touched.update(one for one, due in waiting.items() if due <= now)
            for connection in self.touched:
                connection.flush(now)
                due = connection.due
                if due is not None:
                    waiting[connection] = due
                else:
                    waiting.pop(connection, None)
            if any(connection.is_closed for connection in self.touched):
                self.connections = [c for c in self.connections if not c.is_closed]
            self.touched.clear()
