"""What the thread for I/O waits for."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from coordlock_redis.servers import Link

__all__ = ["Poller"]


class Poller:
    """Waits for several connections. All but `wake` is for the thread for I/O."""

    def __init__(self) -> None:
        self._selector: Final = selectors.DefaultSelector()
        self._woken, self._waking = socket.socketpair()
        for end in (self._woken, self._waking):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._clear)

    def add(self, link: Link, receive: Callable[[], object]) -> None:
        """Call ``receive`` when something has come over ``link``, until that is closed."""
        # Before the socket is closed: while the child of a fork has it open, too, the kernel would
        # go on to report it.
        link.leave = partial(self._remove, link.socket)
        self._selector.register(link.socket, selectors.EVENT_READ, receive)

    def _remove(self, end: socket.socket) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(end)

    def wait(self, seconds: float | None) -> None:
        """Wait for what comes, so many ``seconds`` at most, and act on it."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def wake(self) -> None:
        """End the wait. From any thread."""
        with suppress(OSError):  # it has ended already, or for good
            self._waking.send(b"\0")

    def _clear(self) -> None:
        with suppress(OSError):
            self._woken.recv(4096)

    def close(self) -> None:
        """Wait for nothing more."""
        self._selector.close()
        self._woken.close()
        self._waking.close()
