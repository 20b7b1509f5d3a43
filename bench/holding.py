"""What an idle client costs that holds one lock, or many."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.processor import cpu_of
from bench.services import SERVICES, service
from bench.table import Plot, Table
from bench.workers import Worker

__all__ = ["measure"]

_TTL = 6.0
_SECONDS = 12.0
_COUNTS = (1, 1_000, 10_000)
_ROUNDS_FOR_MANY = 20


def measure(rounds: int) -> Iterator[Table]:
    table = Table(
        "Holding, while nothing happens",
        ("service", "locks", "requests per TTL", "bytes per TTL", "CPU % of a core", "threads"),
        notes=[f"TTL {_TTL:g} s: a heartbeat each third of it; {_SECONDS:g} s each"],
        plot=Plot("requests per TTL", "service", over="locks"),
    )
    counts = _COUNTS if rounds >= _ROUNDS_FOR_MANY else _COUNTS[:-1]
    for name in SERVICES:
        with service(name) as server, server.proxy() as proxy:
            for count in counts:
                url = f"{name}://127.0.0.1:{proxy.port}/holding-{count}?ttl={_TTL:g}s"
                with Worker("bench.crowd:Crowd", url) as crowd:
                    crowd.do("hold", count=count)
                    crowd.do("idle", seconds=2.0)  # the watches on the own contenders are set
                    cpu = cpu_of(crowd.pid)
                    with proxy.counting() as sent:
                        time.sleep(_SECONDS)
                    turns = _SECONDS / _TTL
                    table.add(
                        name,
                        count,
                        sum(sent.requests.values()) / turns,
                        (sent.sent + sent.received) / turns,
                        (cpu_of(crowd.pid) - cpu) / _SECONDS * 100,
                        crowd.do("threads"),
                    )
    yield table
