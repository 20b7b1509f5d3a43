"""One lock that several processes take in turns, for a moment each."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.contestants import Entrant, entrants
from bench.field import field, turns
from bench.figures import spread
from bench.services import SERVICES, service
from bench.table import Plot, Table
from bench.workers import Worker, WorkerFailed

__all__ = ["measure"]

_PROCESSES = (1, 2, 4)
_SECONDS = 1.0
#: Seconds after which a contestant that has not returned is given up: locks may miss a wait's end.
_BOUND = 20.0


def measure(rounds: int) -> Iterator[Table]:
    for name in SERVICES:
        notes = [f"{rounds} rounds in turns, {_SECONDS:g} s each; processes hold it for a moment"]
        table = Table(
            f"One lock that several processes want all the time: {name}",
            ("who", "processes", "grants/s", "x alone"),
            notes=notes,
            plot=Plot("grants/s", "who", over="processes"),
        )
        # The floor sends the messages of a lock, and holds none.
        those = [one for one in entrants(name) if one.role != "floor"]
        with (
            service(name) as server,
            field(those, server.address, notes, processes=max(_PROCESSES)) as there,
        ):
            made: dict[tuple[str, int], list[float]] = {}
            failed: set[Entrant] = set()
            for number, one in turns(list(there), rounds, "one lock: "):
                for count in _PROCESSES if one not in failed else ():
                    try:
                        grants = _granted(there[one][:count])
                    except WorkerFailed as reason:
                        failed.add(one)
                        notes.append(f"{one.name}, {count} processes: {reason}")
                        break
                    if number:
                        made.setdefault((one.name, count), []).append(grants / _SECONDS)
        for (who, count), samples in made.items():
            figures = spread(samples)
            alone = spread(made[who, 1]).median if made.get((who, 1)) else None
            table.add(who, count, figures, figures.median / alone if alone else None)
        yield table


def _granted(workers: list[Worker]) -> int:
    """How often ``workers`` are granted the lock, together."""
    begin = time.monotonic() + 0.1
    for worker in workers:
        worker.tell("contend", name="wanted", begin=begin, seconds=_SECONDS)
    return sum(worker.answer(_BOUND) for worker in workers)
