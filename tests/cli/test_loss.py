"""The lock is lost while a command runs: the command has ended before the lock does, or with it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd, EtcdServer
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperServer
from tests.cli.beating import Beating
from tests.cli.command import Cli

#: The command line doesn't know which service is behind its client.
pytestmark = [pytest.mark.faults, pytest.mark.long_on("zookeeper")]

TTL = 6.0

Server = EtcdServer | ZooKeeperServer


@pytest.fixture(
    params=[
        pytest.param(EtcdServer, marks=pytest.mark.etcd, id="etcd"),
        pytest.param(
            ZooKeeperServer, marks=[pytest.mark.zookeeper, pytest.mark.long], id="zookeeper"
        ),
    ]
)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, to pause."""
    start: Callable[[Path], Server] = request.param
    with start(tmp_path / "server") as running:
        yield running


@pytest.fixture(params=["local", "etcd", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, cli: Cli, root: str) -> Cli:
    """The command line on each backend in turn."""
    if request.param == "local":
        return cli
    service: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    return Cli(service.url_for(root, ttl="60s"), cli.directory)


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.long
def test_a_command_outlives_the_lease_while_heartbeats_are_answered(
    cli: Cli, zookeeper: ZooKeeper, root: str
) -> None:
    """On ZooKeeper the lease runs lower than elsewhere before the third heartbeat."""
    one = Cli(zookeeper.url_for(root, ttl="20s"), cli.directory)
    assert one.run("run", "x", "--", "sleep", "22").returncode == 0


def test_an_evicted_command_and_its_children_are_terminated(
    anywhere: Cli, beating: Beating
) -> None:
    """The fault: an operator's `coordlock evict`."""
    cli = anywhere
    with cli.started("run", "x", "--", *beating.command(stubborn=False)) as process:
        beating.wait_until_both_beat()
        done = cli.run("evict", "x", "--yes")
        assert done.returncode == 0
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 79
        assert beating.are_gone()
        assert "lock 'x' is lost" in errors
        assert len(errors.splitlines()) == 1


def test_an_evicted_command_that_ignores_sigterm_is_killed_after_the_grace(
    anywhere: Cli, beating: Beating
) -> None:
    """The fault: an operator's `coordlock evict`."""
    cli = anywhere
    command = ["run", "x", "--grace", "1s", "--", *beating.command(stubborn=True)]
    with cli.started(*command) as process:
        beating.wait_until_both_beat()
        evicted = now()
        assert cli.run("evict", "x", "--yes").returncode == 0
        assert process.wait(60) == 79
        eventually(beating.are_gone)
        assert beating.last() - evicted >= 1


def test_the_next_one_runs_only_when_the_evicted_one_has_ended_in_time(
    cli: Cli, tmp_path: Path
) -> None:
    """The fault: an operator's `coordlock evict`; the command obeys SIGTERM."""
    script = "trap 'echo cleaned up > log; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with cli.started("run", "x", "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert cli.run("evict", "x", "--yes").returncode == 0
        assert process.wait(60) == 79  # and not the 3 of the command
    assert (tmp_path / "log").read_text() == "cleaned up\n"


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_silent_server_ends_the_command_before_the_deadline(
    server: Server, root: str, tmp_path: Path, beating: Beating, stubborn: bool
) -> None:
    """The fault: the server stops answering (SIGSTOP), connections stay open."""
    cli = Cli(server.url_for(root, ttl=f"{TTL}s", request_timeout="2s"), tmp_path)
    with cli.started("run", "x", "--", *beating.command(stubborn=stubborn)) as process:
        beating.wait_until_both_beat()
        server.pause()
        paused = now()
        try:
            eventually(beating.are_gone, "both have ended")
            # No heartbeat that was acknowledged was sent after the pause.
            assert beating.stood_still() or beating.last() < paused + TTL
            _, errors = process.communicate(timeout=60)
        finally:
            server.resume()
        assert process.returncode == 79
        assert "runs out" in errors


def test_a_server_that_is_silent_for_a_moment_does_no_harm(
    server: Server, root: str, tmp_path: Path, beating: Beating
) -> None:
    """The fault: the server stops answering for a fraction of the time-to-live."""
    cli = Cli(server.url_for(root, ttl="20s"), tmp_path)
    with cli.started("run", "x", "--", *beating.command(stubborn=False)) as process:
        beating.wait_until_both_beat()
        server.pause()
        before = beating.last()
        eventually(lambda: beating.last() > before + 1)
        server.resume()
        before = beating.last()
        eventually(lambda: beating.last() > before + 1)
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM


def test_a_stopped_coordlock_does_not_leave_its_command_at_work(
    server: Server, root: str, tmp_path: Path, beating: Beating
) -> None:
    """The fault: coordlock alone is stopped (SIGSTOP), so that no heartbeat is sent."""
    cli = Cli(server.url_for(root, ttl=f"{TTL}s"), tmp_path)
    with cli.started("run", "x", "--", *beating.command(stubborn=True)) as process:
        beating.wait_until_both_beat()
        process.send_signal(signal.SIGSTOP)
        stopped = now()
        eventually(beating.are_gone, "both have ended")
        assert beating.stood_still() or beating.last() < stopped + TTL
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 79
