"""``coordlock doctor``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import coordlock
from testbed.servers.etcd import Etcd, EtcdServer
from testbed.servers.ports import free_port
from testbed.servers.zookeeper import ZooKeeper
from tests.cli.command import Cli
from tests.cli.terminals import plain, screen


def findings(cli: Cli, status: int = 0, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    """What the doctor says, by topic."""
    done = cli.run("doctor", "--json", *arguments)
    assert done.returncode == status, done
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["ok"] == (status == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in document["findings"]:
        found.setdefault(finding["topic"], []).append(finding)
    return found


def test_all_is_well_on_this_machine(cli: Cli) -> None:
    found = findings(cli)
    assert found["lock"][0]["state"] == "ok"
    assert found["data"][0]["state"] == "ok"
    assert "work queues" not in found
    assert "only processes of this machine" in found["reach"][0]["detail"]
    assert "COORDLOCK_URL" in found["configuration"][0]["detail"]
    assert cli.run("ls", "--json").stdout == "[]\n"
    assert cli.run("ls", "--kept", "--json").stdout == "[]\n"


def test_dead_items_of_work_queues_are_a_warning(cli: Cli) -> None:
    cli.run("queue", "put", "q", "one", "two")
    assert findings(cli)["work queues"][0]["state"] == "ok"
    cli.run("queue", "work", "q", "--count", "1", "--max-failures", "1", "--", "false")
    [finding] = findings(cli)["work queues"]
    assert finding["state"] == "warning"
    assert "in 'q' (1)" in finding["detail"]
    assert "queue retry" in finding["advice"]
    cli.run("queue", "retry", "q", "--all")
    assert findings(cli)["work queues"][0]["state"] == "ok"


def test_all_is_well_on_servers_and_no_data_is_left_there(
    etcd: Etcd, zookeeper: ZooKeeper, root: str, tmp_path: Path
) -> None:
    for service in (etcd, zookeeper):
        url = service.url_for(root, request_timeout="40s")
        found = findings(Cli(url, tmp_path))
        assert found["lock"][0]["state"] == "ok"
        assert found["data"][0]["state"] == "ok"
        [lease] = found["time-to-live"]
        assert lease["state"] == "ok" or "the slowest answer took" in lease["detail"]
        assert "median" in found["round trip"][0]["detail"]
        assert found["service"][0]["detail"][-1:].strip()
        assert "all clients" in found["reach"][0]["detail"]
        with coordlock.connect(url) as client:
            backend = client._access.engine.backend
            assert not [key for key in backend.read(f"{root}/").result(60).values if "@" in key]


def test_it_tells_where_the_configuration_was_found(cli: Cli, tmp_path: Path) -> None:
    url = cli.environment.pop("COORDLOCK_URL")
    (tmp_path / "coordlock.toml").write_text(f'url = "{url}"\n')
    assert "coordlock.toml" in findings(cli)["configuration"][0]["detail"]
    assert "--url" in findings(cli, 0, "--url", url)["configuration"][0]["detail"]


def test_a_variable_that_nothing_reads_is_a_warning(cli: Cli) -> None:
    assert "variable" not in findings(cli)
    cli.environment |= {"COORDLOCK_TTL": "5s", "COORDLOCK_REACH": "machine", "COORDLOCK_NAME": "x"}
    [finding] = findings(cli)["variable"]
    assert (finding["state"], finding["detail"]) == ("warning", "nothing reads COORDLOCK_TTL")
    assert "?ttl=" in finding["advice"]


def test_a_password_without_a_user_shows_no_user(tmp_path: Path) -> None:
    cli = Cli(f"redis://:s3cret@127.0.0.1:{free_port()}?connect_timeout=1s", tmp_path)
    [finding] = findings(cli, 69)["configuration"]
    assert "user" not in finding["detail"]


def test_a_server_that_is_not_there_gives_69_and_what_to_check(tmp_path: Path) -> None:
    """The fault: connection refused."""
    cli = Cli(f"etcd://127.0.0.1:{free_port()}?connect_timeout=1s", tmp_path)
    finding = findings(cli, 69)["connection"][0]
    assert finding["state"] == "failed"
    assert "check that the service runs" in finding["advice"]
    plain = cli.run("doctor")
    assert plain.returncode == 69
    assert "FAILED" in plain.stdout


def test_refused_credentials_give_77_and_no_password_is_shown(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "etcd", auth=True) as server:
        url = f"etcd://coord:not-the-password@127.0.0.1:{server.port}/coordlock"
        cli = Cli(url, tmp_path)
        found = findings(cli, 77)
        assert "user coord" in found["configuration"][0]["detail"]
        assert found["credentials"][0]["state"] == "failed"
        for command in (["doctor"], ["doctor", "--json"], ["run", "-v", "x", "--", "true"], ["ls"]):
            done = cli.run(*command)
            assert done.returncode == 77, done
            assert "not-the-password" not in done.stdout + done.stderr


def test_credentials_that_nobody_asks_for_are_a_warning(
    etcd: Etcd, root: str, tmp_path: Path
) -> None:
    assert "log" not in findings(Cli(etcd.url_for(root), tmp_path))
    url = replace(etcd.endpoint, username="somebody", password="s3cret").url(root)
    cli = Cli(url, tmp_path)
    [finding] = findings(cli)["log"]
    assert finding["state"] == "warning"
    assert "authentication is not enabled" in finding["detail"]
    done = cli.run("doctor")
    assert re.search("^warning  log .*authentication is not enabled$", done.stdout, re.MULTILINE)
    assert "s3cret" not in done.stdout + done.stderr


@pytest.mark.parametrize("width", [40, 80])
def test_what_it_says_fits_the_terminal(cli: Cli, width: int) -> None:
    cli.environment["COORDLOCK_URL"] = f"etcd://127.0.0.1:{free_port()}?connect_timeout=1s"
    lines = [plain(line) for line in screen(cli, width, "doctor", status=69)]
    assert [line for line in lines if len(line) > width] == []
    margin = " " * (9 if width == 40 else 23)
    assert all(re.match(rf"(ok|FAILED) +\w|{margin}\S", line) for line in lines)
    assert "check that the service runs" in " ".join(" ".join(lines).split())
    cli.environment["COLUMNS"] = str(width)
    assert len(cli.run("doctor").stdout.splitlines()) == 4  # a program gets a line for each text


def test_a_configuration_that_cannot_be_used_gives_78(tmp_path: Path) -> None:
    finding = findings(Cli("etdc://host", tmp_path), 78)["configuration"][0]
    assert finding["state"] == "failed"
    assert "etcd://" in finding["detail"]


def test_a_lease_that_the_server_cuts_is_reported(
    zookeeper: ZooKeeper, root: str, tmp_path: Path
) -> None:
    # ZooKeeper bounds session timeouts at 20 of its ticks.
    found = findings(Cli(zookeeper.url_for(root, ttl="10m"), tmp_path))
    assert found["time-to-live"][0]["state"] == "warning"
    assert "600 s" in found["time-to-live"][0]["detail"]
