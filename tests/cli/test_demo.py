"""``coordlock demo`` and ``demo split-brain``: the stories, and what they prove."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from coordlock.cli.demo_worker import Ledger
from coordlock.errors import StaleToken
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.cli.command import Cli, is_gone
from tests.cli.terminals import long_numbers, plain, screen

Event = dict[str, Any]


@pytest.fixture(params=["local", "etcd", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, cli: Cli, root: str) -> Cli:
    """The command line on each backend in turn."""
    if request.param == "local":
        return cli
    service: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    return Cli(service.url_for(root), cli.directory)


def events_of(cli: Cli, *command: str) -> list[Event]:
    done = cli.run(*command, "--json", "--ttl", "6s")
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long_on("zookeeper")
def test_the_demo_shows_waiting_a_crash_a_freeze_and_a_refused_token(anywhere: Cli) -> None:
    events = events_of(anywhere, "demo")
    kinds = [event["event"] for event in events]
    for once in ("queue", "killed", "frozen", "thawed", "refused", "lost", "verdict"):
        assert kinds.count(once) == 1, once
    assert events[-1] == {**events[-1], "ok": True, "acknowledged": 3, "wrong": []}
    refused = next(event for event in events if event["event"] == "refused")
    holds = [event for event in events if event["event"] == "holds"]
    tokens = [event["token"] for event in holds]
    assert tokens == sorted(tokens)
    assert refused["token"] == tokens[2] < refused["newest"] == tokens[3]


@pytest.mark.faults
def test_a_stale_write_corrupts_the_ledger_without_a_fence_and_is_refused_with_it(
    anywhere: Cli,
) -> None:
    events = events_of(anywhere, "demo", "split-brain")

    def story(run: str) -> list[str]:
        told = [event for event in events if event["run"] == run and event["event"] != "evicted"]
        return [f"{event['worker']} {event['event']}" for event in told]

    opening = ["A holds", "A read", "A frozen", "B holds", "B read", "B wrote", "B released"]
    opening.append("A thawed")
    assert story("without") == [*opening, "A accepted", "A lost", "the demo verdict"]
    again = ["A refused", "A lost", "A holds", "A read", "A wrote", "A released"]
    assert story("with") == [*opening, *again, "the demo verdict"]
    corrupt, right = (event for event in events if event["event"] == "verdict")
    stale = next(event for event in events if event["event"] == "accepted")
    assert (corrupt["ok"], corrupt["acknowledged"]) == (True, 2)
    assert f"token {stale['token']} came after token {stale['newest']}" in corrupt["wrong"]
    assert "2 updates were acknowledged, the balance is 1" in corrupt["wrong"]
    assert (right["ok"], right["acknowledged"], right["wrong"]) == (True, 2, [])


@pytest.mark.parametrize("width", [40, 120])
def test_sentences_fit_the_terminal_and_tokens_stay_whole(cli: Cli, width: int) -> None:
    lines = screen(cli, width, "demo", "split-brain")
    shown = [plain(line) for line in lines]
    assert [line for line in shown if len(line) > width] == []
    text = " ".join(" ".join(shown).split())
    assert "the stale write is ACCEPTED" in text
    assert "is REFUSED by the ledger: token" in text
    assert {len(digits) for digits in long_numbers(text)} == {16}
    assert "\x1b[1;31m" in "".join(lines)  # red
    assert "\x1b" not in cli.run("demo", "split-brain").stdout


@pytest.mark.parametrize("url", ["memory://", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"])
def test_a_service_that_proves_nothing_is_refused_with_the_reason(url: str, tmp_path: Path) -> None:
    done = Cli(url, tmp_path).run("demo")
    assert done.returncode == 78
    assert "covers one process" in done.stderr or "has no tokens" in done.stderr


@pytest.mark.parametrize("command", [["demo"], ["demo", "split-brain"]])
def test_ctrl_c_leaves_no_worker_and_no_file(
    etcd: Etcd, root: str, tmp_path: Path, command: list[str]
) -> None:
    cli = Cli(etcd.url_for(root), tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = cli.environment | {"TMPDIR": str(scratch)}
    with cli.started(*command, "--json", "--ttl", "30s", env=environment) as process:
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["event"] != "frozen":
            pass
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) >= 2
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        eventually(lambda: all(is_gone(int(child)) for child in children))
        assert list(scratch.iterdir()) == []


def test_the_ledger_refuses_what_is_older_than_it_has_seen(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger"), str(tmp_path / "fences"))
    assert ledger.read(33) == ledger.read(34) == 0
    with pytest.raises(StaleToken):
        ledger.write(33, 1)
    ledger.write(34, 1)
    assert ledger.read(35) == 1
    assert ledger.entries() == [(34, 1)]
