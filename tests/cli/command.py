"""The command line as real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coordlock.testing.waiting import eventually

__all__ = ["Cli", "is_gone"]


class Cli:
    """``coordlock ... --url URL`` as a process; the output is text."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("COORDLOCK")}
        self.environment["COORDLOCK_URL"] = url
        self.environment.pop("PYTHONUNBUFFERED", None)  # few users have it

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "coordlock.cli", *arguments]

    def run(
        self, *arguments: str, input: str | None = "", **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
            input=input,
            timeout=120,
            **{"env": self.environment, **options},
        )
        return done

    @contextmanager
    def started(self, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """Start it; what is still there at the end is killed."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(
            self.command(*arguments),
            **{**pipes, "text": True, "cwd": self.directory, "env": self.environment, **options},
        )
        with process:
            try:
                yield process
            finally:
                process.kill()  # before it is waited for, which a stopped one would never end

    @contextmanager
    def holding(self, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
        """`coordlock hold`, once it holds."""
        with self.started("hold", name, *options) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip().isdecimal()
            yield process

    def show(self, name: str) -> list[dict[str, Any]]:
        """The contenders of ``name``, as the command shows them."""
        contenders: list[dict[str, Any]] = json.loads(self.run("show", name, "--json").stdout)[
            "contenders"
        ]
        return contenders

    def wait_for_queue(self, name: str, length: int) -> None:
        """Return when ``length`` contenders stand in the queue."""
        eventually(lambda: len(self.show(name)) == length, f"{length} in the queue of {name}")


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
