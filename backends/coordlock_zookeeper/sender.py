"""What hands requests to an application's client, which may block whoever does."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

__all__ = ["unblocked"]

#: Seconds without requests after which the thread ends.
_IDLE: Final = 1.0
_NAME: Final = "coordlock-zookeeper-sender"


def unblocked(client: Any) -> Any:
    """A `KazooClient` with the state of ``client`` whose requests never block who makes them.

    kazoo wakes its I/O thread with a byte per request in a socket pair. The buffer holds 278 of
    them on Linux; whoever comes then waits until that thread has passed some on, or for ever when
    the connection has gone meanwhile. coordlock asks from event loops and under deadlines. With a
    client of our own, `Wakeups` sees to it.
    """
    sender = _Sender(client)

    class Unblocked(type(client)):  # type: ignore[misc]
        def _call(self, request: Any, answer: Any) -> None:
            # kazoo returns False for some errors, but puts them into ``answer`` too.
            sender.send(request, answer)

    twin = object.__new__(Unblocked)
    twin.__dict__ = client.__dict__  # the same, not a copy
    return twin


class _Sender:
    """Makes the requests of all threads in one, in their order. It runs while there are some."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._requests: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        self._lock = threading.RLock()
        self._running = False

    def send(self, request: Any, answer: Any) -> None:
        """Make ``request`` soon."""
        self._requests.put((request, answer))
        with self._lock:
            if self._running:
                return
            self._running = True  # before: a finalizer may send within what follows
            thread = threading.Thread(target=self._serve, name=_NAME, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is exiting, and starts no threads any more
                self._running = False
                self._pass_on(0.0)
            except BaseException:  # Ctrl-C
                self._running = thread.is_alive()
                raise

    def _serve(self) -> None:
        while True:
            self._pass_on(_IDLE)
            with self._lock:
                if self._requests.empty():
                    self._running = False
                    return

    def _pass_on(self, patience: float) -> None:
        """Make requests until none has come for ``patience`` seconds."""
        with suppress(Empty):
            while True:
                self._client._call(*self._requests.get(timeout=patience))
