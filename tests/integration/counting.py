"""A process that counts up under a lock, in the service that keeps the lock, and stops in between.

``python -m tests.integration.counting URL KEY SEED`` prints a line for each thing that happens:
``read N``, ``stopped`` before it stops itself (SIGSTOP), and ``made N``, ``refused`` or ``unknown``
for what came of its write. It ends when its input does.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import coordlock
from coordlock import Grant
from coordlock.testing.waiting import eventually
from coordlock.types import VersionedValue

__all__ = ["Census", "count_together"]

#: How often, in writes, a process stops between its read and its write.
_STOPS = 1 / 10


def say(*words: object) -> None:
    print(*words, flush=True)


def count_once(grant: Grant, key: str, dice: random.Random) -> None:
    found = grant.read(key) or VersionedValue(b"0", 0)
    number = int(found.data) + 1
    say("read", number - 1)
    if dice.random() < _STOPS:
        say("stopped")
        os.kill(os.getpid(), signal.SIGSTOP)
    # The clock would tell that it is too late. Here the service alone has to.
    vars(grant)["check"] = lambda: None
    try:
        grant.transaction().put(key, b"%d" % number).commit()
    except coordlock.LockLost:
        say("refused")
    except coordlock.BackendUnavailable:
        say("unknown")
    else:
        say("made", number)


def work(url: str, key: str, seed: str) -> None:
    dice = random.Random(seed)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    with coordlock.connect(url) as client:
        while not ended.is_set():
            with suppress(
                coordlock.LockLost,
                coordlock.SessionLost,
                coordlock.BackendUnavailable,
                coordlock.AcquireTimeout,
            ):
                grant = client.lock("counter").acquire(timeout=10)
                try:
                    count_once(grant, key, dice)
                finally:
                    grant.release()


@dataclass
class Census:
    """What became of all writes."""

    made: list[int] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str, number: str = "") -> None:
        """One of the processes did ``what``. Called by their listeners."""
        with self._lock:
            self.happened[what] += 1
            if what == "made":
                self.made.append(int(number))

    def check(self, stored: VersionedValue | None) -> None:
        """Every write counted one up from what was there, and no acknowledged one is missing.

        Whoever was overtaken had lost the lock.
        """
        assert stored is not None
        happened = self.happened
        assert happened["refused"] + happened["unknown"] >= happened["overtaken"] > 0
        assert int(stored.data) == stored.version, "a write was lost under a stale one"
        assert len(set(self.made)) == len(self.made)
        assert max(self.made) <= stored.version
        assert len(self.made) <= stored.version <= len(self.made) + happened["unknown"]


class _Process:
    """One of the processes, and the thread that listens to it."""

    def __init__(self, url: str, key: str, seed: str, census: Census) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.counting", url, key, seed],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ended = False
        self._census = census
        self._listener = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._listener.join()
            self.process.__exit__(None, None, None)  # closes its pipes

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, _, number = line.strip().partition(" ")
            self._census.note(what, number)
            if what == "stopped":
                self._wait_for_another()
                self.process.send_signal(signal.SIGCONT)

    def _wait_for_another(self) -> None:
        """Until it stands still and somebody else has written meanwhile; all may have stopped."""
        state = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: state.read_text().rpartition(") ")[2].startswith("T"))
        happened, before = self._census.happened, self._census.happened["made"]
        # One write may have been made before, and not been told yet.
        with suppress(TimeoutError):
            eventually(lambda: self.ended or happened["made"] > before + 1, within=8)
        if happened["made"] > before + 1:
            self._census.note("overtaken")


def count_together(urls: Sequence[str], key: str, *, stops: int, writes: int) -> Census:
    """Let a process for each URL count, until ``stops`` were overtaken, and so many were made."""
    census = Census()
    with ExitStack() as stack:
        for number, url in enumerate(urls):
            stack.enter_context(_Process(url, key, f"{number}", census))
        eventually(
            lambda: census.happened["overtaken"] >= stops and len(census.made) >= writes, within=90
        )
    return census


if __name__ == "__main__":
    work(*sys.argv[1:])
