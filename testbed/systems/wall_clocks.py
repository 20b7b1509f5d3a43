"""Wall clocks of processes, which jump by hours, while CLOCK_MONOTONIC goes on as it does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["WallClock", "WallClocks"]

#: What puts a process under a clock of its own; from Debian's package ``libfaketime``.
_LIBRARIES: Final = tuple(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


class WallClock:
    """The wall clock of the processes that are started with ``environment``.

    They must get the time by libc: Go's programs, such as etcd, don't.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        """What to put into the environment of a process."""
        if not _LIBRARIES:
            raise FileNotFoundError("libfaketime is not installed; on Debian, `make servers` does")
        return {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            # Seconds. Reading the file each time would make a server slow.
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # A workaround for an old libc, on in Debian's build: today's JVM waits forever with it.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    @property
    def environment_for_redis(self) -> dict[str, str]:
        """The same for a program with jemalloc, which wants the time before libfaketime is ready.

        So it gets an allocator of glibc's.
        """
        environment = self.environment
        environment["LD_PRELOAD"] = f"libc_malloc_debug.so.0 {environment['LD_PRELOAD']}"
        return environment

    def set(self, seconds: int) -> None:
        """Go wrong by so much; 0 is right. Processes notice within a second."""
        # Renamed into place: a reader never sees half of it.
        written = self._file.with_suffix(".new")
        written.write_text(f"{seconds:+d}\n")
        os.replace(written, self._file)


class WallClocks:
    """A wall clock for each name, kept as files in ``directory``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._clocks: dict[str, WallClock] = {}

    def clock(self, name: str) -> WallClock:
        """The clock of ``name``, right at first."""
        if name not in self._clocks:
            self._clocks[name] = WallClock(self._directory / name)
        return self._clocks[name]

    def heal(self) -> None:
        """All are right again."""
        for clock in self._clocks.values():
            clock.set(0)
