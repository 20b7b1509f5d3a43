"""Acquire and release where nobody else is: how far above the floor, and how many round trips."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from bench.contestants import Entrant, entrants
from bench.field import Field, field, in_turns, proxies
from bench.figures import Spread, percentile, ratios
from bench.services import SERVERS, messages, service
from bench.table import Table
from coordlock.testing.proxy import FaultProxy

__all__ = ["measure"]

#: Pairs in one turn.
_CALLS = 15

#: Seconds that the proxy adds each way.
_DELAY = 0.005


def measure(rounds: int) -> Iterator[Table]:
    for name in (*SERVERS, "local"):
        those = entrants(name)
        with service(name) as server:
            notes: list[str] = []
            with field(server, those, notes) as there:
                # Many short turns: what else the machine does comes and goes.
                yield _timed(name, there, 2 * rounds, notes)
            if name in SERVERS:
                notes = []
                with (
                    proxies(server, those) as through,
                    field(server, those, notes, through=through) as there,
                ):
                    yield _far(name, there, through, max(3, rounds // 3), notes)


def _timed(name: str, there: Field, rounds: int, notes: list[str]) -> Table:
    """The table of acquire and release, in turns."""
    pairs: defaultdict[Entrant, list[float]] = defaultdict(list)
    cpu: defaultdict[Entrant, list[float]] = defaultdict(list)
    totals: dict[Entrant, dict[int, float]] = defaultdict(dict)
    for number, one in in_turns(list(there), rounds):
        [worker] = there[one]
        before = worker.do("cpu")
        times = worker.do("pairs", name="orders", calls=_CALLS)
        if number:
            cpu[one].append((worker.do("cpu") - before) / _CALLS)
            both = [acquire + release for acquire, release in times]
            pairs[one] += both
            totals[one][number] = median(both)
    floor = next(one for one in there if one.role == "floor")
    best = min((one for one in there if one.role == "peer"), key=lambda one: median(pairs[one]))
    table = Table(
        f"Uncontended acquire and release: {name}",
        (
            *("who", "x floor", "x best peer", "p99 x floor's median", "CPU x floor's"),
            *("median, ms", "CPU, ms"),
        ),
        notes=notes,
    )
    base = median(pairs[floor])
    for one in there:
        table.add(
            one.name,
            _ratio(totals[one], totals[floor]),
            _ratio(totals[one], totals[best]),
            percentile(pairs[one], 99) / base,
            median(cpu[one]) / median(cpu[floor]),
            median(pairs[one]) * 1e3,
            median(cpu[one]) * 1e3,
        )
    notes.append(f"{rounds} rounds in turns; best peer: {best.name}")
    return table


def _ratio(one: dict[int, float], other: dict[int, float]) -> Spread | None:
    common = [number for number in one if number in other]
    return ratios([one[n] for n in common], [other[n] for n in common]) if common else None


def _far(
    name: str, there: Field, through: dict[Entrant, FaultProxy], rounds: int, notes: list[str]
) -> Table:
    table = Table(
        f"Through a network of {_DELAY * 1e3:g} ms each way: {name}",
        ("who", "acquire, round trips", "release, round trips", "requests", "replies", "bytes"),
        notes=notes,
    )
    seen: defaultdict[Entrant, list[tuple[float, float]]] = defaultdict(list)
    counted = {}
    for one, [worker] in there.items():
        worker.do("pairs", name="orders", calls=3)
        with through[one].counting() as sent:
            worker.do("pairs", name="orders", calls=_CALLS)
        counts = messages(sent.requests), messages(sent.replies), sent.sent + sent.received
        counted[one] = [count / _CALLS for count in counts]
        through[one].delay(_DELAY)
    for number, one in in_turns(list(there), rounds):
        times = there[one][0].do("pairs", name="orders", calls=5)
        if number:
            seen[one] += map(tuple, times)
    floor = next(one for one in there if one.role == "floor")
    trip = median(acquire for acquire, _ in seen[floor])
    for one in there:
        times = seen[one]
        table.add(
            one.name,
            median(acquire for acquire, _ in times) / trip,
            median(release for _, release in times) / trip,
            *counted[one],
        )
    notes.append(f"one round trip: the floor's acquire, {trip * 1e3:.1f} ms here")
    return table
