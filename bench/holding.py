"""What an idle client costs that holds one lock, or many."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.processor import cpu_of_threads
from bench.progress import doing
from bench.services import SERVERS, is_heartbeat, service
from bench.table import Plot, Table
from bench.workers import Worker
from coordlock.testing.proxy import FaultProxy

__all__ = ["measure"]

_TTL = 6.0
_SECONDS = 12.0
_COUNTS = (1, 10_000)
#: Seconds for the watches on the own contenders to be set, on a busy machine too.
_PATIENCE = 60.0


def measure(rounds: int) -> Iterator[Table]:
    table = Table(
        "Holding, while nothing happens",
        ("service", "locks", "requests per TTL", "bytes per TTL", "CPU % of a core", "threads"),
        notes=[f"TTL {_TTL:g} s: a heartbeat each third; all idle for the same {_SECONDS:g} s"],
        plot=Plot("requests per TTL", "service", over="locks"),
    )
    yield table
    with ExitStack() as stack:
        clients = []
        for name in SERVERS:
            server = stack.enter_context(service(name))
            for count in _COUNTS:
                doing(f"{name}, {count} locks")
                proxy = stack.enter_context(server.proxy())
                url = server.behind(proxy).url(f"/holding-{count}", _TTL)
                crowd = stack.enter_context(Worker("bench.crowd:Crowd", url))
                crowd.do("hold", count=count)
                clients.append((name, count, proxy, crowd))
        doing("until nothing but heartbeats is sent")
        for _, _, proxy, _ in clients:
            _settle(proxy)
        doing("all clients are idle")
        before = [cpu_of_threads(crowd.pid) for _, _, _, crowd in clients]
        with ExitStack() as counting:
            counted = [counting.enter_context(proxy.counting()) for _, _, proxy, _ in clients]
            time.sleep(_SECONDS)
        for (name, count, _, crowd), cpu, sent in zip(clients, before, counted, strict=True):
            table.add(
                name,
                count,
                sum(sent.requests.values()) * _TTL / _SECONDS,
                (sent.sent + sent.received) * _TTL / _SECONDS,
                (cpu_of_threads(crowd.pid) - cpu) / _SECONDS * 100,
                crowd.do("threads"),
            )


def _settle(proxy: FaultProxy) -> None:
    """Return when a second has passed with nothing but heartbeats."""
    deadline = time.monotonic() + _PATIENCE
    busy = True
    while busy and time.monotonic() < deadline:
        with proxy.counting() as sent:
            time.sleep(1.0)
        busy = not all(map(is_heartbeat, sent.requests))
