"""What a process has taken of the processor."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_of"]


def cpu_of(pid: int) -> float:
    """Seconds of CPU that process ``pid`` has taken, in steps of the kernel's clock: 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
