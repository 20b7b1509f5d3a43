"""``coordlock demo``: the story on every backend, and the audit that could fail."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from coordlock.cli.commands.demo import _Story
from coordlock.cli.demo.crew import Crew
from coordlock.cli.demo.ledger import Entry, Ledger, audit, balance_of
from coordlock.cli.demo.timeline import Timeline
from coordlock.client import connect
from coordlock.errors import StaleToken
from coordlock.fencing.files import FileFence
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.cli.command import Cli, is_gone
from tests.cli.terminals import long_numbers, plain, screen


@pytest.fixture(params=["local", "etcd", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, cli: Cli, root: str) -> Cli:
    """The command line on each backend in turn."""
    if request.param == "local":
        return cli
    service: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    return Cli(service.url_for(root), cli.directory)


@pytest.mark.long_on("zookeeper")
def test_the_demo_shows_waiting_a_crash_a_freeze_and_a_refused_token(anywhere: Cli) -> None:
    done = anywhere.run("demo", "--json", "--ttl", "6s")
    assert done.returncode == 0, done
    assert done.stderr == ""
    events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    for once in ("killed", "frozen", "thawed", "refused", "lost", "verdict"):
        assert kinds.count(once) == 1, once
    verdict = events[-1]
    assert verdict["ok"] is True
    assert verdict["updates"] == 4 * 3 - 2  # the killed one made one of its three
    frozen = next(event for event in events if event["event"] == "frozen")
    refused = next(event for event in events if event["event"] == "refused")
    assert refused["token"] == frozen["token"] < refused["newest"]
    holds = [event for event in events if event["event"] == "holds"]
    assert [one["token"] for one in holds] == sorted(one["token"] for one in holds)
    assert any(one["waited"] > 0 for one in holds)


class _Orders(Crew):
    """A crew without processes that remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def order(self, worker: str, run: str = "") -> None:
        self.told.append(f"go on, {worker}")

    def freeze(self, worker: str, run: str = "") -> float:
        self.told.append(f"freeze {worker}")
        return 0.0


def test_somebody_is_left_to_write_while_one_is_frozen(cli: Cli) -> None:
    """A worker that is quicker than the one to be frozen waits before its last round."""
    crew = _Orders()
    with connect(cli.url) as client, client.lock("x"):
        story = _Story(
            crew, client, Timeline(0.0, as_json=True), "x", leased=True, workers=["a", "b", "c"]
        )
        story.go_on({"at": 1.0, "worker": "c", "event": "last"})
        assert crew.told == []
        story.go_on({"at": 2.0, "worker": "b", "event": "halfway", "token": 7})
        assert crew.told == ["freeze b", "go on, c"]


def test_people_get_sentences(cli: Cli) -> None:
    done = cli.run("demo", "--workers", "3")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "All is well."
    for phrase in ("HOLDS the lock", "sees the queue", "SIGKILL", "SIGSTOP", "REFUSED"):
        assert phrase in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("width", [40, 80])
def test_sentences_fit_the_terminal_and_tokens_stay_whole(cli: Cli, width: int) -> None:
    lines = [plain(line) for line in screen(cli, width, "demo", "--workers", "3")]
    assert [line for line in lines if len(line) > width] == []
    # The times stand in a column of their own.
    assert all(
        re.match(r" +\d+\.\d{3} s  \S", line) or line.startswith(" " * 15)
        for line in lines
        if line.startswith(" ")
    )
    text = " ".join(" ".join(lines).split())
    assert "is REFUSED by the ledger: token" in text
    assert "A crash: a worker is killed while it holds the lock." in text
    assert {len(digits) for digits in long_numbers(text)} == {16}


def test_a_backend_of_one_process_is_refused_with_the_reason(tmp_path: Path) -> None:
    done = Cli("memory://", tmp_path).run("demo")
    assert done.returncode == 78
    assert "covers one process" in done.stderr


def test_ctrl_c_leaves_no_worker_and_no_file(etcd: Etcd, root: str, tmp_path: Path) -> None:
    cli = Cli(etcd.url_for(root), tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = cli.environment | {"TMPDIR": str(scratch)}
    with cli.started("demo", "--json", env=environment) as process:
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["event"] != "frozen":
            pass
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) >= 3
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        eventually(lambda: all(is_gone(int(child)) for child in children))
        assert list(scratch.iterdir()) == []


def test_the_ledger_refuses_what_is_older_than_it_has_seen(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", FileFence(tmp_path / "fences"))
    assert ledger.read(33, "a") == 0
    assert ledger.read(34, "b") == 0
    with pytest.raises(StaleToken):
        ledger.write(33, "a", 1)
    ledger.write(34, "b", 1)
    assert ledger.read(35, "c") == 1
    assert audit(ledger.entries(), writes=1) == []


def test_a_ledger_without_a_fence_takes_everything(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.entries() == []
    balance = ledger.read(33, "a")
    ledger.write(34, "b", ledger.read(34, "b") + 1)
    ledger.write(33, "a", balance + 1)
    assert balance_of(ledger.entries()) == 1
    assert "token 33 came after token 34" in audit(ledger.entries(), writes=2)


READ_1, WROTE_1 = Entry(1, "a", "read", 0), Entry(1, "a", "wrote", 1)
READ_2, WROTE_2 = Entry(2, "b", "read", 1), Entry(2, "b", "wrote", 2)


def test_a_good_ledger_passes_the_audit() -> None:
    assert audit([READ_1, WROTE_1, READ_2, WROTE_2], 2) == []
    assert audit([READ_1, WROTE_1, READ_2], 1) == []  # b crashed
    assert audit([], 0) == []


@pytest.mark.parametrize(
    ("entries", "writes", "problem"),
    [
        ([READ_2, WROTE_1], 1, "came after token 2"),
        ([READ_1, WROTE_1, Entry(1, "b", "read", 1)], 1, "was used by a and b"),
        ([READ_1, Entry(2, "b", "read", 0), WROTE_1], 1, "came between"),
        ([READ_1, WROTE_1, READ_2, Entry(2, "b", "wrote", 1)], 2, "an update was lost"),
        ([READ_1, WROTE_1, Entry(2, "b", "read", 0)], 1, "read 0 where 1 was written"),
        ([READ_1, WROTE_1], 2, "2 updates were acknowledged"),
    ],
)
def test_a_bad_ledger_fails_the_audit(entries: list[Entry], writes: int, problem: str) -> None:
    assert any(problem in wrong for wrong in audit(entries, writes))
