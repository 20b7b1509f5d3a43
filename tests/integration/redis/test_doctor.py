"""What a Redis says of itself, and what follows for locks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisServer
from tests.cli.command import Cli

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_leaks")]


def said(server: RedisServer, root: str, **options: object) -> str:
    with coordlock.connect(server.url_for(root, **options)) as client:
        service = client.admin.describe()
    assert service.version.split(".")[0].isdigit()
    return "\n".join(service.warnings)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no append-only file: a restart loses data"),
        (["--appendonly", "yes"], "appendfsync is everysec"),
        (["--maxmemory", "100mb"], r"maxmemory is 100.00M"),
    ],
)
def test_how_it_keeps_data(
    tmp_path: Path, root: str, arguments: Sequence[str], expected: str
) -> None:
    with RedisServer(tmp_path / "redis", arguments=arguments) as server:
        assert expected in said(server, root)


def test_a_server_that_keeps_all_is_found_to_be_well(tmp_path: Path, root: str) -> None:
    arguments = ["--appendonly", "yes", "--appendfsync", "always"]
    with (
        RedisServer(tmp_path / "redis", arguments=arguments) as server,
        coordlock.connect(server.url_for(root)) as client,
    ):
        service = client.admin.describe()
    assert service.warnings == ()
    assert [note.split(":")[0] for note in service.notes] == [
        "maxmemory is not set",
        "appendfsync is always",
        "no replica",
        "after a restart, a failover or lost data, nothing is granted for 0 s (restart_delay)",
    ]


@pytest.mark.usefixtures("replica")
def test_its_replicas(only: RedisServer, root: str) -> None:
    with only.client() as admin:
        eventually(lambda: admin.info("replication").get("connected_slaves") == 1)
    assert "1 replica: a failover may lose" in said(only, root)
    assert "narrows" not in said(only, root, wait_replicas=1)


def test_a_user_who_may_not_ask_for_the_configuration_is_told_the_rest(
    only: RedisServer, root: str
) -> None:
    with only.client() as admin:
        admin.execute_command("ACL SETUSER", "default", "-config")
    assert "append-only file" in said(only, root)


def test_doctor_says_of_a_new_server_that_it_grants_nothing_yet(tmp_path: Path, root: str) -> None:
    with RedisServer(tmp_path / "redis") as server:
        url = server.url_for(root, restart_delay="60s", request_timeout="1s")
        done = Cli(url, tmp_path).run("doctor", "--json")
    assert done.returncode == 1
    found = {one["topic"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["connection"]["state"] == "ok"
    assert found["lock"]["state"] == "failed"
    assert "Redis is new, was restarted" in found["lock"]["detail"]
    assert found["lock"]["advice"].startswith("the service answers, but grants nothing yet")


def test_a_client_of_a_new_server_logs_once_why_it_waits(
    tmp_path: Path, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer(tmp_path / "redis") as server:
        url = server.url_for(root, restart_delay="10s")
        with coordlock.connect(url) as client, client.lock("q"):
            pass
    said = [one for one in caplog.records if "nothing is granted" in one.getMessage()]
    assert len(said) == 1
