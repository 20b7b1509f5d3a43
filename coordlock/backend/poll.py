"""Waiting for sockets."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

__all__ = ["ready"]


def ready(
    readers: Sequence[Any], writers: Sequence[Any] = (), timeout: float | None = None
) -> list[Any]:
    """Those of which data or the end can be read, or to which data can be written.

    It waits for up to ``timeout`` seconds by one system call; None for ever.
    """
    if not hasattr(select, "poll"):  # on Windows
        readable, writable, _ = select.select(readers, writers, [], timeout)
        return readable + writable
    poll = select.poll()
    by_number = {socket.fileno(): socket for socket in (*readers, *writers)}
    if -1 in by_number:  # another thread has closed it, which is its end
        return [by_number[-1]]
    for number, socket in by_number.items():
        events = select.POLLIN if socket in readers else 0
        poll.register(number, events | (select.POLLOUT if socket in writers else 0))
    found = poll.poll(None if timeout is None else timeout * 1e3)
    return [by_number[number] for number, _ in found]
