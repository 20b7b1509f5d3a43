"""One connection, as the threads see it that take turns to receive from it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from redis import exceptions

from coordlock_redis.servers import Link

__all__ = ["BROKEN", "INTERRUPTED", "Source"]

#: What reading and writing a connection raise.
BROKEN: Final = (exceptions.RedisError, OSError, ValueError, AttributeError)
#: By a signal handler.
INTERRUPTED: Final = OSError("a request or its answer was interrupted")


class Source(ABC):
    """A connection, and what has come over it and was not taken yet.

    Attributes:
        link: the connection, if there is one.
    """

    def __init__(self) -> None:
        self.link: Link | None = None
        #: Nothing is called where other threads than that for I/O hold it. So no signal handler
        #: runs there, which might itself wait for the thread for I/O.
        self._lock: Final = threading.RLock()
        #: What has come, and was not taken yet.
        self._arrived: deque[Any] = deque()
        #: Why the connection must be given up; None while it works.
        self._trouble: Exception | None = None
        #: The connection that a thread is reading from.
        self._reading: Link | None = None

    @property
    def is_left(self) -> bool:
        """Whether something has come and was not taken, or went wrong."""
        return bool(self._arrived or self._trouble or self._reading)

    @property
    @abstractmethod
    def is_awaited(self) -> bool:
        """Whether something may come that must be heard."""

    def read(self) -> None:
        """Read what has come, and keep it; without the lock."""
        link = self.link
        if link is None or self._trouble is not None:
            return
        if self._reading is link:  # a signal handler has ended that, or is in the middle of it
            self._trouble = INTERRUPTED  # where the next answer begins is unknown
            return
        self._reading = link
        trouble: Exception | None = None
        try:
            try:
                found = link.read()
            except BROKEN as error:
                found, trouble = [], error
            with self._lock:
                if link is self.link:
                    self._arrived += found
                    if trouble is not None:
                        self._trouble = trouble
                self._reading = None
        except BaseException:
            self._trouble = INTERRUPTED
            raise

    @abstractmethod
    def take(self, is_done: Callable[[], bool], *, is_own: bool) -> None:
        """Take what was read, until ``is_done``; if ``is_own``, only what a waiter may take."""
