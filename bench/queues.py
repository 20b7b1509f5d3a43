"""Long queues: waiters of one process, and of many."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import coordlock
from bench.processor import cpu_of
from bench.services import SERVERS, Service, messages, service
from bench.table import Table
from bench.workers import Worker, WorkerFailed, crew

__all__ = ["measure"]

_LENGTHS = (10, 100, 1_000)
#: Only their speed is measured. etcd looks at all of a queue for each who comes: it takes minutes.
_LONGEST = {"etcd": 3_000}
#: How many come at once.
_AT_ONCE = 1_000
_PROCESSES, _EACH = 20, 50
_IDLE = 3.0


def measure(_: int) -> Iterator[Table]:
    speed = Table(
        "Long queues in one asyncio process",
        (
            *("service", "waiters", "handoffs per second", "x the shortest queue's"),
            *("CPU ms", "server CPU ms", "resumed", "switches"),
        ),
        notes=[
            "per handoff; switches: how often the event loop's thread waited",
            f"{_AT_ONCE:,} at most come at once",
        ],
    )
    yield speed
    for name in SERVERS:
        with service(name) as server:
            first: float | None = None
            for waiters in (*_LENGTHS, _LONGEST.get(name, 10_000)):
                with _leaving_out(f"{waiters} waiters on {name}", speed):
                    first = _speed(server, waiters, first, speed)
    waiting = Table(
        "Waiting in a long queue",
        (
            *("service", "waiters", "KiB each", "resident KiB each", "threads", "CPU % idle"),
            *("requests", "replies", "bytes", "CPU ms to queue", "bytes to queue"),
        ),
        notes=[
            "KiB each: Python's memory beyond a bare task and a future",
            "requests, replies and bytes: per handoff; to queue: per waiter, all coming at once",
        ],
    )
    yield waiting
    for name in SERVERS:
        with service(name) as server:
            for waiters in _LENGTHS:
                with _leaving_out(f"{waiters} waiters on {name}", waiting):
                    _waiting(server, waiters, waiting)
    yield from _processes()


def _speed(server: Service, waiters: int, first: float | None, table: Table) -> float:
    url = server.url("/queues")
    samples = []
    with coordlock.connect(url) as holder, Worker("bench.crowd:Crowd", url) as crowd:
        times = 1 if waiters >= 1_000 else 3
        for _ in range(times):
            grant = holder.lock("long").acquire()
            crowd.do("line_up", name="long", settle=0.5, **_coming(waiters))
            before, started = cpu_of(server.pid), time.monotonic()
            grant.release()
            found = crowd.do("drain")
            found["speed"] = waiters / (found["done"] - started)
            found["server"] = (cpu_of(server.pid) - before) / waiters
            samples.append(found)
    middle = {key: median(one[key] for one in samples) for key in samples[0]}
    table.add(
        server.name,
        waiters,
        middle["speed"],
        middle["speed"] / (first or middle["speed"]),
        middle["cpu"] * 1e3,
        middle["server"] * 1e3,
        middle["resumed"],
        middle["switches"],
    )
    return first or middle["speed"]


def _waiting(server: Service, waiters: int, table: Table) -> None:
    url = server.url("/waiting")
    with server.proxy() as proxy, coordlock.connect(url) as holder:
        with Worker("bench.crowd:Crowd", server.behind(proxy).url("/waiting")) as crowd:
            grant = holder.lock("long").acquire()
            with proxy.counting() as queueing:
                lined = crowd.do("line_up", name="long", settle=1.0, **_coming(waiters))
            idle = None
            if waiters == _LENGTHS[-1]:
                idle = crowd.do("idle", seconds=_IDLE) * 100
            with proxy.counting() as sent:
                grant.release()
                crowd.do("drain")
        memory = None
        if waiters == _LENGTHS[-1]:
            with (
                _leaving_out(f"memory of {waiters} waiters on {server.name}", table),
                Worker("bench.crowd:Crowd", url) as crowd,
                holder.lock("long"),
            ):
                memory = crowd.do("memory", name="long", **_coming(waiters)) / 1024
    table.add(
        server.name,
        waiters,
        memory,
        lined["resident"] / 1024 if waiters == _LENGTHS[-1] else None,
        int(lined["threads"]),
        idle,
        messages(sent.requests) / waiters,
        messages(sent.replies) / waiters,
        (sent.sent + sent.received) / waiters,
        lined["cpu"] * 1e3,
        (queueing.sent + queueing.received) / waiters,
    )


@contextmanager
def _leaving_out(what: str, table: Table) -> Iterator[None]:
    """Note in ``table`` where ``what`` fails, as the longest queue may on a busy machine."""
    try:
        yield
    except (WorkerFailed, coordlock.CoordlockError) as reason:
        table.notes.append(f"{what}: left out, {reason}")


def _coming(waiters: int) -> dict[str, int]:
    """The arguments that say how many come, and how many of them at once."""
    return {"waiters": waiters, "at_once": min(waiters, _AT_ONCE)}


def _processes() -> Iterator[Table]:
    table = Table(
        f"{_PROCESSES} processes with {_EACH} waiters each",
        ("service", "handoffs per second", "requests", "replies", "bytes", "server CPU ms"),
        notes=["per handoff"],
    )
    yield table
    for name in SERVERS:
        with (
            service(name) as server,
            server.proxy() as proxy,
            coordlock.connect(server.url()) as holder,
            crew(
                [Worker("bench.crowd:Crowd", server.behind(proxy).url()) for _ in range(_PROCESSES)]
            ) as crowds,
        ):
            grant = holder.lock("shared").acquire()
            for crowd in crowds:
                crowd.tell("line_up", name="shared", waiters=_EACH, at_once=_EACH, settle=0.5)
            for crowd in crowds:
                crowd.answer()
            before = cpu_of(server.pid)
            with proxy.counting() as sent:
                started = time.monotonic()
                grant.release()
                for crowd in crowds:
                    crowd.tell("drain")
                ended = max(crowd.answer()["done"] for crowd in crowds)
            waiters = _PROCESSES * _EACH
            table.add(
                name,
                waiters / (ended - started),
                messages(sent.requests) / waiters,
                messages(sent.replies) / waiters,
                (sent.sent + sent.received) / waiters,
                (cpu_of(server.pid) - before) / waiters * 1e3,
            )
