"""Who takes part, and on which service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["ENTRANTS", "Entrant", "entrants"]

Role = Literal["coordlock", "floor", "peer"]


@dataclass(frozen=True)
class Entrant:
    """One contestant.

    Attributes:
        name: in tables.
        service: ``zookeeper``, ``etcd``, ``redis``, ``postgresql`` or ``local``.
        role: a ``floor`` sends the messages of a lock and waits for no other client.
        subject: ``module:class`` under `bench.contestants`.
    """

    name: str
    service: str
    role: Role
    subject: str


ENTRANTS: Final = (
    Entrant("floor", "zookeeper", "floor", "floors:ZooKeeperFloor"),
    Entrant("coordlock", "zookeeper", "coordlock", "ours:Sync"),
    Entrant("coordlock asyncio", "zookeeper", "coordlock", "ours:Async"),
    Entrant("kazoo", "zookeeper", "peer", "peers:KazooLock"),
    Entrant("floor", "etcd", "floor", "floors:EtcdFloor"),
    Entrant("coordlock", "etcd", "coordlock", "ours:Sync"),
    Entrant("coordlock asyncio", "etcd", "coordlock", "ours:Async"),
    Entrant("etcdctl lock", "etcd", "peer", "peers:EtcdctlLock"),
    Entrant("floor", "redis", "floor", "floors:RedisFloor"),
    Entrant("coordlock", "redis", "coordlock", "ours:Sync"),
    Entrant("coordlock asyncio", "redis", "coordlock", "ours:Async"),
    Entrant("redis-py", "redis", "peer", "peers:RedisPy"),
    Entrant("floor", "postgresql", "floor", "floors:PostgresqlFloor"),
    Entrant("coordlock", "postgresql", "coordlock", "ours:Sync"),
    Entrant("coordlock asyncio", "postgresql", "coordlock", "ours:Async"),
    Entrant("the requests alone", "postgresql", "peer", "floors:PostgresqlQueue"),
    Entrant("ShedLock's statements", "postgresql", "peer", "peers:ShedLock"),
    Entrant("flock(2)", "local", "floor", "floors:Flock"),
    Entrant("coordlock", "local", "coordlock", "ours:Sync"),
    Entrant("coordlock asyncio", "local", "coordlock", "ours:Async"),
    Entrant("filelock", "local", "peer", "peers:FileLock"),
)


def entrants(service: str, *, contend: bool = False) -> list[Entrant]:
    """All on ``service``, its floor first; only those that can ``contend``."""
    return [
        one
        for one in ENTRANTS
        if one.service == service and not (contend and one.role == "floor" and service != "local")
    ]
