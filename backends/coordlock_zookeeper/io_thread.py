"""What wakes kazoo's I/O thread, so that neither it nor a caller can block."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sized
from contextlib import suppress

from coordlock_zookeeper.connection import Connection

__all__ = ["Wakeups"]

#: For how long the I/O thread waits for a caller that sends, in seconds: after the connection has
#: ended, and otherwise so many times as long. Callers need microseconds, unless a signal handler
#: keeps one in the midst of it.
_PATIENCE, _TIMES = 0.05, 20


class Wakeups:
    """A byte in a pipe that wakes the I/O thread; stands in for both ends of kazoo's socket pair.

    kazoo writes a byte per request to a socket pair and reads one per request sent. The pair's
    buffer holds 278 of them on Linux: the next caller blocks until the connection works again, and
    the I/O thread itself, which sends too, for ever. And Ctrl-C between a request and its byte
    would make each later request wait for the next one's. So here nothing is counted: the I/O
    thread looks at ``left``, kazoo's queue of requests, and bytes are written only while it sleeps.

    While it sleeps, a caller sends its request itself, which spares a change of threads. Answers
    come to the I/O thread alone. Whoever sends has a lock, which the I/O thread has whenever it is
    awake. No caller waits for that: it wakes the I/O thread. Where a signal handler asks for
    something while its thread sends, the connection is given up, as nobody knows what was sent.
    """

    def __init__(self, left: Callable[[], Sized]) -> None:
        self.left = left
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._sleeps = False
        # It also keeps a late writer from a descriptor number that was closed and reused.
        self._lock = threading.RLock()
        #: What callers may send by.
        self._connection: Connection | None = None
        #: Whoever sends has it. Replaced where a caller keeps it.
        self._sending = threading.RLock()
        #: The caller that has it; 0 for none.
        self._sender = 0
        self._is_mine = False  # the I/O thread's

    def share(self, connection: Connection) -> None:
        """Callers may send by ``connection`` while the I/O thread sleeps."""
        self._connection = connection

    def fileno(self) -> int:
        """The descriptor to wait for; -1 when closed."""
        return self._reader

    def falls_asleep(self) -> bool:
        """The I/O thread is about to wait; False, and it must not, where a request is there."""
        # In this order: a caller adds its request first, and then looks whether it must wake.
        self._sleeps = True
        if self.left():
            self._sleeps = False
        elif self._is_mine:
            self._is_mine = False
            self._sending.release()
        return self._sleeps

    def awakes(self, woken: bool) -> None:
        """The I/O thread looks at the requests by itself again; ``woken`` if there is a byte."""
        self._sleeps = False
        if not self._is_mine:
            self._take_back()
            self._is_mine = True
        if woken:
            os.read(self._reader, 65536)

    def _take_back(self) -> None:
        """Take the connection back, once no caller sends."""
        connection = self._connection
        for _ in range(_TIMES):
            if self._sending.acquire(timeout=_PATIENCE):
                return
            if connection is None or connection.has_ended:
                break
        self._sending, self._sender = threading.RLock(), 0
        self._sending.acquire()
        if connection is not None:
            connection.abandon()

    def send(self, data: bytes) -> int:
        """Announce a request. Raises OSError when closed."""
        if self._writer < 0:
            raise OSError("the connection is closed")
        if self._sleeps and not self._is_sent():
            self._wake()
        return len(data)

    def _is_sent(self) -> bool:
        """Send what was asked for, without waiting; whether the I/O thread may sleep on."""
        connection, sending, me = self._connection, self._sending, threading.get_ident()
        if connection is None:
            return False
        if self._sender == me:  # this is a signal handler
            connection.give_up()
            return False
        current = connection.current  # before: the I/O thread may give it up from then on
        try:
            if not sending.acquire(blocking=False):
                return False
            self._sender = me
            return connection.send_now(*current)
        finally:
            if self._sender == me:
                self._sender = 0
            try:  # noqa: SIM105 - `suppress` is Python's, so that Ctrl-C could strike before this
                sending.release()
            except RuntimeError:  # it was not acquired
                pass

    def _wake(self) -> None:
        with self._lock, suppress(BlockingIOError):  # so many bytes will do
            if self._writer >= 0:
                os.write(self._writer, b"\0")

    def recv(self, _: int) -> bytes:
        """A request was sent: nothing counts them."""
        return b"\0"

    def close(self) -> None:
        """Nothing more can be announced."""
        self._connection = None
        with self._lock:
            if self._writer >= 0:
                os.close(self._reader)
                os.close(self._writer)
                self._reader = self._writer = -1
