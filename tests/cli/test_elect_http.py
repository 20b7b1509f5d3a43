"""``coordlock elect --http``: who leads, told to the other containers of a pod."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordlock.testing.waiting import eventually
from testbed.servers.etcd import EtcdServer
from testbed.servers.ports import free_port
from tests.cli.command import Cli


class Sidecar:
    """A process of ``coordlock elect --http``."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """The status, 0 if it does not answer, and what is said."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=60
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, {}

    @property
    def leads(self) -> bool:
        return self.get("/leading")[0] == 200


@contextmanager
def sidecar(cli: Cli, value: str, *command: str) -> Iterator[Sidecar]:
    port = free_port()
    options = ("--value", value, "--http", str(port), *command)
    with cli.started("elect", "sched", *options, stdin=subprocess.DEVNULL) as process:
        started = Sidecar(process, port)
        eventually(lambda: started.get("/")[0] == 200)
        yield started


def test_each_tells_who_leads_and_whether_it_does(cli: Cli) -> None:
    with sidecar(cli, "one") as one:
        eventually(lambda: one.leads)
        with sidecar(cli, "two") as two:
            eventually(lambda: two.get("/")[1]["leader"] == "one")
            status, told = two.get("/leading")
            assert (status, told["leading"], told["token"]) == (503, False, None)
            assert two.get("/healthz")[0] == 200
            status, told = one.get("/leading")
            assert (status, told["election"], told["leader"]) == (200, "sched", "one")
            assert told["token"] > 0
            one.process.kill()
            eventually(lambda: two.leads)
            eventually(lambda: two.get("/")[1]["leader"] == "two")
            two.process.send_signal(signal.SIGTERM)
            assert two.process.wait(60) == 128 + signal.SIGTERM
        assert cli.run("leader", "sched").returncode == 1


def test_it_answers_again_when_it_campaigns_again(cli: Cli) -> None:
    with sidecar(cli, "one") as one, sidecar(cli, "two") as two:
        eventually(lambda: one.leads or two.leads)
        first, second = (one, two) if one.leads else (two, one)
        cli.wait_for_queue("sched", 2)
        token = first.get("/")[1]["token"]
        assert cli.run("evict", "sched", "--token", str(token), "--yes").returncode == 0
        eventually(lambda: second.leads)
        eventually(lambda: first.get("/")[0] == 200)
        assert not first.leads


def test_with_a_command_it_answers_too(cli: Cli, tmp_path: Path) -> None:
    script = f"touch {tmp_path}/started; sleep 600"
    with sidecar(cli, "one", "--", "sh", "-c", script) as one:
        eventually((tmp_path / "started").exists)
        assert one.leads


def test_a_port_that_is_taken_is_said(cli: Cli) -> None:
    with sidecar(cli, "one") as one:
        done = cli.run("elect", "sched", "--http", str(one.port))
        assert (done.returncode, "Address already in use" in done.stderr) == (64, True)
    for wrong in ("x", "1.2.3.4:", "70000"):
        done = cli.run("elect", "sched", "--http", wrong)
        assert (done.returncode, "is not a port" in done.stderr) == (64, True)


@pytest.mark.etcd
@pytest.mark.faults
def test_a_silent_service_ends_the_lead_and_the_health(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "server") as server:
        cli = Cli(f"{server.url}?ttl=2s", tmp_path)
        with sidecar(cli, "one") as one:
            eventually(lambda: one.leads)
            server.pause()
            eventually(lambda: not one.leads)
            eventually(lambda: one.get("/healthz")[0] == 503)
            server.resume()
            eventually(lambda: one.leads and one.get("/healthz")[0] == 200)
