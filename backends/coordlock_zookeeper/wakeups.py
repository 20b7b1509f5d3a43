"""What wakes kazoo's I/O thread when there is something to send."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sized

__all__ = ["Wakeups"]


class Wakeups:
    """A byte in a pipe while requests wait; stands in for both ends of kazoo's socket pair.

    kazoo writes a byte per request to a socket pair and reads one per request sent. The pair's
    buffer holds 278 of them on Linux: the next caller blocks until the connection works again, and
    the I/O thread itself, which sends too, for ever. And Ctrl-C between a request and its byte
    would have each later request wait for the next one's. So here nothing is counted: the byte
    stays until ``left`` is empty, kazoo's queue of requests.
    """

    def __init__(self, left: Callable[[], Sized]) -> None:
        self._left = left
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._is_set = False
        # It also keeps a late writer from a descriptor number that was closed and reused.
        self._lock = threading.RLock()

    def fileno(self) -> int:
        """The descriptor to wait for; -1 when closed."""
        return self._reader

    def send(self, data: bytes) -> int:
        """Tell that there is a request. Raises OSError when closed."""
        with self._lock:
            if self._writer < 0:
                raise OSError("the connection is closed")
            if not self._is_set:
                os.write(self._writer, b"\0")
                self._is_set = True  # after the write: Ctrl-C between them leaves a byte too many
        return len(data)

    def recv(self, _: int) -> bytes:
        """A request was sent. Raises BlockingIOError where none had been told of."""
        with self._lock:
            if not self._left():
                self._is_set = False  # before: Ctrl-C between them leaves a byte too many
                os.read(self._reader, 1)
        return b"\0"

    def close(self) -> None:
        """Nothing more can be told."""
        with self._lock:
            if self._writer >= 0:
                os.close(self._reader)
                os.close(self._writer)
                self._reader = self._writer = -1
