"""Locks that have nothing to do with each other, many at a time from one asyncio process."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.field import in_turns
from bench.figures import ratios
from bench.progress import doing
from bench.services import CLUSTERS, service
from bench.table import Plot, Table
from bench.workers import Worker

__all__ = ["measure"]

_CEILINGS = {"zookeeper": "ZooKeeperCeiling", "etcd": "EtcdCeiling"}
_WIDTH = 64
_SECONDS = 0.4


def measure(rounds: int) -> Iterator[Table]:
    for name in CLUSTERS:
        table = Table(
            f"{_WIDTH} independent locks at a time: {name}",
            ("who", "x ceiling", "CPU x ceiling's", "commits per pair", "pairs per second"),
            plot=Plot("x ceiling", "who", target=0.8),
        )
        table.notes = [
            f"{rounds} rounds in turns, {_SECONDS} s each",
            "ceiling: raw messages, each sent from the callback of the last answer",
            "ceiling, awaited: the same from tasks, each woken by itself; no lock around it",
            "coordlock, no service: on the memory backend, which shows what its own code takes",
            "commits: by the tokens; on etcd several locks' requests may share one",
        ]
        with (
            service(name) as server,
            Worker("bench.crowd:Crowd", server.url()) as ours,
            Worker("bench.crowd:Crowd", "memory://bench") as alone,
            Worker(f"bench.ceilings:{_CEILINGS[name]}", server.address) as ceiling,
        ):
            orders = {
                "ceiling": (ceiling, "independent"),
                "ceiling, awaited": (ceiling, "awaited"),
                "coordlock": (ours, "independent"),
                "coordlock, no service": (alone, "independent"),
            }
            made: dict[str, list[float]] = {who: [] for who in orders}
            cpu: dict[str, list[float]] = {who: [] for who in orders}
            commits: list[float] = []
            for number, who in in_turns(list(orders), rounds):
                doing(f"{name}: {who}", number, rounds)
                worker, order = orders[who]
                before = worker.do("cpu")
                pairs = worker.do(order, width=_WIDTH, seconds=_SECONDS)
                if number:
                    made[who].append(pairs)
                    cpu[who].append((worker.do("cpu") - before) / (pairs * _SECONDS))
                    if worker is ours:
                        commits.append(worker.do("commits"))
        for who in orders:
            table.add(
                who,
                ratios(made[who], made["ceiling"]),
                median(cpu[who]) / median(cpu["ceiling"]),
                median(commits) if who == "coordlock" else None,
                median(made[who]),
            )
        yield table
