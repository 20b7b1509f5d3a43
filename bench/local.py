"""The local backend beside filelock: alone, handing over, with many processes, many threads."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from bench.contestants import Entrant, entrants
from bench.environments import NotInstalled
from bench.field import field
from bench.handoff import timed as handoff
from bench.processor import cpu_of, cpu_of_threads
from bench.progress import doing
from bench.table import Plot, Table
from bench.uncontended import timed as uncontended
from bench.workers import Worker, WorkerFailed

__all__ = ["measure"]

_WAITING = 100
_THREADS = 20
#: Seconds for which they pass it.
_PASSING = 3
_IDLE = 10.0


def measure(rounds: int) -> Iterator[Table]:
    with tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory:
        Path(directory).chmod(0o700)
        notes: list[str] = []
        with field(entrants("local"), directory, notes) as there:
            yield uncontended("local", there, 2 * rounds, 15, notes)
        notes = []
        with field(entrants("local"), directory, notes, processes=2) as there:
            yield handoff("local", there, rounds, notes)
    yield from _crowds()
    yield _passing()


def _passing() -> Table:
    """What a client's threads hand to each other; on one core, too, where no two of them run."""
    table = Table(
        f"{_THREADS} threads of one client that pass a lock round",
        ("where", "grants a second, x memory", "grants a second"),
        notes=["on one core no two threads wait for each other to let Python's lock go"],
    )
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory:
        Path(directory).chmod(0o700)
        base = 0.0
        for url in ("memory://", f"local://{directory}"):
            for allowed in (cores, {min(cores)}):
                where = f"{url.partition(':')[0]}, {len(allowed)} core(s)"
                doing(f"{_THREADS} threads pass a lock round, {where}")
                done = subprocess.run(
                    [sys.executable, "-m", "bench.passing", url, str(_THREADS), str(_PASSING)],
                    preexec_fn=partial(os.sched_setaffinity, 0, allowed),
                    check=True,
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                grants = float(done.stdout)
                base = base or grants
                table.add(where, grants / base, grants)
    return table


def _crowds() -> Iterator[Table]:
    table = Table(
        f"{_WAITING} processes that wait: local",
        ("who", "CPU % of a core while waiting", "handoff, ms", "CPU ms per handoff", "in order"),
        plot=Plot("CPU % of a core while waiting", "who"),
    )
    yield table
    for one in entrants("local"):
        if "asyncio" in one.name:
            continue
        doing(f"{_WAITING} processes that wait, {one.name}")
        with tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory:
            Path(directory).chmod(0o700)
            try:
                _crowd(one, directory, table)
            except (NotInstalled, WorkerFailed) as reason:
                table.notes.append(f"{one.name} was left out: {reason}")


def _crowd(one: Entrant, directory: str, table: Table) -> None:
    subject = f"bench.contestants.{one.subject}"

    def worker() -> Worker:
        return Worker(subject, directory, "", environment=one.environment)

    with ExitStack() as stack:
        holder = stack.enter_context(worker())
        holder.do("hold", name="crowd")
        crowd = [worker() for _ in range(_WAITING)]
        for waiter in crowd:
            waiter.start()
            stack.callback(waiter.stop)
        for waiter in crowd:
            waiter.ready()
        for waiter in crowd:
            waiter.tell("turn", name="crowd")
            time.sleep(0.02)  # they come one after the other, so that there is an order
        time.sleep(1.0)
        pids = [waiter.pid for waiter in crowd]
        waiting = sum(map(cpu_of_threads, pids))
        time.sleep(_IDLE)
        idle = sum(map(cpu_of_threads, pids)) - waiting
        waited = sum(map(cpu_of, pids))
        released = holder.do("let_go", name="crowd")
        turns = [waiter.answer() for waiter in crowd]
        ended = sum(map(cpu_of, pids))
        granted = sorted(turn[0] for turn in turns)
        left = [released, *sorted(turn[1] for turn in turns)]
        gaps = [grant - release for grant, release in zip(granted, left, strict=False)]
        table.add(
            one.name,
            idle / _IDLE * 100,
            median(gaps) * 1e3,
            (ended - waited) / _WAITING * 1e3,
            "yes" if turns == sorted(turns) else "no",
        )
