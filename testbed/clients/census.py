"""What a client process has of things that can leak: threads and file descriptors."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from coordlock_faults.events import Counted
from coordlock_faults.journal import Journal

from coordlock.settings import Settings
from testbed.clients.attempt_log import THREADS

__all__ = ["Census", "open_descriptors"]

#: How long what has been given up may take to go, in seconds: kazoo's stop waits for its threads.
_PATIENCE: Final = 15.0
#: Connections to each server that an etcd client keeps: one in use, and one that was silent and
#: may still be answered. A ZooKeeper client has one in all.
_CHANNELS: Final = 2
#: Files of queues, and the counter, that a local client keeps open.
_FILES: Final = 17


class Census:
    """What coordlock has in this process; counted when it is made, and again after quiescence.

    Threads are Python's own but for the main one and the workload's: gRPC's core has a pool of
    others that grows and shrinks as it likes. Workers must not run while it counts.
    """

    def __init__(self, journal: Journal, clients: Sequence[Settings]) -> None:
        self._journal = journal
        # An etcd client has one connection now, and may come to know more servers.
        more = sum(_CHANNELS * len(one.hosts) - 1 for one in clients if one.scheme == "etcd")
        more += sum(_FILES for one in clients if one.scheme == "local")
        self._threads, self._descriptors = _threads(), len(open_descriptors()) + more

    def write(self, *, baseline: bool) -> None:
        """Write down what was counted last."""
        name = self._journal.process
        self._journal.log(Counted, f"threads of {name}", self._threads, baseline)
        self._journal.log(Counted, f"descriptors of {name}", self._descriptors, baseline)

    def repeat(self) -> None:
        """Count again and write it down: when it is no more than at first, or gets no less."""
        deadline = time.monotonic() + _PATIENCE
        gc.collect()
        while True:
            threads, descriptors = _threads(), len(open_descriptors())
            if threads <= self._threads and descriptors <= self._descriptors:
                break
            if time.monotonic() > deadline:
                kinds = sorted(kind.partition(":[")[0] for kind in open_descriptors())
                print(f"more than at first: {kinds}", file=sys.stderr)
                break
            time.sleep(0.1)
        self._threads, self._descriptors = threads, descriptors
        self.write(baseline=False)


def _threads() -> int:
    own = threading.main_thread()
    every = threading.enumerate()
    return sum(one is not own and not one.name.startswith(THREADS) for one in every)


def open_descriptors() -> list[str]:
    """What this process has open: a path or a kind for each descriptor."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    # kazoo makes a descriptor for each time that it waits.
    return [kind for kind in found if kind != "anon_inode:[eventpoll]"]
