"""Many that join a group at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import coordlock
from bench.contestants import Entrant
from bench.environments import TOOZ
from bench.field import field, turns
from bench.figures import Spread, spread
from bench.progress import doing
from bench.services import Service
from bench.table import Table

__all__ = ["apart", "storm"]

#: How many members join at once, by so many threads.
_MEMBERS: Final = 1000
_THREADS: Final = 20
#: So many where each has a session of its own.
_APART: Final = 100
#: No answer takes longer.
_BOUND: Final = 120.0

#: Those with a session for each member, as tooz has it.
_GROUPS: Final = (
    Entrant("coordlock", "zookeeper", "coordlock", "our_group:ZooKeeperGroup"),
    Entrant("tooz (kazoo)", "zookeeper", "peer", "tooz_group:ToozZooKeeperGroup", TOOZ),
    Entrant("coordlock", "etcd", "coordlock", "our_group:EtcdGroup"),
    Entrant("tooz (etcd3gw)", "etcd", "peer", "tooz_group:ToozEtcdGroup", TOOZ, http=True),
)


def storm(where: str, url: str, rounds: int, peer: Any) -> Table:
    """A thousand that join at once."""
    table = Table(
        f"{_MEMBERS:,} members join at once: {where}",
        ("who", "ms per member", "members read, ms"),
        notes=[f"{rounds} rounds; one client, {_THREADS} threads; the observer has its own"],
    )
    alone: list[float] = []
    joins: list[float] = []
    reads: list[float] = []
    with (
        coordlock.connect(url) as client,
        coordlock.connect(url) as other,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        for number in range(rounds):
            doing(f"{where}: a storm", number, rounds)
            began = time.perf_counter()
            unseen = client.group(f"u{number}").join
            members = list(pool.map(unseen, [b"%d" % one for one in range(_MEMBERS)]))
            alone.append((time.perf_counter() - began) / _MEMBERS)
            list(pool.map(lambda one: one.release(), members))
            group = client.group(f"g{number}")
            with other.group(f"g{number}").observe() as views:
                began = time.perf_counter()
                members = list(pool.map(group.join, [b"%d" % one for one in range(_MEMBERS)]))
                while len(views.next(_BOUND).members) < _MEMBERS:
                    pass
                joins.append((time.perf_counter() - began) / _MEMBERS)
                began = time.perf_counter()
                assert len(other.group(f"g{number}").members()) == _MEMBERS
                reads.append(time.perf_counter() - began)
                list(pool.map(lambda one: one.release(), members))
    table.add("coordlock", _ms(alone), None)
    table.add("coordlock, until an observer has seen all", _ms(joins), _ms(reads))
    if peer is not None:
        table.add("kazoo's Party", *_parties(peer, rounds))
    return table


def _parties(server: Any, rounds: int) -> tuple[Spread, Spread]:
    """What kazoo's recipe for groups takes: each member is an object of its own."""
    from kazoo.client import KazooClient

    joins: list[float] = []
    reads: list[float] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for number in range(rounds):
            client = KazooClient(server.address)
            client.start()
            try:
                parties = [client.Party(f"/party{number}", str(one)) for one in range(_MEMBERS)]
                began = time.perf_counter()
                list(pool.map(lambda one: one.join(), parties))
                joins.append((time.perf_counter() - began) / _MEMBERS)
                began = time.perf_counter()
                assert len(list(parties[0])) == _MEMBERS
                reads.append(time.perf_counter() - began)
            finally:
                client.stop()
                client.close()
    return _ms(joins), _ms(reads)


def apart(server: Service, rounds: int) -> Table:
    """Members that have a session each, as tooz's have."""
    table = Table(
        f"{_APART} members with a session each join at once: {server.name}",
        ("who", "ms per member", "members read, ms"),
        notes=[
            f"{rounds} rounds in turns; one process, {_THREADS} threads; connected before",
            "coordlock reads members with their values and owners, tooz names alone",
        ],
    )
    entrants = [one for one in _GROUPS if one.service == server.name]
    joins: dict[str, list[float]] = {}
    reads: dict[str, list[float]] = {}
    with field(entrants, server.address, table.notes) as there:
        for one, [worker] in there.items():
            doing(f"{server.name}: {_APART} sessions of {one.name}")
            worker.do("gather", members=_APART)
        for number, one in turns(list(there), rounds, "members apart on "):
            [worker] = there[one]
            joined, read = worker.do("storm", name=f"apart-{number}", threads=_THREADS)
            if number:
                joins.setdefault(one.name, []).append(joined / _APART)
                reads.setdefault(one.name, []).append(read)
    for one in there:
        table.add(one.name, _ms(joins[one.name]), _ms(reads[one.name]))
    return table


def _ms(samples: list[float]) -> Spread:
    return spread([one * 1e3 for one in samples])
