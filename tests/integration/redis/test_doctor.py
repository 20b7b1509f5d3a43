"""What a Redis says of itself, and what follows for locks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_leaks")]


def said(server: RedisServer, root: str, **options: object) -> str:
    with coordlock.connect(server.url_for(root, **options)) as client:
        service = client.describe()
    assert service.version.split(".")[0].isdigit()
    return "\n".join(service.warnings)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "it keeps no append-only file"),
        (["--appendonly", "yes"], "appendfsync is everysec"),
        (["--appendonly", "yes", "--appendfsync", "always"], ""),
        (["--maxmemory", "100mb"], r"maxmemory is 100.00M"),
    ],
)
def test_how_it_keeps_data(
    tmp_path: Path, root: str, arguments: Sequence[str], expected: str
) -> None:
    with RedisServer(tmp_path / "redis", arguments=arguments) as server:
        text = said(server, root)
        assert expected in text if expected else text == ""


def test_that_it_may_evict_keys(tmp_path: Path, root: str) -> None:
    arguments = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]
    with RedisServer(tmp_path / "redis", arguments=arguments) as server:
        assert "maxmemory-policy is allkeys-lru" in said(server, root, allow_eviction="true")


def test_its_replicas_and_their_silence(only: RedisServer, replica: RedisServer, root: str) -> None:
    with only.client() as admin:
        eventually(lambda: admin.info("replication").get("connected_slaves") == 1)
    assert "it has 1 replica, and a failover may lose" in said(only, root)
    assert "narrows" not in said(only, root, wait_replicas=1)
    replica.pause()
    eventually(lambda: "a replica has been silent" in said(only, root), within=20)
    replica.resume()


def test_a_user_who_may_not_ask_for_the_configuration_is_told_the_rest(
    only: RedisServer, root: str
) -> None:
    with only.client() as admin:
        admin.execute_command("ACL SETUSER", "default", "-config")
    assert "append-only file" in said(only, root)
