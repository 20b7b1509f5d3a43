"""What it takes to begin: imports, and commands that run ``true`` under a lock."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from bench.figures import percentile, ratios
from bench.progress import doing
from bench.services import service
from bench.table import Plot, Table

__all__ = ["measure"]

#: What any command line of typed classes imports, and what any that calls etcd by its own API does.
_STANDARD: Final = "import argparse, dataclasses, json, threading, urllib.parse"
_GRPC: Final = f"{_STANDARD}, grpc; from google.protobuf.internal import builder"


def measure(rounds: int) -> Iterator[Table]:
    with (
        tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory,
        service("etcd") as etcd,
    ):
        command = str(Path(sys.executable).with_name("coordlock"))
        run = [command, "run", "start", "--url"]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "python -c 'import coordlock'": [sys.executable, "-c", "import coordlock"],
            "flock FILE true": ["flock", f"{directory}/flock", "true"],
            "coordlock run true, local": [*run, f"local://{directory}", "--", "true"],
            "python -c 'import argparse, dataclasses...'": [sys.executable, "-c", _STANDARD],
            "likewise with gRPC and protobuf": [sys.executable, "-c", _GRPC],
            "etcdctl lock true": [
                *("etcdctl", f"--endpoints=http://{etcd.address}", "lock", "start", "true")
            ],
            "coordlock run true, etcd": [*run, etcd.url("/start"), "--", "true"],
        }
        table = Table(
            "Start",
            ("command", "x python -c pass", "p99, x", "ms", "CPU, ms"),
            plot=Plot("x python -c pass", "command", log=True),
        )
        environment = _environment(f"{directory}/compiled")
        there = {name: line for name, line in commands.items() if shutil.which(line[0])}
        table.notes += [f"{name} was left out" for name in commands if name not in there]
        seen: dict[str, list[float]] = {name: [] for name in there}
        cpu: dict[str, list[float]] = {name: [] for name in there}
        for number in range(rounds + 1):
            for name, line in there.items():
                doing(name, number, rounds)
                started, before = time.perf_counter(), _cpu()
                _call(line, environment)
                if number:
                    seen[name].append(time.perf_counter() - started)
                    cpu[name].append(_cpu() - before)
        base = seen["python -c pass"]
        for name, samples in seen.items():
            table.add(
                name,
                ratios(samples, base),
                percentile(samples, 99) / median(base),
                median(samples) * 1e3,
                median(cpu[name]) * 1e3,
            )
        yield table


def _cpu() -> float:
    """The seconds of CPU that ended children have taken."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def _environment(compiled: str) -> dict[str, str]:
    """This process' own, without configuration, where modules are compiled once, as for users."""
    left_out = ("COORDLOCK_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "ETCDCTL_API": "3", "PYTHONPYCACHEPREFIX": compiled}


def _call(line: list[str], environment: dict[str, str]) -> None:
    subprocess.run(line, env=environment, check=True, capture_output=True, timeout=60)
