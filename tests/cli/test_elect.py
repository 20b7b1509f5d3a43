"""``coordlock elect`` and ``coordlock leader``: elections from the shell."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordlock.testing.waiting import eventually
from testbed.servers.etcd import EtcdServer
from testbed.servers.zookeeper import ZooKeeperServer
from tests.cli.command import Cli, is_gone

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


@contextmanager
def leading(cli: Cli, value: str = "me") -> Iterator[subprocess.Popen[str]]:
    """``coordlock elect``, which leads until its stdin closes."""
    with cli.started("elect", "sched", "--value", value) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        yield process


def leader(cli: Cli) -> dict[str, object] | None:
    done = cli.run("leader", "sched", "--json")
    shown: dict[str, dict[str, object] | None] = json.loads(done.stdout)
    assert done.returncode == (shown["leader"] is None)
    return shown["leader"]


def test_a_command_runs_while_it_leads(cli: Cli) -> None:
    script = 'echo "$COORDLOCK_NAME $COORDLOCK_TOKEN $COORDLOCK_BACKEND"; exit 3'
    done = cli.run("elect", "sched", "--value", "10.0.0.5:80", "--", "sh", "-c", script)
    assert done.returncode == 3
    name, token, backend = done.stdout.split()
    assert (name, token.isdigit(), backend) == ("sched", True, "local")
    assert leader(cli) is None


def test_without_a_command_it_leads_until_stdin_closes(cli: Cli) -> None:
    with leading(cli) as process:
        found = leader(cli)
        assert found is not None
        assert found["value"] == "me"
        (shown,) = cli.show("sched")
        assert shown["token"] == found["token"]
        assert shown["owner"]["label"] == "me"
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert leader(cli) is None


def test_who_is_not_elected_says_who_leads(cli: Cli) -> None:
    with leading(cli, "10.0.0.5:80"):
        busy = cli.run("elect", "sched", "-n", "--", "true")
        assert busy.returncode == 75
        assert "election 'sched' is busy: held by 10.0.0.5:80 (token" in busy.stderr

        def gives_up() -> bool:
            late = cli.run("elect", "sched", "--timeout", "1s", "--", "true")
            if late.returncode == 69:
                return False  # the machine stalled: connecting, or the answer, took too long
            assert late.returncode == 75
            assert "election 'sched' was not won within" in late.stderr
            assert "10.0.0.5:80" in late.stderr
            return True

        eventually(gives_up)


def test_a_lost_lead_ends_the_command_which_runs_again_when_it_leads_again(cli: Cli) -> None:
    script = 'echo "$COORDLOCK_TOKEN $$"; sleep 600'
    with cli.started("elect", "sched", "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        terms = [process.stdout.readline().split()]
        for _ in range(2):
            assert cli.run("evict", "sched", "--yes").returncode == 0
            terms.append(process.stdout.readline().split())
            assert is_gone(int(terms[-2][1]))
        tokens = [int(token) for token, _ in terms]
        assert tokens == sorted(set(tokens))
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM
        assert errors.count("election 'sched' is lost") == 2
        assert errors.count("election 'sched': campaigns again") == 2
        assert is_gone(int(terms[-1][1]))
    assert leader(cli) is None


def test_without_a_command_it_tells_the_token_of_each_term(cli: Cli) -> None:
    with cli.started("elect", "sched", "-q") as process:
        assert process.stdout is not None
        first = int(process.stdout.readline())
        assert cli.run("evict", "sched", "--yes").returncode == 0
        assert int(process.stdout.readline()) > first
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    assert leader(cli) is None


def test_an_evicted_candidate_campaigns_again(cli: Cli) -> None:
    with leading(cli, "one") as first, cli.started("elect", "sched", "--value", "two") as process:
        cli.wait_for_queue("sched", 2)
        token = cli.show("sched")[1]["token"]
        assert cli.run("evict", "sched", "--token", str(token), "--yes").returncode == 0
        eventually(lambda: [one["token"] for one in cli.show("sched")[1:]] not in ([], [token]))
        first.communicate(timeout=60)
        assert process.stdout is not None
        assert int(process.stdout.readline()) > token
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_a_signal_while_the_command_is_ended_ends_the_campaign_too(cli: Cli) -> None:
    script = "trap 'echo ending' TERM; echo up; while :; do sleep 0.05; done"
    command = ["elect", "sched", "--grace", "3s", "--", "sh", "-c", script]
    with cli.started(*command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert cli.run("evict", "sched", "--yes").returncode == 0
        assert process.stdout.readline() == "ending\n"
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 79
        assert "up" not in output
        assert "campaigns again" not in errors


def test_a_signal_to_a_leader_whose_lead_is_lost_ends_the_campaign_too(cli: Cli) -> None:
    """The fault: coordlock is stopped, and learns of the signal and of the loss at once."""
    with leading(cli) as process:
        process.send_signal(signal.SIGSTOP)
        assert cli.run("evict", "sched", "--yes").returncode == 0
        process.terminate()
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (79, 128 + signal.SIGTERM)
        assert "campaigns again" not in errors


@pytest.mark.faults
@pytest.mark.long  # bound by the lease
def test_after_an_outage_a_leader_does_not_wait_for_its_own_dead_candidacy(
    server: Server, root: str, tmp_path: Path
) -> None:
    """The fault: the server restarts after the loss, and gives sessions their whole time again."""
    ttl = 8.0
    cli = Cli(server.url_for(root, ttl=f"{ttl}s"), tmp_path)
    with cli.started("elect", "sched", "--", "sh", "-c", "echo up; sleep 600") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "up\n"
        server.pause()
        while "campaigns again" not in process.stderr.readline():
            pass
        server.kill()
        server.start()
        began = time.monotonic()
        assert process.stdout.readline() == "up\n"
        assert time.monotonic() - began < ttl


def test_what_elect_lacks_is_refused_with_what_to_write(cli: Cli) -> None:
    done = cli.run("elect", "sched", "--label", "x", "--", "true")
    assert done.returncode == 64
    assert "no such option: --label; write --value" in done.stderr
    done = cli.run("elect", "sched", stdin=subprocess.DEVNULL, input=None)
    assert done.returncode == 64
    assert "give it a COMMAND or --http" in done.stderr


def test_json_has_a_line_for_each_event(cli: Cli) -> None:
    with cli.started("elect", "sched", "--json") as process:
        assert process.stdout is not None
        held = json.loads(process.stdout.readline())
        assert (held["event"], held["name"], held["backend"]) == ("held", "sched", "local")
        released, _ = process.communicate(timeout=60)
        assert json.loads(released)["event"] == "released"
    done = cli.run("elect", "sched", "--json", "--", "true")
    assert done.returncode == 64
    assert "without COMMAND" in done.stderr


def test_each_leader_is_followed(cli: Cli) -> None:
    with cli.started("leader", "sched", "--follow") as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "nobody leads\n"
        with leading(cli, "one") as first:
            assert watcher.stdout.readline().split()[1:] == ["one"]
            first.communicate(timeout=60)
        assert watcher.stdout.readline() == "nobody leads\n"
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(60) == 128 + signal.SIGINT
        assert watcher.stderr is not None
        assert watcher.stderr.read() == ""


def test_the_leader_is_shown_and_nobody_is_told_by_the_status(cli: Cli) -> None:
    with leading(cli, "10.0.0.5:80") as process:
        done = cli.run("leader", "sched")
        assert done.returncode == 0
        assert done.stdout.split()[1:] == ["10.0.0.5:80"]
        process.communicate(timeout=60)
    done = cli.run("leader", "sched")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "coordlock: nobody leads in the election 'sched'\n"
