"""Sets of contenders on a real ZooKeeper, and the marker of the multi that made them."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

import coordlock
from testbed.servers.zookeeper import ZooKeeper


@pytest.mark.parametrize("evicted", [False, True])
def test_a_release_without_the_marker_tells_whether_the_contenders_were_there(
    zookeeper: ZooKeeper, root: str, evicted: bool, no_leaks: None
) -> None:
    other = KazooClient(f"{zookeeper.host}:{zookeeper.port}")
    other.start()
    try:
        with coordlock.connect(zookeeper.url_for(root)) as client:
            grant = client.multi_lock(["a", "b"]).acquire(timeout=30)
            [marker] = [one for one in other.get_children(f"{root}/b") if one.startswith("~")]
            other.delete(f"{root}/b/{marker}")
            if evicted:
                [contender] = other.get_children(f"{root}/b")
                other.delete(f"{root}/b/{contender}")
            assert grant.release() is not evicted
            assert client.admin.contenders("a") == client.admin.contenders("b") == ()
    finally:
        other.stop()
        other.close()
