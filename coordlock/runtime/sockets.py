"""Waiting for sockets."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

__all__ = ["ready"]


def ready(
    readers: Sequence[Any], writers: Sequence[Any] = (), timeout: float | None = None
) -> tuple[list[Any], list[Any]]:
    """Those that can be read and those that can be written, within ``timeout`` seconds.

    It takes one system call. A socket has ended when nothing can be read from it.
    """
    if not hasattr(select, "poll"):  # on Windows
        readable, writable, _ = select.select(readers, writers, [], timeout)
        return readable, writable
    poll = select.poll()
    for one in readers:
        poll.register(one, select.POLLIN)
    for one in writers:
        poll.register(one, select.POLLOUT)
    found = {number for number, _ in poll.poll(None if timeout is None else timeout * 1e3)}
    return (
        [one for one in readers if one.fileno() in found],
        [one for one in writers if one.fileno() in found],
    )
