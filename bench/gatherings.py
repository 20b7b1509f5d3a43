"""Elections and groups: against a plain lock of the same client, and with many that take part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import coordlock
from bench.figures import ratios, spread
from bench.observers import observed
from bench.progress import doing
from bench.services import CLUSTERS, service
from bench.storms import apart, storm
from bench.table import Plot, Table
from coordlock.testing.waiting import eventually

__all__ = ["handoff", "measure"]

#: No answer takes longer.
_BOUND: Final = 120.0


def measure(rounds: int) -> Iterator[Table]:
    few = max(2, rounds // 10)
    for name in (*CLUSTERS, "local"):
        with service(name) as server:
            yield _in_turns(name, server.url(), rounds)
            yield storm(server, few)
            if name in CLUSTERS:
                yield apart(server, few)
                yield observed(name, server.url(), rounds)


def _in_turns(where: str, url: str, rounds: int) -> Table:
    """What it takes to lead, to join, and to hear of it."""
    table = Table(
        f"An election and a group: {where}",
        ("what", "x one lock's acquire or handoff", "ms"),
        notes=[
            f"{rounds} rounds in turns",
            "handed over: from before the release, or the resignation, to the next grant, or term",
            "seen: from before the resignation to the next leader that an observer elsewhere gets",
        ],
        plot=Plot("x one lock's acquire or handoff", "what"),
    )
    with (
        coordlock.connect(url) as one,
        coordlock.connect(url) as two,
        coordlock.connect(url) as third,
        ThreadPoolExecutor(1) as pool,
        third.election("e").observe() as leaders,
    ):
        group = one.group("g")
        begins: dict[str, Callable[[], Any]] = {
            "lock": one.lock("l").acquire,
            "lead": one.election("e").campaign,
            "join": lambda: group.join(b"10.0.0.5:8080"),
        }
        passes: dict[str, tuple[Any, Any]] = {
            "lock, handed over": (one.lock("l").acquire, two.lock("l").acquire),
            "lead, handed over": (one.election("e").campaign, two.election("e").campaign),
        }
        times: dict[str, list[float]] = {what: [] for what in (*begins, *passes, "lead, seen")}
        for number in range(rounds):
            doing(where, number, rounds)
            for what, begin in begins.items():
                began = time.perf_counter()
                grant = begin()
                times[what].append(time.perf_counter() - began)
                grant.release()
            for what, (mine, theirs) in passes.items():
                times[what].append(handoff(mine, theirs, one, "le"["lead" in what], pool))
            term = one.election("e").campaign()
            wanted = leaders.next(_BOUND)
            while wanted is None or wanted.token != term.token:
                wanted = leaders.next(_BOUND)
            began = time.perf_counter()
            term.resign()
            leaders.next(_BOUND)
            times["lead, seen"].append(time.perf_counter() - began)
    for what in times:
        base = times["lock, handed over" if "," in what else "lock"]
        table.add(what, ratios(times[what], base), spread(times[what]).median * 1e3)
    return table


def handoff(
    mine: Callable[[], Any],
    theirs: Callable[[], Any],
    client: coordlock.Client,
    name: str,
    pool: ThreadPoolExecutor,
) -> float:
    """The seconds from before the release of ``mine`` to when a thread has ``theirs``."""

    def wait() -> float:
        with theirs():
            return time.perf_counter()

    grant = mine()
    waiting = pool.submit(wait)
    eventually(lambda: len(client.admin.contenders(name)) == 2)
    time.sleep(0.002)  # its watch is set behind that
    began = time.perf_counter()
    grant.release()
    return waiting.result(_BOUND) - began
