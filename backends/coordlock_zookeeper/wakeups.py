"""What wakes kazoo's I/O thread when there is something to send."""

from __future__ import annotations

import os
import threading

__all__ = ["Wakeups"]


class Wakeups:
    """Counts requests that wait to be sent; stands in for both ends of kazoo's socket pair.

    kazoo writes a byte per request to a socket pair and reads one per request sent. The pair's
    buffer holds 278 of them on Linux: the next caller blocks until the connection works again, and
    the I/O thread itself, which sends too, for ever. So here the count is a number, and there is
    one byte in a pipe while it is above 0.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._count = 0
        # It also keeps a late writer from a descriptor number that was closed and reused.
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor to wait for; -1 when closed."""
        return self._reader

    def send(self, data: bytes) -> int:
        """Count a request for each byte. Raises OSError when closed."""
        with self._lock:
            if self._writer < 0:
                raise OSError("the connection is closed")
            if not self._count:
                os.write(self._writer, b"\0")
            self._count += len(data)  # after the write: Ctrl-C between them leaves a byte too many
        return len(data)

    def recv(self, _: int) -> bytes:
        """Take one off the count. Raises BlockingIOError at 0."""
        with self._lock:
            if self._count <= 1:
                os.read(self._reader, 1)
            self._count = max(0, self._count - 1)
        return b"\0"

    def close(self) -> None:
        """Nothing more can be counted."""
        with self._lock:
            if self._writer >= 0:
                os.close(self._reader)
                os.close(self._writer)
                self._reader = self._writer = -1
