"""`make cluster`: three nodes of each service until it is interrupted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from tests.testbed.servers.test_servers import has_ended

SCRIPT: Final = Path(__file__).parents[2] / "scripts" / "cluster.py"


@contextmanager
def cluster_script(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, SCRIPT, *arguments], stdout=subprocess.PIPE, text=True
    ) as script:
        try:
            yield script
        finally:
            script.kill()


@pytest.mark.etcd
@pytest.mark.zookeeper
def test_the_clusters_serve_until_the_interrupt_and_leave_nothing(root: str) -> None:
    with cluster_script("--json") as script:
        assert script.stdout
        clusters = json.loads(script.stdout.readline())
        assert list(clusters) == ["etcd", "zookeeper"]
        for cluster in clusters.values():
            members = cluster["members"]
            assert cluster["url"].endswith(",".join(member["address"] for member in members))
            assert [member["leads"] for member in members].count(True) == 1
            with coordlock.connect(f"{cluster['url']}{root}") as client, client.lock("a").acquire():
                pass
        script.send_signal(signal.SIGINT)
        assert script.wait(60) == 0
    members = [member for cluster in clusters.values() for member in cluster["members"]]
    eventually(lambda: all(has_ended(member["pid"]) for member in members), "the members' end")
    assert not any(Path(member["log"]).parent.exists() for member in members)


@pytest.mark.etcd
def test_one_service_can_be_asked_for_and_is_shown_in_words() -> None:
    with cluster_script("etcd") as script:
        assert script.stdout
        first, *others = [script.stdout.readline() for _ in range(4)]
        assert re.fullmatch(r"etcd +etcd://127\.0\.0\.1:\d+(,127\.0\.0\.1:\d+){2}\n", first)
        for line in others:
            assert re.fullmatch(r" +127\.0\.0\.1:\d+: process \d+(, the leader)?\n", line)
        script.send_signal(signal.SIGTERM)
        assert script.stdout.read() == ""
        assert script.wait(60) == 0


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    run = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == (
        "cluster: not installed: etcd, zookeeper; on Debian, `make servers` does it\n"
    )
