"""The test servers themselves: what they promise to the tests that use them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordlock.testing.waiting import eventually
from testbed.servers.etcd import EtcdServer
from testbed.servers.zookeeper import ZooKeeperServer
from tests.conftest import INSTALL

pytestmark = [pytest.mark.etcd, pytest.mark.zookeeper]


class TestMissingServices:
    """A run of this very file, on a machine that has no server."""

    def test_the_run_fails_and_names_the_line_that_installs_them(self) -> None:
        run = run_this_file(PATH="")
        assert run.returncode == pytest.ExitCode.USAGE_ERROR
        assert "not installed: etcd, zookeeper" in run.stderr
        assert f"\n    {INSTALL}\n" in run.stderr

    @pytest.mark.parametrize("workers", ["-n0", "-n2"])
    def test_what_is_left_out_is_reported(self, workers: str) -> None:
        run = run_this_file("--without=etcd,zookeeper", workers, PATH="")
        assert run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
        assert re.search(r"left out by --without: [1-9]\d* tests that need etcd\n", run.stdout)
        assert re.search(r"left out by --without: [1-9]\d* tests that need zookeeper\n", run.stdout)


def run_this_file(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize("server_class", [EtcdServer, ZooKeeperServer])
class TestProcess:
    """What both kinds of server do as processes."""

    def test_a_server_dies_with_the_process_that_started_it(
        self, server_class: Any, tmp_path: Path
    ) -> None:
        program = (
            "import pathlib, sys, time\n"
            f"from {server_class.__module__} import {server_class.__name__}\n"
            f"server = {server_class.__name__}(pathlib.Path(sys.argv[1])).start()\n"
            "print(server.pid, server.port, flush=True)\n"
            "time.sleep(60)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        ) as starter:
            assert starter.stdout
            pid, port = map(int, starter.stdout.readline().split())
            socket.create_connection(("127.0.0.1", port)).close()
            starter.kill()
            eventually(lambda: has_ended(pid), "the end of the orphaned server")


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or dead and only waiting for its parent to notice."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
