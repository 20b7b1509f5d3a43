"""A change that many observe."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any, Final

import coordlock
from bench.figures import spread
from bench.progress import doing
from bench.table import Table

__all__ = ["observed"]

#: So many processes have so many observers each.
_PROCESSES: Final = 10
_OBSERVERS: Final = 100
#: What is observed: outside of the root of the locks.
_KEY: Final = "/observed/value"


def observed(where: str, url: str, rounds: int) -> Table:
    """A leader's proclamation, and a value's new version."""
    everybody = _PROCESSES * _OBSERVERS
    table = Table(
        f"A change reaches {everybody:,} observers: {where}",
        ("what", "its own answer, ms", "until the last observer has it, ms"),
        notes=[
            f"{rounds} rounds; {_PROCESSES} processes of {_OBSERVERS} observers, one client each"
        ],
    )
    with ExitStack() as stack:
        client = stack.enter_context(coordlock.connect(url))
        term = stack.enter_context(client.election("many").campaign(b"0"))
        value = client.value(_KEY)
        value.set(b"0")
        changes: dict[str, Callable[[bytes], object]] = {
            "a publication": term.publish,
            "a value": value.set,
        }
        for what, change in changes.items():
            writes, arrivals = _told(f"{where}: {what}", url, what, change, rounds)
            table.add(what, spread(writes), spread(arrivals))
    return table


def _told(
    doings: str, url: str, what: str, change: Callable[[bytes], object], rounds: int
) -> tuple[list[float], list[float]]:
    """The milliseconds that each change takes, and those until the last observer has it."""
    context = multiprocessing.get_context("spawn")
    writes: list[float] = []
    arrivals: list[float] = []
    with ExitStack() as stack:
        pipes = []
        for _ in range(_PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=_watch, args=(url, what, theirs), daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)  # it waits for changes
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        for number in range(1, rounds + 1):
            doing(doings, number - 1, rounds)
            began = time.monotonic()
            change(b"%d" % number)
            writes.append((time.monotonic() - began) * 1e3)
            arrivals.append((max(pipe.recv() for pipe in pipes) - began) * 1e3)
    return writes, arrivals


def _watch(url: str, what: str, pipe: Connection) -> None:
    """One process: it tells when the last of its observers was given each change."""
    with coordlock.connect(url) as client, ThreadPoolExecutor(_OBSERVERS) as pool:
        many: Any = client.value(_KEY) if what == "a value" else client.election("many")
        observers = [many.observe() for _ in range(_OBSERVERS)]

        def turn(observer: coordlock.types.Observer[Any]) -> float:
            observer.next()
            return time.monotonic()

        list(pool.map(turn, observers))
        pipe.send(True)
        while True:
            pipe.send(max(pool.map(turn, observers)))
