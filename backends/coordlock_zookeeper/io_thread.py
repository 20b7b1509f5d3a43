"""What wakes kazoo's I/O thread, and what it does with answers, so that nothing can block it.

kazoo's own classes use queues and conditions that Ctrl-C in a caller's thread may leave locked.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Sized
from contextlib import suppress

from coordlock.runtime.log import Log
from coordlock_zookeeper.connection import Connection

__all__ = ["AnswerCondition", "Calls", "Completions", "Wakeups"]

log = Log("coordlock.zookeeper")

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


class Calls(queue.SimpleQueue[Callable[[], object]]):
    """What kazoo calls back, in place of a `queue.Queue`, which Ctrl-C may leave locked."""

    def task_done(self) -> None:
        """Nothing counts them."""


class Completions(Calls):
    """kazoo's queue of callbacks for answers, which the I/O thread calls itself: `complete`.

    That spares a change of threads for each answer. Nothing that this package does with an answer
    blocks. Callbacks that other threads put here, because the answer was there before they asked
    for it, go the usual way, to a worker.
    """

    def __init__(self) -> None:
        super().__init__()
        self._io_thread: int | None = None
        self._here: deque[Callable[[], object]] = deque()

    def serve(self, loop: Callable[[], object]) -> None:
        """Run ``loop``, the I/O thread's, here, and complete what is left when it ends."""
        self._io_thread = threading.get_ident()
        try:
            loop()
        finally:
            self.complete()
            self._io_thread = None

    def put(
        self, item: Callable[[], object], block: bool = True, timeout: float | None = None
    ) -> None:
        """Have ``item`` called."""
        if threading.get_ident() == self._io_thread:
            self._here.append(item)
        else:
            super().put(item, block, timeout)

    def complete(self) -> None:
        """Call what the I/O thread has put here; nothing in any other thread."""
        if threading.get_ident() != self._io_thread:
            return
        while self._here:
            one = self._here.popleft()
            try:
                one()
            except Exception:
                log.exception("a callback for an answer failed")


class AnswerCondition(type(threading.RLock())):  # type: ignore[misc]
    """The condition of one of kazoo's answers, which Ctrl-C can't leave locked.

    A ``with`` statement enters a lock of C's in one step. It enters `threading.Condition` by a
    function, and Ctrl-C between that function's lock and its return leaves the lock taken; then
    kazoo's I/O thread would wait for it, for ever, when the answer comes.
    """

    _condition: threading.Condition | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is notified. Nothing of ours does, as nothing may block."""
        if self._condition is None:
            self._condition = threading.Condition(self)
        return self._condition.wait(timeout)

    def notify_all(self) -> None:
        """Wake those that wait."""
        if self._condition is not None:
            self._condition.notify_all()
