"""What an idle client costs that holds one lock, or many."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.processor import cpu_of
from bench.progress import doing
from bench.services import HEARTBEATS, SERVICES, service
from bench.table import Plot, Table
from bench.workers import Worker
from coordlock.testing.proxy import FaultProxy

__all__ = ["measure"]

_TTL = 6.0
_SECONDS = 6.0
_COUNTS = (1, 1_000, 10_000)
#: Seconds for the watches on the own contenders to be set, on a busy machine too.
_PATIENCE = 60.0


def measure(_: int) -> Iterator[Table]:
    table = Table(
        "Holding, while nothing happens",
        ("service", "locks", "requests per TTL", "bytes per TTL", "CPU % of a core", "threads"),
        notes=[f"TTL {_TTL:g} s: a heartbeat each third of it; {_SECONDS:g} s each"],
        plot=Plot("requests per TTL", "service", over="locks"),
    )
    yield table
    for name in SERVICES:
        with service(name) as server, server.proxy() as proxy:
            for count in _COUNTS:
                doing(f"{name}, {count} locks")
                url = f"{name}://127.0.0.1:{proxy.port}/holding-{count}?ttl={_TTL:g}s"
                with Worker("bench.crowd:Crowd", url) as crowd:
                    crowd.do("hold", count=count)
                    _settle(proxy)
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


def _settle(proxy: FaultProxy) -> None:
    """Return when a second has passed with nothing but heartbeats."""
    deadline = time.monotonic() + _PATIENCE
    busy = True
    while busy and time.monotonic() < deadline:
        with proxy.counting() as sent:
            time.sleep(1.0)
        busy = not sent.requests.keys() <= HEARTBEATS
