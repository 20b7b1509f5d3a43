"""What a process has taken of the processor."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_of", "cpu_of_threads"]


def cpu_of(pid: int) -> float:
    """Seconds of CPU that process ``pid`` has taken, in steps of the kernel's clock: 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_threads(pid: int) -> float:
    """Seconds of CPU that the threads of ``pid`` that live now have taken, to the nanosecond.

    Steps of 10 ms say nothing of processes that take less than that.
    """
    found = (one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in found) / 1e9
