"""From one process' release to another one's grant, in units of one commit and one event."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from bench.contestants import Entrant, entrants
from bench.field import Field, field, turns
from bench.figures import percentile, ratios
from bench.progress import doing
from bench.services import HEARTBEATS, SERVICES, service
from bench.table import Plot, Table
from bench.workers import Worker, WorkerFailed
from coordlock.testing.proxy import FaultProxy

__all__ = ["measure", "timed"]

#: Seconds until whoever asks for a lock that is held certainly waits for it.
_SETTLE = 0.15


def measure(rounds: int) -> Iterator[Table]:
    for name in SERVICES:
        with service(name) as server, ExitStack() as stack:
            notes: list[str] = []
            with field(entrants(name), server.address, notes, processes=2) as there:
                table = timed(name, there, rounds, notes)
            proxies = {one: stack.enter_context(server.proxy(http=one.http)) for one in there}
            far = {one: f"127.0.0.1:{proxy.port}" for one, proxy in proxies.items()}
            counted: dict[str, tuple[float, ...]] = {}
            with field(list(there), far.__getitem__, [], processes=2) as there:
                for one, workers in there.items():
                    doing(f"messages on {name}: {one.name}")
                    with suppress(WorkerFailed):
                        counted[one.name] = _counted(proxies[one], *workers)
            table.columns = (*table.columns, "messages", "bytes")
            for row in table.rows:
                row["messages"], row["bytes"] = counted.get(row["who"], (None, None))
            notes.append("messages and bytes: of a whole turn, two acquires and two releases")
            yield table


def _counted(proxy: FaultProxy, holder: Worker, waiter: Worker) -> tuple[float, float]:
    """Messages and bytes of one turn."""
    passed = 3
    hand_over(holder, waiter)
    with proxy.counting() as sent:
        for _ in range(passed):
            hand_over(holder, waiter)
    messages = sent.requests + sent.replies
    total = sum(n for kind, n in messages.items() if kind not in HEARTBEATS)
    return total / passed, (sent.sent + sent.received) / passed


def timed(name: str, there: Field, rounds: int, notes: list[str]) -> Table:
    """The table of release to grant, in turns."""
    seen: defaultdict[Entrant, dict[int, float]] = defaultdict(dict)
    for number, one in turns(list(there), rounds):
        if one.slow and number % 3:
            continue
        try:
            seconds = hand_over(*there[one])
        except WorkerFailed as reason:
            notes.append(f"{one.name}: {reason}")
            continue
        if number:
            seen[one][number] = seconds
    floor = next(one for one in there if one.role == "floor")
    base = ratios(list(seen[floor].values()), [1.0] * len(seen[floor])).median
    table = Table(
        f"Handoff from process to process: {name}",
        ("who", "x commit and event", "p99 x commit and event", "ms"),
        notes=notes,
        plot=Plot("x commit and event", "who", log=True, target=1.0),
    )
    for one, samples in seen.items():
        common = [number for number in samples if number in seen[floor]]
        if not common:
            continue
        mine = list(samples.values())
        table.add(
            one.name,
            ratios([samples[n] for n in common], [base] * len(common)),
            percentile(mine, 99) / base,
            sorted(mine)[len(mine) // 2] * 1e3,
        )
    notes.append(f"{rounds} rounds in turns; the floor's median is the unit")
    return table


def hand_over(holder: Worker, waiter: Worker) -> float:
    """The seconds from the holder's release to the waiter's grant."""
    holder.do("hold", name="handed")
    waiter.tell("wait", name="handed")
    # Not the same for all: whoever asks at intervals would be met at the same moment each time.
    time.sleep(_SETTLE + random.uniform(0, 0.1))
    released: float = holder.do("let_go", name="handed")
    granted: float = waiter.answer()
    waiter.do("let_go", name="handed")
    return granted - released
