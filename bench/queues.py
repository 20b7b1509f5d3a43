"""Long queues: waiters of one process, and of many."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

import coordlock
from bench.processor import cpu_of
from bench.services import HEARTBEATS, SERVICES, Service, service
from bench.table import Plot, Table
from bench.workers import Worker, WorkerFailed

__all__ = ["measure"]

#: A queue of 10,000 takes minutes on a busy machine: asked for by so many rounds.
_LENGTHS = (10, 100, 1_000)
_LONGEST = 10_000
_ROUNDS_FOR_LONGEST = 30
_PROCESSES, _EACH = 50, 20


def measure(rounds: int) -> Iterator[Table]:
    lengths = (*_LENGTHS, _LONGEST) if rounds >= _ROUNDS_FOR_LONGEST else _LENGTHS
    speed = Table(
        "Long queues in one asyncio process",
        (
            *("service", "waiters", "handoffs per second", "x the shortest queue's"),
            *("CPU ms", "server CPU ms", "resumed", "switches"),
        ),
        notes=["per handoff; switches: how often the event loop's thread waited"],
        plot=Plot("handoffs per second", "service", over="waiters", log=True),
    )
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
        plot=Plot("bytes", "service", over="waiters", log=True),
    )
    for name in SERVICES:
        with service(name) as server:
            first: float | None = None
            for waiters in lengths:
                first = _speed(server, waiters, first, speed)
                _waiting(server, waiters, waiting)
    yield speed
    yield waiting
    yield _processes()


def _speed(server: Service, waiters: int, first: float | None, table: Table) -> float:
    url = f"{server.name}://{server.address}/queues?ttl=30s"
    samples = []
    with coordlock.connect(url) as holder, Worker("bench.crowd:Crowd", url) as crowd:
        for _ in range(1 if waiters >= 1_000 else 3):
            grant = holder.lock("long").acquire()
            crowd.do("line_up", name="long", waiters=waiters, settle=0.5)
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
    url = f"{server.name}://{server.address}/waiting?ttl=30s"
    with server.proxy() as proxy, coordlock.connect(url) as holder:
        far = f"{server.name}://127.0.0.1:{proxy.port}/waiting?ttl=30s"
        with Worker("bench.crowd:Crowd", far) as crowd:
            grant = holder.lock("long").acquire()
            with proxy.counting() as queueing:
                lined = crowd.do("line_up", name="long", waiters=waiters, settle=1.0)
            idle = crowd.do("idle", seconds=6.0)
            with proxy.counting() as sent:
                grant.release()
                crowd.do("drain")
        requests = sum(n for kind, n in sent.requests.items() if kind not in HEARTBEATS)
        replies = sum(n for kind, n in sent.replies.items() if kind not in HEARTBEATS)
        memory = None
        if waiters in (100, 1_000):
            try:
                with Worker("bench.crowd:Crowd", url) as crowd, holder.lock("long"):
                    memory = crowd.do("memory", name="long", waiters=waiters) / 1024
            except WorkerFailed as reason:
                table.notes.append(f"memory of {waiters} on {server.name}: {reason}")
    table.add(
        server.name,
        waiters,
        memory,
        lined["resident"] / 1024 if waiters >= 1_000 else None,
        int(lined["threads"]),
        idle * 100,
        requests / waiters,
        replies / waiters,
        (sent.sent + sent.received) / waiters,
        lined["cpu"] * 1e3,
        (queueing.sent + queueing.received) / waiters,
    )


def _processes() -> Table:
    table = Table(
        f"{_PROCESSES} processes with {_EACH} waiters each",
        ("service", "handoffs per second", "requests", "replies", "bytes", "server CPU ms"),
        notes=["per handoff"],
    )
    for name in SERVICES:
        with service(name) as server, server.proxy() as proxy, ExitStack() as stack:
            url = f"{name}://127.0.0.1:{proxy.port}/processes?ttl=30s"
            crowds = [Worker("bench.crowd:Crowd", url) for _ in range(_PROCESSES)]
            for crowd in crowds:
                crowd.start()
                stack.callback(crowd.stop)
            for crowd in crowds:
                crowd.ready()
            holder = stack.enter_context(
                coordlock.connect(f"{name}://{server.address}/processes?ttl=30s")
            )
            grant = holder.lock("shared").acquire()
            for crowd in crowds:
                crowd.tell("line_up", name="shared", waiters=_EACH, settle=0.5)
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
                sum(n for kind, n in sent.requests.items() if kind not in HEARTBEATS) / waiters,
                sum(n for kind, n in sent.replies.items() if kind not in HEARTBEATS) / waiters,
                (sent.sent + sent.received) / waiters,
                (cpu_of(server.pid) - before) / waiters * 1e3,
            )
    return table
