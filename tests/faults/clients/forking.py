"""Forks: a child must get a clear error from the client that it inherits, and leave it alone."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import random
import signal
import threading
import time
from typing import Final

from coordlock.client import AsyncClient, Client
from coordlock.errors import ForkedClient

__all__ = ["fork_now_and_then"]

#: Seconds from one fork to the next.
_PAUSES: Final = (1.0, 5.0)
#: How long a child may take, in seconds: it has next to nothing to do, but may be starved.
_PATIENCE: Final = 60.0


def fork_now_and_then(
    client: Client, other: AsyncClient, draining: threading.Event, dice: random.Random
) -> None:
    """Fork until nothing new is to be begun. Raises AssertionError when a child fails."""
    faulthandler.enable()  # a child that hangs tells where, when it is aborted
    while not draining.wait(dice.uniform(*_PAUSES)):
        child = os.fork()
        if child == 0:
            _try_both(client, other)
        status = _ended(child)
        assert status == 0, f"a forked child ended with status {status}"


def _try_both(client: Client, other: AsyncClient) -> None:
    """In the child: no lock that another thread may have had, no output, no exit handlers."""
    status = 1
    try:
        with contextlib.suppress(ForkedClient):
            client.lock("forked").acquire(timeout=1)
            os._exit(2)
        with contextlib.suppress(ForkedClient):
            asyncio.run(_acquire(other))
            os._exit(3)
        client.close()  # the parent's: nothing happens
        status = 0
    finally:
        os._exit(status)


async def _acquire(client: AsyncClient) -> None:
    await client.lock("forked").acquire(timeout=1)


def _ended(child: int) -> int:
    """The status of ``child``, which is aborted if it hangs."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGABRT)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        time.sleep(0.01)
