"""Which thread receives from a connection: that for I/O, or one that waits for what comes."""

from __future__ import annotations

import math
import os
import selectors
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from coordlock.runtime.clock import Clock
from coordlock_redis.servers import Link

__all__ = ["Receiving", "Source"]

#: After so many seconds it is taken for one that a signal handler has ended.
_LONGEST: Final = 1.0


class Source(Protocol):
    """What comes over a connection. What was read is kept until it was taken to the end."""

    @property
    def link(self) -> Link | None:
        """The connection, if there is one."""

    @property
    def is_left(self) -> bool:
        """Whether something was read and not taken, or went wrong."""

    def read(self) -> None:
        """Read what has come, and keep it."""

    def take(self, is_done: Callable[[], bool], *, is_own: bool) -> None:
        """Take what was read, until ``is_done``; if ``is_own``, only what a waiter may take."""

    def give_up(self) -> None:
        """Note that the connection is of no use any more; the thread for I/O then closes it."""


class Receiving:
    """Lets one thread at a time receive from ``source``.

    Args:
        lock: what the threads share; reentrant.
        selector: of the thread for I/O, which `wake` wakes.
    """

    def __init__(
        self,
        source: Source,
        lock: threading.RLock,
        selector: selectors.BaseSelector,
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._source: Final = source
        self._lock: Final = lock
        self._selector: Final = selector
        self._wake: Final = wake
        self._clock: Final = clock
        self._pid: Final = os.getpid()
        #: The thread that receives, and until when it does at the latest.
        self._receiver, self._until = 0, 0.0
        #: What the selector may have.
        self._selected: Any = None

    # In the thread for I/O

    def unselect(self) -> None:
        """Don't wait for what comes over a connection that is gone, or that another thread reads.

        For all connections, before `select`: a new one may have the number of one that was closed.
        """
        with self._lock:
            if self._selected is not None and self._selected is not self._wanted():
                self._unregister()

    def select(self) -> None:
        """Wait for what comes."""
        with self._lock:
            if self._selected is None and (wanted := self._wanted()) is not None:
                self._selected = wanted
                try:
                    self._selector.register(wanted, selectors.EVENT_READ, self.receive)
                except BaseException:
                    self._give_up()
                    raise

    def _unregister(self) -> None:
        try:
            if self._selected is not None:
                with suppress(KeyError, ValueError):  # it was closed, or the thread has ended
                    self._selector.unregister(self._selected)
        except BaseException:
            self._give_up()
            raise
        self._selected = None

    def _give_up(self) -> None:
        """Close the socket: only then it is surely not selected, where a signal handler raised."""
        self._source.give_up()
        self._wake()

    def _wanted(self) -> Any:
        link = self._source.link
        return link.socket if link is not None and self._is_free() else None

    def _is_free(self) -> bool:
        return not self._receiver or self._clock.now() > self._until

    def receive(self) -> None:
        """Take what has come, unless another thread does."""
        with self._lock:
            if not self._is_free():
                return
            self._receiver, self._until = threading.get_ident(), math.inf
        try:
            self._source.read()
            self._source.take(lambda: False, is_own=False)
        finally:
            self._receiver = 0

    def finish(self) -> None:
        """Take what no selector tells of."""
        link = self._source.link
        if self._source.is_left or (link is not None and link.has_more()):
            self.receive()

    # In a thread that waits

    def begin(self) -> None:
        """Let the calling thread receive from now on, if it can, until it calls `receive_own`."""
        if os.getpid() != self._pid:  # a fork has copied the offer, and shares the selector
            return
        me = threading.get_ident()
        with self._lock:
            link = self._source.link
            if link is None or not link.is_direct or self._receiver not in (0, me):
                return
            self._receiver, self._until = me, self._clock.now() + _LONGEST
            self._unregister()

    def receive_own(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Take what comes until ``is_done``, for so many ``seconds`` at most."""
        if os.getpid() != self._pid:  # a fork has copied the offer to do this
            return
        me, source = threading.get_ident(), self._source
        link, until = source.link, self._clock.now() + seconds
        try:
            while (
                not is_done()
                and self._receiver == me
                and link is not None
                and link is source.link
                and link.is_readable(until - self._clock.now())
            ):
                source.read()
                source.take(is_done, is_own=True)
                if source.is_left:
                    break
        finally:
            with self._lock:
                if self._receiver == me:
                    self._receiver = 0
                    self._select_again()
            if source.is_left:
                self._wake()

    def _select_again(self) -> None:
        try:
            self.select()
        except (KeyError, ValueError, OSError):  # it is about to be given up
            self._wake()
