"""Acquire and release where nobody else is: how far above the floor, and how many round trips."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

from bench.contestants import Entrant, entrants
from bench.field import Field, field, turns
from bench.figures import Spread, percentile, ratios
from bench.progress import doing
from bench.services import HEARTBEATS, SERVICES, service
from bench.table import Plot, Table
from coordlock.testing.proxy import FaultProxy

__all__ = ["measure"]

#: Seconds that the proxy adds each way.
_DELAY = 0.005


def measure(rounds: int) -> Iterator[Table]:
    for name in SERVICES:
        with service(name) as server:
            notes: list[str] = []
            with field(entrants(name), server.address, notes) as there:
                # Many short turns: what else the machine does comes and goes.
                yield timed(name, there, 2 * rounds, 15, notes)
            with ExitStack() as stack:
                proxies = {
                    one: stack.enter_context(server.proxy(http=one.http)) for one in entrants(name)
                }
                far = {one: f"127.0.0.1:{proxy.port}" for one, proxy in proxies.items()}
                notes = []
                with field(entrants(name), far.__getitem__, notes) as there:
                    yield _far(name, there, proxies, rounds, notes)


def timed(name: str, there: Field, rounds: int, calls: int, notes: list[str]) -> Table:
    """The table of acquire and release, in turns; those who are slow take part in every fifth."""
    pairs: defaultdict[Entrant, list[float]] = defaultdict(list)
    cpu: defaultdict[Entrant, list[float]] = defaultdict(list)
    totals: dict[Entrant, dict[int, float]] = defaultdict(dict)
    for number, one in turns(list(there), rounds):
        if one.slow and number % 5:
            continue
        worker, turn = there[one][0], 2 if one.slow else calls
        before = worker.do("cpu")
        times = worker.do("pairs", name="orders", calls=turn)
        if number:
            cpu[one].append((worker.do("cpu") - before) / turn)
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
        plot=Plot("x floor", "who", log=True, target=1.10),
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
    name: str, there: Field, proxies: dict[Entrant, FaultProxy], rounds: int, notes: list[str]
) -> Table:
    table = Table(
        f"Through a network of {_DELAY * 1e3:g} ms each way: {name}",
        ("who", "acquire, round trips", "release, round trips", "requests", "replies", "bytes"),
        notes=notes,
        plot=Plot("acquire, round trips", "who", target=1.0),
    )
    seen: defaultdict[Entrant, list[tuple[float, float]]] = defaultdict(list)
    counted = {}
    for one, (worker, *_) in there.items():
        doing(f"messages on {name}: {one.name}")
        worker.do("pairs", name="orders", calls=3)
        calls = 2 if one.slow else 10
        with proxies[one].counting() as sent:
            worker.do("pairs", name="orders", calls=calls)
        counted[one] = (
            sum(n for kind, n in sent.requests.items() if kind not in HEARTBEATS) / calls,
            sum(n for kind, n in sent.replies.items() if kind not in HEARTBEATS) / calls,
            (sent.sent + sent.received) / calls,
        )
        proxies[one].delay(_DELAY)
    for number, one in turns(list(there), max(3, rounds // 3), f"{_DELAY * 1e3:g} ms each way, "):
        if one.slow and number > 2:
            continue
        times = there[one][0].do("pairs", name="orders", calls=1 if one.slow else 5)
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
    for one in proxies:
        proxies[one].heal()
    return table
