"""Which thread receives from a connection: that for I/O, or one that waits for what comes."""

from __future__ import annotations

import math
import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from coordlock.runtime.clock import Clock
from coordlock.runtime.process import PROCESS
from coordlock_redis.servers import Link
from coordlock_redis.source import Source

__all__ = ["Poller", "Receiving"]

#: Seconds after its end at which a receiver counts as ended by a signal handler.
_GRACE: Final = 1.0
#: Seconds that the thread for I/O pauses where another thread reads what has woken both.
_PAUSE: Final = 0.001


class Poller:
    """What the thread for I/O waits for. Other threads may change that, where the kernel can.

    Attributes:
        is_shared: whether they may. A selector of gevent would not see it, and might sleep for
            ever.
    """

    def __init__(self) -> None:
        self._selector: Final = selectors.DefaultSelector()
        self._epoll: Any = None
        if isinstance(self._selector, getattr(selectors, "EpollSelector", ())):
            self._epoll = select.epoll.fromfd(os.dup(self._selector.fileno()))
        self.is_shared: Final = self._epoll is not None
        self._woken, self._waking = socket.socketpair()
        for end in (self._woken, self._waking):
            end.setblocking(False)
        self.add(self._woken, self._wakes)

    def add(self, socket: Any, act: Callable[[], object]) -> None:
        """Call ``act`` when something has come over ``socket``. In the thread for I/O."""
        self._selector.register(socket, selectors.EVENT_READ, act)

    def remove(self, socket: Any) -> None:
        """Undo `add`, before ``socket`` is closed. In the thread for I/O.

        After that the kernel goes on to tell of it while the child of a fork has it open, too.
        """
        with suppress(KeyError, ValueError):
            self._selector.unregister(socket)

    def listen(self, socket: Any) -> None:
        """Tell the thread for I/O what comes over ``socket``. From any thread."""
        self._change(socket, select.EPOLLIN | select.EPOLLRDHUP)

    def ignore(self, socket: Any) -> None:
        """Tell the thread for I/O only the end of ``socket``. From any thread."""
        self._change(socket, select.EPOLLRDHUP)

    def _change(self, socket: Any, events: int) -> None:
        try:
            self._epoll.modify(socket, events)
        except (OSError, ValueError, TypeError):
            return  # the thread for I/O has given it up, and closed it

    def wait(self, seconds: float | None) -> None:
        """Wait for what comes, so many ``seconds`` at most, and act on it."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def wake(self) -> None:
        """End the wait. From any thread."""
        with suppress(OSError):  # it has ended already, or for good
            self._waking.send(b"\0")

    def _wakes(self) -> None:
        with suppress(OSError):
            self._woken.recv(4096)

    def close(self) -> None:
        """Wait for nothing more."""
        self._selector.close()
        self._woken.close()
        self._waking.close()
        if self._epoll is not None:
            self._epoll.close()


class Receiving:
    """Lets one thread at a time receive from ``source``.

    The poller need not tell the thread for I/O what another thread reads, nor anything while
    nothing is awaited. To change what it tells takes longer than to read an answer. So a thread
    that waits lets it tell of ``source`` only when it leaves something to the thread for I/O.

    """

    def __init__(self, source: Source, poller: Poller, clock: Clock) -> None:
        self._source: Final = source
        #: Nothing is called while it is held: a signal handler runs where a call ends, and may wait
        #: for the thread for I/O.
        self._lock: Final = threading.RLock()
        self._poller: Final = poller
        self._clock: Final = clock
        self._pid: Final = PROCESS.id
        #: The thread that receives, and until when it does at the latest.
        self._receiver, self._until = 0, 0.0
        #: False where the thread for I/O may not be told of what comes.
        self._is_told = not poller.is_shared

    # In the thread for I/O

    def enter(self) -> None:
        """Let the poller tell of a new connection, and of what comes."""
        link = self._source.link
        if link is not None and link.leave is None:
            self._is_told = True
            self._poller.add(link.socket, self.receive)
            link.leave = partial(self._poller.remove, link.socket)
        self.listen()

    def receive(self) -> None:
        """Take what has come, unless another thread does."""
        me = threading.get_ident()
        with self._lock:
            if is_free := not self._receiver or self._is_late():
                self._receiver, self._until = me, math.inf
        if not is_free:
            self._is_told = True
            self._ignore(self._source.link)
            time.sleep(_PAUSE)
            self.listen()
            return
        try:
            self._source.read()
            self._source.take(lambda: False, is_own=False)
        finally:
            self._receiver = 0

    def _is_late(self) -> bool:
        return self._clock.now() > self._until

    def finish(self) -> None:
        """Take what no selector tells of."""
        link = self._source.link
        if self._source.is_left or (link is not None and link.has_more()):
            self.receive()

    # In any thread

    def listen(self) -> None:
        """Let the thread for I/O know of what comes, unless another thread reads it."""
        if self._is_told or not self._source.is_awaited or (self._receiver and not self._is_late()):
            return
        self._listen(self._source.link)

    def _listen(self, link: Link | None) -> None:
        if link is not None:
            self._is_told = True
            try:
                self._poller.listen(link.socket)
            except BaseException:
                self._is_told = False  # by a signal handler that raised
                raise

    def _ignore(self, link: Link | None) -> None:
        if self._is_told and link is not None:
            try:
                self._poller.ignore(link.socket)
            finally:  # only now: where it is True, another thread need not `listen`
                self._is_told = False

    # In a thread that waits

    def receive_own(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Take what comes until ``is_done``, for so many ``seconds`` at most."""
        if PROCESS.id != self._pid:  # a fork has copied the offer to do this, and shares the poller
            return
        me, source = threading.get_ident(), self._source
        link, now = source.link, self._clock.now()
        until = now + seconds
        try:
            if link is not None and link.is_direct and not is_done():
                with self._lock:
                    if self._receiver in (0, me):
                        self._receiver, self._until = me, until + _GRACE
                if self._receiver == me:
                    self._ignore(link)
                # Only now: the thread for I/O may have received it just before.
                while not is_done() and self._receiver == me and link is source.link:
                    if not link.is_readable(until - now):
                        break
                    source.read()
                    source.take(is_done, is_own=True)
                    if source.is_left:
                        break
                    now = self._clock.now()
        finally:
            with self._lock:
                if self._receiver == me:
                    self._receiver = 0
            if source.is_awaited and not self._receiver:
                self._listen(source.link)
            if source.is_left:
                self._poller.wake()
