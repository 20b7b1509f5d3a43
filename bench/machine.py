"""What was measured on, and how busy it was."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["describe", "load"]

_PACKAGES = ("kazoo", "grpcio", "protobuf", "redis")


def load() -> list[float]:
    """The load of the last minute, 5 and 15 minutes."""
    return [round(one, 2) for one in os.getloadavg()]


@cache
def describe() -> dict[str, Any]:
    """The machine and the versions."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "etcd": _first_line("etcd", "--version"),
        "redis": _first_line("redis-server", "--version"),
        "java": _first_line("java", "-version"),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _first_line(command: str, option: str) -> str:
    if shutil.which(command) is None:
        return "none"
    done = subprocess.run([command, option], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).splitlines()[0]
