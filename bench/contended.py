"""One lock that several processes take in turns, for a moment each: how quick, and how fair."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from statistics import median

from bench.contestants import Entrant, entrants
from bench.field import field, turns
from bench.figures import spread
from bench.services import SERVICES, service
from bench.table import Plot, Table
from bench.workers import Worker, WorkerFailed

__all__ = ["measure"]

_PROCESSES = (1, 2, 4, 8)
_SECONDS = 0.5
#: Seconds after which a contestant that has not returned is given up: locks may miss a wait's end.
_BOUND = 20.0

#: The waits of each process in one turn, in seconds.
Waits = list[list[float]]


def measure(rounds: int) -> Iterator[Table]:
    rounds = max(3, rounds // 3)
    for name in (*SERVICES, "local"):
        notes = [
            f"{rounds} rounds in turns, {_SECONDS:g} s each; processes hold it for a moment",
            "fewest / most: grants of one process; a lock that is passed on in order gives each as "
            "many",
        ]
        table = Table(
            f"One lock that several processes want all the time: {name}",
            ("who", "processes", "grants/s", "x alone", "longest / median wait", "fewest / most"),
            notes=notes,
            plot=Plot("grants/s", "who", over="processes"),
        )
        # The floor of a service sends the messages of a lock, and holds none.
        those = [one for one in entrants(name) if one.role != "floor" or name == "local"]
        with (
            _address(name) as address,
            field(those, address, notes, processes=max(_PROCESSES)) as there,
        ):
            made: dict[tuple[str, int], list[Waits]] = {}
            failed: set[Entrant] = set()
            for number, one in turns(list(there), rounds, "one lock: "):
                for count in _PROCESSES if one not in failed else ():
                    try:
                        waits = _waits(there[one][:count])
                    except WorkerFailed as reason:
                        failed.add(one)
                        notes.append(f"{one.name}, {count} processes: {reason}")
                        break
                    if number:
                        made.setdefault((one.name, count), []).append(waits)
        alone: dict[str, float] = {}
        for (who, count), samples in made.items():
            figures = spread([_rate(one) for one in samples])
            alone.setdefault(who, figures.median)
            table.add(
                who,
                count,
                figures,
                figures.median / alone[who],
                spread([_unfairness(one) for one in samples]),
                spread([min(map(len, one)) / max(map(len, one)) for one in samples]),
            )
        yield table


@contextmanager
def _address(name: str) -> Iterator[str]:
    """Where the service ``name`` is, for as long as the block lasts."""
    if name == "local":
        with tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory:
            Path(directory).chmod(0o700)
            yield directory
    else:
        with service(name) as server:
            yield server.address


def _waits(workers: list[Worker]) -> Waits:
    """What ``workers`` waited, when they wanted the lock together."""
    begin = time.monotonic() + 0.1
    for worker in workers:
        worker.tell("contend", name="wanted", begin=begin, seconds=_SECONDS)
    return [worker.answer(_BOUND) for worker in workers]


def _rate(waits: Waits) -> float:
    return sum(map(len, waits)) / _SECONDS


def _unfairness(waits: Waits) -> float:
    """How many times as long as a usual wait the longest one was."""
    every = list(chain(*waits))
    return max(every) / median(every)
