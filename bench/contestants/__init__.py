"""Who takes part, where each runs, and on which service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from bench.environments import AETCD, ETCD3, ETCDCTL, FILELOCK, OURS, REDIS_LOCK, TOOZ, Environment

__all__ = ["ENTRANTS", "Entrant", "entrants"]

Role = Literal["coordlock", "floor", "queue", "peer"]


@dataclass(frozen=True)
class Entrant:
    """One contestant.

    Attributes:
        name: in tables.
        service: ``zookeeper``, ``etcd``, ``redis`` or ``local``.
        role: a ``floor`` sends the messages of a lock and waits for nobody, and a ``queue`` is
            the bare messages of one that keeps order.
        subject: ``module:class`` under `bench.contestants`.
        http: speaks HTTP/1.1 to etcd, not gRPC.
    """

    name: str
    service: str
    role: Role
    subject: str
    environment: Environment = OURS
    http: bool = False


ENTRANTS: Final = (
    Entrant("floor", "zookeeper", "floor", "zookeeper_floor:ZooKeeperFloor"),
    Entrant("coordlock", "zookeeper", "coordlock", "ours:ZooKeeperSync"),
    Entrant("coordlock asyncio", "zookeeper", "coordlock", "ours:ZooKeeperAsync"),
    Entrant("kazoo", "zookeeper", "peer", "kazoo_lock:KazooLock"),
    Entrant("tooz (kazoo)", "zookeeper", "peer", "tooz_lock:ToozZooKeeper", TOOZ),
    Entrant("floor", "etcd", "floor", "etcd_floor:EtcdFloor"),
    Entrant("floor, futures", "etcd", "floor", "etcd_floor:EtcdFutures"),
    Entrant("bare queue", "etcd", "queue", "etcd_floor:EtcdQueue"),
    Entrant("coordlock", "etcd", "coordlock", "ours:EtcdSync"),
    Entrant("coordlock asyncio", "etcd", "coordlock", "ours:EtcdAsync"),
    Entrant("etcd3", "etcd", "peer", "etcd3_lock:Etcd3Lock", ETCD3),
    Entrant("aetcd", "etcd", "peer", "aetcd_lock:AetcdLock", AETCD),
    Entrant("tooz (etcd3gw)", "etcd", "peer", "tooz_lock:ToozEtcd", TOOZ, http=True),
    Entrant("etcdctl lock", "etcd", "peer", "etcdctl_lock:EtcdctlLock", ETCDCTL),
    Entrant("floor, I/O thread", "redis", "floor", "redis_floor:RedisThread"),
    Entrant("floor, blocking", "redis", "floor", "redis_floor:RedisFloor"),
    Entrant("bare queue", "redis", "queue", "redis_floor:RedisQueue"),
    Entrant("coordlock", "redis", "coordlock", "ours:RedisSync"),
    Entrant("coordlock asyncio", "redis", "coordlock", "ours:RedisAsync"),
    Entrant("redis-py", "redis", "peer", "redis_locks:RedisPy"),
    Entrant("python-redis-lock", "redis", "peer", "redis_locks:PythonRedisLock", REDIS_LOCK),
    Entrant("flock(2)", "local", "floor", "file_locks:Flock"),
    Entrant("coordlock", "local", "coordlock", "ours:LocalSync"),
    Entrant("coordlock asyncio", "local", "coordlock", "ours:LocalAsync"),
    Entrant("filelock", "local", "peer", "file_locks:FileLock", FILELOCK),
)


def entrants(service: str, *, contend: bool = False) -> list[Entrant]:
    """Those who take part on ``service``, its floor first; those who can ``contend``."""
    other = "floor" if contend and service != "local" else "queue"
    return [one for one in ENTRANTS if one.service == service and one.role != other]
