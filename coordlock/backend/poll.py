"""Waiting for sockets."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

__all__ = ["Poll"]


class Poll:
    """Waits for sockets by one system call. One thread may use it at a time.

    It keeps the numbers of the sockets that it waited for last.
    """

    def __init__(self) -> None:
        self._sockets: tuple[list[Any], list[Any]] | None = None
        self._by_number: dict[int, Any] = {}
        self._poll: Any = None

    def ready(
        self, readers: Sequence[Any], writers: Sequence[Any] = (), timeout: float | None = None
    ) -> list[Any]:
        """Those of which data or the end can be read, or to which data can be written.

        It waits for up to ``timeout`` seconds; None for ever.
        """
        if not hasattr(select, "poll"):  # on Windows
            readable, writable, _ = select.select(readers, writers, [], timeout)
            return readable + writable
        sockets = ([*readers], [*writers])
        if sockets != self._sockets:
            self._sockets, self._poll = sockets, select.poll()
            self._by_number = {socket.fileno(): socket for socket in (*readers, *writers)}
            for socket in self._by_number.values():
                events = select.POLLIN if socket in readers else 0
                self._poll.register(socket, events | (select.POLLOUT if socket in writers else 0))
        found = self._poll.poll(None if timeout is None else timeout * 1e3)
        return [self._by_number[number] for number, _ in found]
