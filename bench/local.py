"""The local backend with many processes, beside filelock, and with many threads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from statistics import median

from bench.contestants import Entrant, entrants
from bench.environments import NotInstalled
from bench.processor import cpu_of, cpu_of_threads
from bench.progress import doing
from bench.services import service
from bench.table import Plot, Table
from bench.workers import Worker, WorkerFailed, crew

__all__ = ["measure"]

_WAITING = 100
_THREADS = 20
#: Seconds for which they pass it.
_PASSING = 2
_IDLE = 4.0


def measure(_: int) -> Iterator[Table]:
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
    with service("local") as files:
        base = 0.0
        for url in ("memory://", files.url()):
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
        with service("local") as files:
            try:
                _crowd(one, files.address, table)
            except (NotInstalled, WorkerFailed) as reason:
                table.notes.append(f"{one.name} was left out: {reason}")


def _crowd(one: Entrant, directory: str, table: Table) -> None:
    subject = f"bench.contestants.{one.subject}"

    def worker() -> Worker:
        return Worker(subject, directory, "", environment=one.environment)

    with worker() as holder, crew([worker() for _ in range(_WAITING)]) as crowd:
        holder.do("hold", name="crowd")
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
