"""The peers' packages, in environments of their own, where they disturb nobody."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.progress import doing

__all__ = [
    "AETCD",
    "ETCD3",
    "ETCDCTL",
    "FILELOCK",
    "OURS",
    "REDIS_LOCK",
    "TOOZ",
    "Environment",
    "NotInstalled",
]

_UNDER: Final = Path("build/bench/environments")


class NotInstalled(Exception):
    """A peer cannot be had on this machine; the message says why."""


@dataclass(frozen=True)
class Environment:
    """Where a contestant runs.

    Attributes:
        name: the directory's.
        packages: what pip installs; none: the environment of the benchmark itself.
        command: a program that must be on the path.
    """

    name: str
    packages: tuple[str, ...] = ()
    command: str | None = None

    def python(self) -> Path:
        """The interpreter, after making the environment if need be. Raises `NotInstalled`."""
        if self.command is not None and shutil.which(self.command) is None:
            raise NotInstalled(f"there is no {self.command} on the path")
        if not self.packages:
            return Path(sys.executable)
        directory = _UNDER / self.name
        python, stamp = directory / "bin" / "python", directory / "installed"
        if not stamp.exists() or stamp.read_text() != str(self.packages):
            self._make(directory, python)
            stamp.write_text(str(self.packages))
        return python

    def _make(self, directory: Path, python: Path) -> None:
        doing(f"installing {' '.join(self.packages)}")
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        for command in ([sys.executable, "-m", "venv", "--clear", str(directory)], pip):
            arguments = [*command, *self.packages] if command is pip else command
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = done.stderr.strip() or done.stdout.strip() or "no reason given"
                raise NotInstalled(reason.splitlines()[-1])


OURS: Final = Environment("ours")
ETCDCTL: Final = Environment("ours", command="etcdctl")
TOOZ: Final = Environment("tooz", ("tooz", "kazoo", "etcd3gw"))
#: Its stubs cannot be imported with protobuf 4 or later, nor can its lock wait with tenacity 7.
ETCD3: Final = Environment("etcd3", ("etcd3==0.12.0", "protobuf<3.21", "tenacity<7"))
AETCD: Final = Environment("aetcd", ("aetcd",))
FILELOCK: Final = Environment("filelock", ("filelock",))
REDIS_LOCK: Final = Environment("redis-lock", ("python-redis-lock",))
