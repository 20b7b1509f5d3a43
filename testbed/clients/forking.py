"""Forks: a child must get a clear error from the client that it inherits, and leave it alone.

A child under libfaketime may hang before it begins: there `pthread_cond_init` takes a lock that
whatever thread was just waiting for the interpreter has in the parent, and that nobody gives back
in the child. Python calls it for a lock of its own, before all code that is not Python's.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import mmap
import os
import random
import signal
import threading
import time
from typing import Final

from coordlock.client import AsyncClient, Client
from coordlock.errors import ClientClosed

__all__ = ["fork_now_and_then"]

#: Seconds from one fork to the next.
_PAUSES: Final = (1.0, 5.0)
#: How long a child may take, in seconds: it has next to nothing to do, but may be starved. A run
#: gives its clients more than that to come to rest, so the one that hangs is what fails.
_PATIENCE: Final = 20.0
#: How long it may take to begin, under libfaketime, before another one is made in its place.
_BEGINNING: Final = 10.0


def fork_now_and_then(
    client: Client, other: AsyncClient, draining: threading.Event, dice: random.Random
) -> None:
    """Fork until nothing new is to be begun. Raises AssertionError when a child fails."""
    faulthandler.enable()  # a child that hangs tells where, when it is aborted
    began = mmap.mmap(-1, 1)  # parent and child share it
    while not draining.wait(dice.uniform(*_PAUSES)):
        began[0] = False
        child = os.fork()
        if child == 0:
            began[0] = True
            _try_both(client, other)
        if "FAKETIME_TIMESTAMP_FILE" in os.environ and _never_begins(child, began):
            continue
        status = _ended(child)
        assert status == 0, f"a forked child ended with status {status}"


def _try_both(client: Client, other: AsyncClient) -> None:
    """In the child: no lock that another thread may have had, no output, no exit handlers."""
    status = 1
    try:
        with contextlib.suppress(ClientClosed):
            client.lock("forked").acquire(timeout=1)
            os._exit(2)
        with contextlib.suppress(ClientClosed):
            asyncio.run(_acquire(other))
            os._exit(3)
        client.close()  # the parent's: nothing happens
        status = 0
    finally:
        os._exit(status)


async def _acquire(client: AsyncClient) -> None:
    await client.lock("forked").acquire(timeout=1)


def _never_begins(child: int, began: mmap.mmap) -> bool:
    """Whether ``child`` hangs before it begins; it is killed then."""
    deadline = time.monotonic() + _BEGINNING
    while not began[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True
        time.sleep(0.01)
    return False


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
