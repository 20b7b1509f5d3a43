"""From one process' release to another one's grant, in units of one commit and one event."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from statistics import median

from bench.contestants import Entrant, entrants
from bench.field import Field, field, in_turns, proxies
from bench.figures import percentile, spread
from bench.services import SERVERS, Service, messages, service
from bench.table import Table
from bench.workers import Worker, WorkerFailed
from coordlock.testing.proxy import FaultProxy

__all__ = ["hand_over", "measure"]

#: Seconds until whoever asks for a lock that is held certainly waits for it.
_SETTLE = 0.15


def measure(rounds: int) -> Iterator[Table]:
    for name in (*SERVERS, "local"):
        those = entrants(name)
        with service(name) as server:
            notes: list[str] = []
            with field(server, those, notes, processes=2) as there:
                table = _timed(name, there, rounds, notes)
            if name in SERVERS:
                _add_messages(table, server, those)
            yield table


def _add_messages(table: Table, server: Service, those: list[Entrant]) -> None:
    """Two more columns: they are counted on the way through proxies, which takes time."""
    counted: dict[str, tuple[float, ...]] = {}
    with (
        proxies(server, those) as through,
        field(server, those, [], processes=2, through=through) as there,
    ):
        for one, workers in there.items():
            with suppress(WorkerFailed):
                counted[one.name] = _counted(through[one], *workers)
    table.columns = (*table.columns, "messages", "bytes")
    for row in table.rows:
        row["messages"], row["bytes"] = counted.get(row["who"], (None, None))
    table.notes.append("messages and bytes: of a whole turn, two acquires and two releases")


def _counted(proxy: FaultProxy, holder: Worker, waiter: Worker) -> tuple[float, float]:
    """Messages and bytes of one turn."""
    passed = 3
    hand_over(holder, waiter)
    with proxy.counting() as sent:
        for _ in range(passed):
            hand_over(holder, waiter)
    return messages(sent.requests + sent.replies) / passed, (sent.sent + sent.received) / passed


def _timed(name: str, there: Field, rounds: int, notes: list[str]) -> Table:
    """The table of release to grant, in turns."""
    seen: defaultdict[Entrant, list[float]] = defaultdict(list)
    for number, one in in_turns(list(there), rounds):
        try:
            seconds = hand_over(*there[one])
        except WorkerFailed as reason:
            notes.append(f"{one.name}: {reason}")
        else:
            if number:
                seen[one].append(seconds)
    unit = median(next(seen[one] for one in there if one.role == "floor"))
    table = Table(
        f"Handoff from process to process: {name}",
        ("who", "x commit and event", "p99 x commit and event", "ms"),
        notes=notes,
    )
    for one in filter(seen.get, there):
        relative = [seconds / unit for seconds in seen[one]]
        table.add(one.name, spread(relative), percentile(relative, 99), median(seen[one]) * 1e3)
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
