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
        service: ``zookeeper``, ``etcd``, ``redis`` or ``local``.
        role: a ``floor`` sends the messages of a lock and waits for no other client.
        subject: ``module:class`` under `bench.contestants`.
    """

    name: str
    service: str
    role: Role
    subject: str


ENTRANTS: Final = (
    Entrant("floor", "zookeeper", "floor", "floors:ZooKeeperFloor"),
    Entrant("coordlock", "zookeeper", "coordlock", "ours:ZooKeeperSync"),
    Entrant("coordlock asyncio", "zookeeper", "coordlock", "ours:ZooKeeperAsync"),
    Entrant("kazoo", "zookeeper", "peer", "peers:KazooLock"),
    Entrant("floor", "etcd", "floor", "floors:EtcdFloor"),
    Entrant("coordlock", "etcd", "coordlock", "ours:EtcdSync"),
    Entrant("coordlock asyncio", "etcd", "coordlock", "ours:EtcdAsync"),
    Entrant("etcdctl lock", "etcd", "peer", "peers:EtcdctlLock"),
    Entrant("floor", "redis", "floor", "floors:RedisFloor"),
    Entrant("coordlock", "redis", "coordlock", "ours:RedisSync"),
    Entrant("coordlock asyncio", "redis", "coordlock", "ours:RedisAsync"),
    Entrant("redis-py", "redis", "peer", "peers:RedisPy"),
    Entrant("flock(2)", "local", "floor", "floors:Flock"),
    Entrant("coordlock", "local", "coordlock", "ours:LocalSync"),
    Entrant("coordlock asyncio", "local", "coordlock", "ours:LocalAsync"),
    Entrant("filelock", "local", "peer", "peers:FileLock"),
)


def entrants(service: str, *, contend: bool = False) -> list[Entrant]:
    """All on ``service``, its floor first; only those that can ``contend``."""
    return [
        one
        for one in ENTRANTS
        if one.service == service and not (contend and one.role == "floor" and service != "local")
    ]
