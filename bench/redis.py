"""Redis beside redis-py and python-redis-lock: alone, handing over, with many who wait."""

from __future__ import annotations

import time
from collections.abc import Iterator

import coordlock
from bench.contestants import entrants
from bench.field import field
from bench.handoff import timed as handoff
from bench.processor import cpu_of
from bench.progress import doing
from bench.services import Service, service
from bench.table import Table
from bench.uncontended import timed as uncontended
from bench.workers import Worker, WorkerFailed

__all__ = ["measure"]

_LENGTHS = (100, 1_000, 10_000)
#: How many waiters come at once.
_AT_ONCE = 1_000
_TTL = 6.0


def measure(rounds: int) -> Iterator[Table]:
    with service("redis") as server:
        notes: list[str] = []
        with field(entrants("redis"), server.address, notes) as there:
            yield uncontended("redis", there, 2 * rounds, 15, notes)
        notes = []
        with field(entrants("redis"), server.address, notes, processes=2) as there:
            yield handoff("redis", there, rounds, notes)
        yield _queues(server)
        yield _idle(server)


def _queues(server: Service) -> Table:
    table = Table(
        "Long queues in one asyncio process: redis",
        (
            *("waiters", "handoffs per second", "CPU ms", "server CPU ms"),
            *("resident KiB each", "threads", "connections"),
        ),
        notes=["CPU: per handoff"],
    )
    url = f"redis://{server.address}/queues?ttl=30s&restart_delay=0"
    for waiters in _LENGTHS:
        with coordlock.connect(url) as holder, Worker("bench.crowd:Crowd", url) as crowd:
            doing(f"redis, {waiters} waiters")
            grant = holder.lock("long").acquire()
            at_once = min(waiters, _AT_ONCE)
            try:
                lined = crowd.do(
                    "line_up", name="long", settle=0.5, waiters=waiters, at_once=at_once
                )
                before, started = cpu_of(server.pid), time.monotonic()
                clients = _clients(server) - 3  # those of the holder
                grant.release()
                found = crowd.do("drain")
            except (WorkerFailed, coordlock.CoordlockError) as reason:
                table.notes.append(f"{waiters} waiters: left out, {reason}")
                continue
            table.add(
                waiters,
                waiters / (found["done"] - started),
                found["cpu"] * 1e3,
                (cpu_of(server.pid) - before) / waiters * 1e3,
                lined["resident"] / 1024,
                int(lined["threads"]),
                clients,
            )
    return table


def _clients(server: Service) -> int:
    """How many connections there are, without the one that asks."""
    import redis

    with redis.Redis(host=server.host, port=server.port) as client:
        return int(client.info("clients")["connected_clients"]) - 1


def _idle(server: Service) -> Table:
    """What a client that holds locks asks for by itself."""
    table = Table(
        "An idle client: redis", ("locks held", "requests per ttl"), notes=[f"ttl: {_TTL:g} s"]
    )
    for held in (1, 1_000):
        with server.proxy() as proxy:
            url = f"redis://127.0.0.1:{proxy.port}/idle?ttl={_TTL:g}s&restart_delay=0"
            with coordlock.connect(url) as client:
                grants = [client.lock(f"idle-{number}").acquire() for number in range(held)]
                time.sleep(1.0)
                doing(f"redis, an idle client that holds {held}")
                with proxy.counting() as sent:
                    time.sleep(2 * _TTL)
                table.add(held, sum(sent.requests.values()) / 2)
                for grant in grants:
                    grant.check()
    return table
