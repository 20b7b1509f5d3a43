"""Which thread uses the connection: kazoo's I/O thread, or while that sleeps, those that ask."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import Any, Final

from coordlock.runtime.clock import Clock
from coordlock.runtime.receiving import BLOCKING, offer
from coordlock_zookeeper.connection import Connection
from coordlock_zookeeper.io_thread import Completions, Wakeups

__all__ = ["Receiving", "Sleep"]

#: After so many seconds a thread that takes answers is taken for one that never ends.
_LONGEST: Final = 1.0
#: How often the I/O thread looks whether that has ended, in seconds.
_PAUSE: Final = 0.0002


class Sleep:
    """What the I/O thread waits by for ``wakeups`` and ``socket``, where others can change that."""

    def __init__(self, wakeups: Wakeups, socket: Any) -> None:
        self.rlist: Final = [wakeups, socket]
        self._socket: Final = socket
        self._epoll: Final = select.epoll()
        self._epoll.register(wakeups, select.EPOLLIN)
        self._epoll.register(socket, select.EPOLLIN)
        self._is_left_out = False

    def ready(self, timeout: float | None) -> tuple[list[Any], list[Any]]:
        """Those of `rlist` that are readable within ``timeout`` seconds, and none."""
        found = {number for number, _ in self._epoll.poll(timeout)}
        return [one for one in self.rlist if one.fileno() in found], []

    def leave_out(self) -> None:
        """What comes over the socket is for another thread, and wakes nobody here."""
        self._is_left_out = True
        self._epoll.unregister(self._socket)

    def take_in(self) -> None:
        """What comes over the socket ends the sleep again."""
        if self._is_left_out:
            with suppress(FileExistsError, ValueError):  # Ctrl-C has struck; it is closed
                self._epoll.register(self._socket, select.EPOLLIN)
            self._is_left_out = False

    def close(self) -> None:
        self._epoll.close()


class Receiving(Wakeups):
    """Lets callers send while the I/O thread sleeps, and one that waits next receive.

    See decision 77. A thread that waits for what it asks for, and for nothing else, is the
    *receiver*. What it asks for is sent together, once it blocks. As soon as another thread asks,
    too, the I/O thread receives.

    Args:
        left: kazoo's queue of requests.
    """

    def __init__(self, left: Callable[[], Sized], completions: Completions, clock: Clock) -> None:
        super().__init__(left)
        self._completions: Final = completions
        self._clock: Final = clock
        self._pid: Final = os.getpid()
        #: What others may use while the I/O thread sleeps.
        self._connection: Connection | None = None
        self._sleep: Sleep | None = None
        self._receiver = 0
        #: An eventfd that ends the receiver's wait: from then on answers come to the I/O thread.
        self._revoked = -1
        #: When the receiver began to take what has come; 0 while it does not.
        self._busy_since = 0.0

    # In the I/O thread

    def share(self, connection: Connection, sleep: Sleep) -> None:
        """Callers may use ``connection`` while the I/O thread sleeps by ``sleep``."""
        if self._sleep is not sleep:
            with self._lock:
                if self._sleep is not None:
                    self._sleep.close()
                else:
                    self._revoked = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                self._connection, self._sleep = connection, sleep

    def falls_asleep(self) -> bool:
        with self._lock:
            return super().falls_asleep()

    def awakes(self, woken: bool) -> None:
        """Take the connection back, once the receiver has taken what it has read."""
        while not self._takes_back():
            time.sleep(_PAUSE)
        super().awakes(woken)

    def _takes_back(self) -> bool:
        with self._lock:
            if self._busy_since:
                if self._clock.now() - self._busy_since <= _LONGEST:
                    return False
                if self._connection is not None:
                    self._connection.give_up()
                self._busy_since = 0.0
            if self._receiver:
                self._end()
                os.eventfd_write(self._revoked, 1)
            self._sleeps = False
        return True

    # In others

    def send(self, data: bytes) -> int:
        """Announce a request. Raises OSError when closed."""
        with self._lock:
            if self._writer < 0:
                raise OSError("the connection is closed")
            if self._sleeps and not self._may_wait():
                is_sent = self._connection is not None and self._connection.send_now()
                if not is_sent or self._receiver not in (0, threading.get_ident()):
                    self._wake()
        return len(data)

    def _may_wait(self) -> bool:
        """Whether a request of the calling thread is sent when that blocks."""
        me = threading.get_ident()
        if self._receiver or not BLOCKING.is_near:
            return self._receiver == me and not self._busy_since
        if self._connection is None or not self._connection.is_of(me):
            return False
        if not offer(self.receive):
            return False
        self._receiver = me
        if self._sleep is not None:
            self._sleep.leave_out()
        return True

    def receive(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Send what was asked for, and take what comes until ``is_done``, for so many seconds."""
        me, connection = threading.get_ident(), self._connection
        if os.getpid() != self._pid or self._receiver != me or connection is None:
            return
        if self._busy_since:  # a signal handler asks while its thread takes what has come
            return
        until = self._clock.now() + seconds
        try:
            with self._lock:
                is_sent = self._receiver == me and connection.send_now()
            while is_sent and self._receiver == me and not is_done():
                seconds = until - self._clock.now()
                if self._comes(connection, seconds) and not self._take(me, connection):
                    break
                if seconds <= 0:
                    break
        finally:
            with self._lock:
                if self._receiver == me:
                    self._completions.stand_back()
                    self._busy_since = 0.0  # where Ctrl-C has struck what ends that
                    self._end()
                    if connection.is_left():
                        self._wake()

    def _comes(self, connection: Connection, seconds: float) -> bool:
        """Wait so long for something to come; False also where that is for the I/O thread."""
        poll = select.poll()
        try:
            poll.register(connection, select.POLLIN)
            poll.register(self._revoked, select.POLLIN)
        except ValueError:  # it is closed
            return False
        found = {number for number, _ in poll.poll(max(0.0, seconds) * 1e3)}
        if self._revoked in found:
            with self._lock, suppress(BlockingIOError):
                if self._revoked >= 0:
                    os.eventfd_read(self._revoked)
        return connection.fileno() in found

    def _take(self, me: int, connection: Connection) -> bool:
        """Take what has come; False where the I/O thread must."""
        try:
            with self._lock:
                if self._receiver != me or not connection.is_of(me):
                    return False
                self._busy_since = self._clock.now()
            self._completions.stand_in()
            connection.take()
            self._completions.complete()
        except BaseException as error:
            # A signal handler has raised. What it has lost is asked for on the next connection.
            connection.give_up()
            if not isinstance(error, Exception):
                raise
        finally:
            with self._lock:
                if self._receiver == me:
                    self._completions.stand_back()
                    self._busy_since = 0.0
        return self._receiver == me and not connection.has_ended

    def _end(self) -> None:
        """The I/O thread receives again."""
        if self._receiver:
            if self._sleep is not None:
                self._sleep.take_in()
            self._receiver = 0  # not before: where a signal handler raises, this is done again

    def close(self) -> None:
        with self._lock:
            if self._sleep is not None:
                self._sleep.close()
                os.close(self._revoked)
            self._connection, self._sleep, self._revoked = None, None, -1
        super().close()
