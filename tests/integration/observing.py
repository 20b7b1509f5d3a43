"""What the tests of observations on etcd and on ZooKeeper share."""

from __future__ import annotations

from typing import Any

from coordlock_etcd import EtcdBackend
from coordlock_zookeeper import ZookeeperBackend

from coordlock.backend import Listing, Observation, Put
from coordlock.testing.backend_contract import BOUND
from coordlock.testing.waiting import eventually

__all__ = ["follow", "is_fresh", "is_stale", "put", "values"]

Service = EtcdBackend | ZookeeperBackend


def put(backend: Service, folder: str, **values: bytes | str) -> None:
    """Write ``values`` as the keys of a folder, in one transaction."""
    raw = {key: v.encode() if isinstance(v, str) else v for key, v in values.items()}
    backend.write([Put(folder + key, value) for key, value in raw.items()]).result(BOUND)


def values(observed: Observation[Listing]) -> dict[str, bytes] | None:
    """By the names in the folder."""
    if (state := observed.view.state) is None:
        return None
    return {key.rpartition("/")[2]: one.data for key, one in state.values.items()}


def follow(backend: Service, folder: str) -> Observation[Listing]:
    """An observation that is up."""
    observed = backend.follow(folder, lambda: None)
    eventually(lambda: is_fresh(observed))
    return observed


def is_fresh(observed: Observation[Any]) -> bool:
    return observed.view.state is not None and observed.view.stale_since is None


def is_stale(observed: Observation[Any]) -> bool:
    return observed.view.stale_since is not None
