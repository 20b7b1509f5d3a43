"""A command that shows when it was last alive."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from coordlock.testing.waiting import eventually
from tests.cli.command import is_gone

__all__ = ["Beating"]


class Beating:
    """A command and its child, which both append the time to a file, as long as they live.

    Both ignore SIGTERM when ``stubborn``: only SIGKILL ends them.
    """

    PROGRAM = """\
import os, signal, sys, time
directory, stubborn, first = sys.argv[1], sys.argv[2] == "yes", sys.argv[3] == "first"
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if first and os.fork() == 0:
    os.execv(sys.executable, [sys.executable, __file__, directory, sys.argv[2], "second"])
with open(os.path.join(directory, f"beats-{os.getpid()}"), "w", buffering=1) as beats:
    while True:
        beats.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
        time.sleep(0.005)
"""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.program = directory / "beating.py"
        self.program.write_text(self.PROGRAM)

    def command(self, *, stubborn: bool) -> list[str]:
        """The command line to run under a lock."""
        word = "yes" if stubborn else "no"
        return [sys.executable, str(self.program), str(self.directory), word, "first"]

    def pids(self) -> list[int]:
        """Those that have started."""
        return [int(file.name.split("-")[1]) for file in self.directory.glob("beats-*")]

    def wait_until_both_beat(self) -> None:
        eventually(
            lambda: sum(f.stat().st_size > 0 for f in self.directory.glob("beats-*")) == 2,
            "both beat",
        )

    def are_gone(self) -> bool:
        """Whether both have ended."""
        return all(is_gone(pid) for pid in self.pids())

    def last(self) -> float:
        """When the last of them was alive, on CLOCK_BOOTTIME."""
        return max(times[-1] for times in self._times())

    def stood_still(self) -> bool:
        """Whether the machine stood still for a second: then nothing could end them in time."""
        return any(
            later - earlier > 1
            for times in self._times()
            for earlier, later in itertools.pairwise(times)
        )

    def _times(self) -> list[list[float]]:
        return [
            list(map(float, file.read_text().split())) for file in self.directory.glob("beats-*")
        ]
