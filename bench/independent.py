"""Locks that have nothing to do with each other, many at a time from one asyncio process."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.figures import ratios
from bench.progress import doing
from bench.services import SERVICES, service
from bench.table import Plot, Table
from bench.workers import Worker

__all__ = ["measure"]

_CEILINGS = {"zookeeper": "ZooKeeperCeiling", "etcd": "EtcdCeiling"}
_WIDTH = 64
_SECONDS = 0.5


def measure(rounds: int) -> Iterator[Table]:
    table = Table(
        f"{_WIDTH} independent locks at a time",
        ("service", "x ceiling", "CPU x ceiling's", "pairs per second", "ceiling"),
        plot=Plot("x ceiling", "service", target=0.8),
    )
    table.notes.append(f"{rounds} rounds in turns, {_SECONDS} s each")
    yield table
    for name in SERVICES:
        with (
            service(name) as server,
            Worker("bench.crowd:Crowd", f"{name}://{server.address}/bench?ttl=30s") as ours,
            Worker(f"bench.ceilings:{_CEILINGS[name]}", server.address) as ceiling,
        ):
            made: dict[Worker, list[float]] = {ours: [], ceiling: []}
            cpu: dict[Worker, list[float]] = {ours: [], ceiling: []}
            for number in range(rounds + 1):
                doing(name, number, rounds)
                for one in (ours, ceiling) if number % 2 else (ceiling, ours):
                    before = one.do("cpu")
                    pairs = one.do("independent", width=_WIDTH, seconds=_SECONDS)
                    if number:
                        made[one].append(pairs)
                        cpu[one].append((one.do("cpu") - before) / (pairs * _SECONDS))
            table.add(
                name,
                ratios(made[ours], made[ceiling]),
                median(cpu[ours]) / median(cpu[ceiling]),
                median(made[ours]),
                median(made[ceiling]),
            )
