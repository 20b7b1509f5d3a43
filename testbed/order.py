"""Whether a client would be told of its own contender's departure in order."""

from __future__ import annotations

from coordlock_etcd import EtcdBackend
from coordlock_redis import RedisBackend
from coordlock_zookeeper import ZookeeperBackend

from coordlock.backend import Backend
from coordlock.model.contender import Contender

__all__ = ["is_told_in_order"]


def is_told_in_order(backend: Backend, mine: Contender) -> bool:
    """What ``backend`` would say now on behalf of ``mine`` if another contender departed."""
    if isinstance(backend, EtcdBackend):
        watch = backend._watcher._watches.watched.get((mine.key, mine.order, 0))
        return watch is not None and watch.is_covered
    if isinstance(backend, RedisBackend):
        own = backend._watches._table.watched.get((mine.id, mine.order))
        return own is not None and own.is_reported
    if backend.scheme == "postgresql":
        return True  # never in order: nothing is to come
    assert isinstance(backend, ZookeeperBackend)
    current = backend._current
    return current is not None and current.session.watches.certain(mine.key)
