"""What wakes kazoo's I/O thread when there is something to send."""

from __future__ import annotations

import os
import threading

__all__ = ["Wakeups"]


class Wakeups:
    """Counts requests that wait to be sent; stands in for both ends of kazoo's socket pair.

    kazoo writes a byte per request to a socket pair and reads one per request sent. The pair's
    buffer holds 278 of them on Linux: the next caller blocks until the connection works again.
    An eventfd that counts never fills. Only where `os.eventfd` exists.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._fd

    def send(self, data: bytes) -> int:
        """Count a request for each byte. Raises OSError when closed."""
        # The lock keeps a late writer from a descriptor number that was closed and reused.
        with self._lock:
            if self._fd < 0:
                raise OSError("the connection is closed")
            os.eventfd_write(self._fd, len(data))
        return len(data)

    def recv(self, _: int) -> bytes:
        """Take one off the count. Raises BlockingIOError at 0."""
        os.eventfd_read(self._fd)
        return b"\0"

    def close(self) -> None:
        """Nothing more can be counted."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
