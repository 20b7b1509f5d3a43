"""One lock that several processes take in turns, for a moment each: how quick, and how fair."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from statistics import median
from typing import Final

from bench.contestants import Entrant, entrants
from bench.contestants.contestant import Grant
from bench.field import field, in_turns, proxies
from bench.figures import spread
from bench.services import SERVERS, Service, service
from bench.table import Cell, Table
from bench.workers import Worker, WorkerFailed
from coordlock.testing.proxy import FaultProxy

__all__ = ["measure"]

_PROCESSES: Final = (1, 2, 4, 8, 16)
#: Those that go through a network, and the seconds that a proxy adds each way.
_FAR: Final = (2, 8)
_DELAY: Final = 0.001
#: So many are compared with all others.
_COMPARED: Final = 4
#: Seconds before grants count: a client finds out meanwhile that the lock is in demand.
_LEAD: Final = 0.25
_SECONDS: Final = 0.35
_OURS: Final = "coordlock"
#: Seconds after which a contestant that has not returned is given up: locks may miss a wait's end.
_BOUND: Final = 10.0

#: The grants to each process in one turn: when, from its beginning on, and after which wait.
Waits = list[list[Grant]]
#: The turns of an entrant with so many processes.
Turns = dict[tuple[Entrant, int], list[Waits]]


def measure(rounds: int) -> Iterator[Table]:
    every: Turns = {}
    for name in (*SERVERS, "local"):
        those = entrants(name, contend=True)
        with service(name) as server:
            made, notes = _turns(server, those, _PROCESSES, max(3, rounds // 3))
            every |= made
            yield _table(f"One lock that several processes want all the time: {name}", made, notes)
            if name in SERVERS:
                with proxies(server, those) as through:
                    for proxy in through.values():
                        proxy.delay(_DELAY)
                    made, notes = _turns(server, those, _FAR, max(2, rounds // 5), through)
                title = f"The same through a network of {_DELAY * 1e3:g} ms each way: {name}"
                yield _table(title, made, notes)
    yield _compared(every)


def _turns(
    server: Service,
    those: list[Entrant],
    counts: tuple[int, ...],
    rounds: int,
    through: dict[Entrant, FaultProxy] | None = None,
) -> tuple[Turns, list[str]]:
    """What all entrants made of it, with each number of processes; and what there is to note."""
    notes = [f"up to {rounds} rounds in turns, {_SECONDS:g} s each, from {_LEAD:g} s on"]
    failed: set[Entrant] = set()
    most = max(counts)
    with field(server, those, notes, processes=most, through=through) as there:
        made: Turns = {(one, count): [] for one in there for count in counts}
        for number, (one, count) in in_turns(list(made), rounds):
            if one in failed:
                continue
            try:
                if number:
                    made[one, count].append(_waits(there[one][:count]))
                elif count == most:
                    for worker in there[one]:
                        worker.do("pairs", name="warm", calls=3)
            except WorkerFailed as reason:
                failed.add(one)
                notes.append(f"{one.name}, {count} processes: {reason}")
    return {which: samples for which, samples in made.items() if samples}, notes


def _waits(workers: list[Worker]) -> Waits:
    """What ``workers`` waited, when they wanted the lock together."""
    begin = time.monotonic() + 0.03 + _LEAD
    for worker in workers:
        worker.tell("contend", name="wanted", begin=begin, lead=_LEAD, seconds=_SECONDS)
    return [worker.answer(_BOUND) for worker in workers]


def _table(title: str, made: Turns, notes: list[str]) -> Table:
    table = Table(
        title,
        ("who", "processes", "grants/s", "x coordlock's first row", *_FAIRNESS),
        notes=[*notes, _IN_ORDER],
    )
    unit = next((median(map(_rate, made[which])) for which in made if which[0].name == _OURS), None)
    for (one, count), samples in made.items():
        grants = spread([_rate(waits) for waits in samples])
        ratio = grants.median / unit if unit else None
        table.add(one.name, count, grants, ratio, *_fairness(samples))
    return table


def _compared(every: Turns) -> Table:
    """All contestants in one table: who is quick may starve others."""
    table = Table(
        f"Quick or fair: one lock, {_COMPARED} processes",
        ("who", "grants/s, x coordlock", *_FAIRNESS),
        notes=["grants/s: of coordlock on the same service", _IN_ORDER],
    )
    rates = {
        one: median(map(_rate, samples))
        for (one, count), samples in every.items()
        if count == _COMPARED
    }
    ours = {one.service: rate for one, rate in rates.items() if one.name == _OURS}
    for one, rate in rates.items():
        unit = ours.get(one.service)
        row = _fairness(every[one, _COMPARED])
        table.add(f"{one.name}, {one.service}", rate / unit if unit else None, *row)
    return table


_FAIRNESS: Final = ("longest wait, ms", "longest / median wait", "fewest / most")
_IN_ORDER: Final = (
    "longest wait: of all rounds; fewest / most: grants of one process, about 1 in a lock that is "
    "passed on in order"
)


def _fairness(samples: list[Waits]) -> tuple[Cell, ...]:
    return (
        max(wait for _, wait in chain.from_iterable(chain.from_iterable(samples))) * 1e3,
        spread([_unfairness(waits) for waits in samples]),
        spread([min(map(len, waits)) / max(map(len, waits)) for waits in samples]),
    )


def _rate(waits: Waits) -> float:
    return sum(when < _SECONDS for when, _ in chain.from_iterable(waits)) / _SECONDS


def _unfairness(waits: Waits) -> float:
    """How many times as long as a usual wait the longest one was."""
    every = [wait for _, wait in chain.from_iterable(waits)]
    return max(every) / median(every)
