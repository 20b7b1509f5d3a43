"""Which thread uses the connection: kazoo's I/O thread, or while that sleeps, those that ask."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sized
from contextlib import suppress
from functools import partial
from typing import Any, Final

from coordlock.runtime.clock import Clock
from coordlock.runtime.process import PROCESS
from coordlock.runtime.receiving import BLOCKING, offer
from coordlock_zookeeper.connection import Connection
from coordlock_zookeeper.io_thread import Completions, Wakeups

__all__ = ["Receiving", "Sleep"]

#: Seconds from one look of the I/O thread to the next, while another thread uses the connection;
#: and the most looks, or the most after the connection has ended.
_PAUSE, _MOST, _FEW = 0.0002, 5000, 250
#: Which thread uses the connection, with a minus while it tells what it has taken; and which one
#: receives.
_USER, _RECEIVER = "user", "receiver"
_Threads = dict[str, int]


class Sleep:
    """Waits for ``wakeups`` and ``socket`` in the I/O thread; others can leave out the socket."""

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
        """Let what comes over the socket wake only another thread."""
        self._is_left_out = True
        with suppress(OSError, ValueError):  # it was given up meanwhile
            self._epoll.unregister(self._socket)

    def take_in(self) -> None:
        """Let what comes over the socket end the sleep again."""
        if self._is_left_out:
            with suppress(OSError, ValueError):  # Ctrl-C has struck; it is closed
                self._epoll.register(self._socket, select.EPOLLIN)
            self._is_left_out = False

    def close(self) -> None:
        self._epoll.close()


class Receiving(Wakeups):
    """Lets callers send while the I/O thread sleeps, and one that waits next receive.

    See decision 83. A thread that waits for what it asks for, and for nothing else, is the
    *receiver*. It sends all that it asks for at once, when it blocks. As soon as another thread
    asks, too, the I/O thread receives.

    One thread at a time uses the connection; the I/O thread does whenever it is awake. No other
    waits for its turn: it wakes the I/O thread. Where a signal handler asks for something while its
    thread uses the connection, the connection is given up, as nobody knows what was sent or taken.

    Args:
        left: kazoo's queue of requests.
    """

    def __init__(self, left: Callable[[], Sized], completions: Completions, clock: Clock) -> None:
        super().__init__(left)
        self._completions: Final = completions
        self._clock: Final = clock
        self._pid: Final = PROCESS.id
        #: What others may use while the I/O thread sleeps.
        self._connection: Connection | None = None
        self._sleep: Sleep | None = None
        #: An eventfd that ends the receiver's wait: from then on answers come to the I/O thread.
        self._revoked = -1
        #: Replaced where a thread never leaves the connection: it may still change the old one.
        self._threads: _Threads = {}

    # In the I/O thread

    def share(self, connection: Connection, sleep: Sleep) -> None:
        """Callers may use ``connection`` while the I/O thread sleeps by ``sleep``."""
        if self._sleep is not sleep:
            if self._sleep is not None:
                self._sleep.close()
            else:
                self._revoked = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._connection, self._sleep = connection, sleep

    def falls_asleep(self) -> bool:
        sleeps = super().falls_asleep()
        if sleeps:
            self._threads.pop(_USER, None)
        return sleeps

    def awakes(self, woken: bool) -> None:
        """Take the connection back, once no other thread uses it."""
        me, connection, pauses = threading.get_ident(), self._connection, 0
        while self._threads.setdefault(_USER, me) != me:
            if connection is None or pauses > (_FEW if connection.has_ended else _MOST):
                self._threads = {_USER: me}
                if connection is not None:
                    connection.abandon()
                break
            time.sleep(_PAUSE)
            pauses += 1
        self._completions.stand_back()  # in case Ctrl-C has kept `_take` from it
        if self._threads.get(_RECEIVER):
            self._end(self._threads)
            os.eventfd_write(self._revoked, 1)
        super().awakes(woken)

    # In others

    def send(self, data: bytes) -> int:
        """Announce a request. Raises OSError when closed."""
        if self._writer < 0:
            raise OSError("the connection is closed")
        if self._sleeps and not self._is_sent():
            self._wake()
        return len(data)

    def _is_sent(self) -> bool:
        """Whether the request was sent, or will be, while the I/O thread sleeps on."""
        threads, connection, me = self._threads, self._connection, threading.get_ident()
        if connection is None:
            return False
        user = threads.get(_USER)
        if user == me:  # this is a signal handler
            connection.give_up()
            return False
        if user == -me:  # an answer leads to the next request
            threads[_USER] = me
            try:
                return connection.send_now()
            finally:
                threads[_USER] = -me
        return _use(threads, partial(self._send, threads, connection))

    def _send(self, threads: _Threads, connection: Connection) -> bool:
        """Send what was asked for, now or when that blocks; whether the I/O thread may sleep on."""
        me, receiver = threading.get_ident(), threads.get(_RECEIVER, 0)
        if not receiver and BLOCKING.is_near and self._sleep is not None and connection.is_of(me):
            threads[_RECEIVER] = me
            self._sleep.leave_out()
            if offer(self.receive):
                return True
            self._end(threads)
        return receiver == me or (connection.send_now() and not receiver)

    def receive(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Send what was asked for, and take what comes until ``is_done``, for so many seconds."""
        me, connection, threads = threading.get_ident(), self._connection, self._threads
        if PROCESS.id != self._pid or threads.get(_RECEIVER) != me or connection is None:
            return
        if threads.get(_USER) in (me, -me):  # a signal handler waits
            connection.give_up()
            self._wake()
            return
        until = self._clock.now() + seconds
        try:
            goes_on = _use(threads, connection.send_now)
            while goes_on and threads.get(_RECEIVER) == me and not is_done():
                seconds = until - self._clock.now()
                if self._comes(connection, seconds):
                    goes_on = _use(threads, partial(self._take, threads, connection))
                elif seconds <= 0:
                    break
        finally:
            # Where that fails, the I/O thread does it as it awakes.
            if threads.get(_RECEIVER) == me and not _use(threads, partial(self._end, threads)):
                self._wake()

    def _comes(self, connection: Connection, seconds: float) -> bool:
        """Wait so long for something to come; False also where that is for the I/O thread."""
        poll = select.poll()  # of its own: a signal handler may wait, too
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

    def _take(self, threads: _Threads, connection: Connection) -> bool:
        """Take what has come; False where the I/O thread must."""
        me = threading.get_ident()
        if threads.get(_RECEIVER) != me or not connection.is_of(me):
            return False
        try:
            self._completions.stand_in()
            connection.take()
            threads[_USER] = -me
            self._completions.complete()
        except BaseException as error:
            # A signal handler has raised. What it has lost is asked for on the next connection.
            connection.give_up()
            if not isinstance(error, Exception):
                raise
        finally:
            self._completions.stand_back()
        return not connection.has_ended

    def _end(self, threads: _Threads) -> bool:
        """The I/O thread receives again; False where it has something to do."""
        if self._sleep is not None:
            self._sleep.take_in()
        threads.pop(_RECEIVER, None)  # not before: where a signal handler raises, it is done again
        return self._connection is None or not self._connection.is_left()

    def close(self) -> None:
        with self._lock:
            if self._sleep is not None:
                self._sleep.close()
                os.close(self._revoked)
            self._connection, self._sleep, self._revoked = None, None, -1
        super().close()


def _use(threads: _Threads, act: Callable[[], bool]) -> bool:
    """``act``, if no thread uses the connection; what that returns, else False."""
    me = threading.get_ident()
    try:
        return threads.setdefault(_USER, me) == me and act()
    finally:
        try:
            _leave(threads, me)
        finally:
            _leave(threads, me)  # again, as a signal handler that raises may have kept the first


def _leave(threads: _Threads, me: int) -> None:
    if threads.get(_USER) in (me, -me):
        threads.pop(_USER, None)
