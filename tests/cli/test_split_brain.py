"""``coordlock demo split-brain``: the proof with real processes, and what shows it."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from coordlock.cli.demo.ledger import Entry
from coordlock.cli.demo.outcome import Outcome
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.cli.command import Cli, is_gone
from tests.cli.terminals import long_numbers, plain, screen

pytestmark = pytest.mark.faults


@pytest.fixture(params=["local", "etcd", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, cli: Cli, root: str) -> Cli:
    """The command line on each backend in turn."""
    if request.param == "local":
        return cli
    service: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    return Cli(service.url_for(root), cli.directory)


Event = dict[str, Any]


def story(events: list[Event], run: str) -> list[str]:
    """What happened in one run, in the order of time."""
    silent = ("waits", "done", "keeps", "evicted")
    return [
        f"{event['worker']} {event['event']}"
        for event in events
        if event["run"] == run and event["event"] not in silent
    ]


def one(events: list[Event], run: str, worker: str, kind: str) -> Event:
    [found] = [
        event
        for event in events
        if (event["run"], event["worker"], event["event"]) == (run, worker, kind)
    ]
    return found


def test_a_stale_write_corrupts_the_ledger_without_a_fence_and_is_refused_with_it(
    anywhere: Cli,
) -> None:
    done = anywhere.run("demo", "split-brain", "--json", "--ttl", "6s")
    assert (done.returncode, done.stderr) == (0, ""), done
    events: list[Event] = [json.loads(line) for line in done.stdout.splitlines()]
    times = [event["at"] for event in events]
    assert times == sorted(times)

    # Without: both writes were acknowledged, and one is not in the ledger.
    opening = ["A holds", "A halfway", "A frozen", "B holds", "B wrote", "A thawed"]
    assert story(events, "without") == [*opening, "A wrote", "A lost", "the demo verdict"]
    stale, newer = (one(events, "without", who, "wrote") for who in "AB")
    assert stale["token"] < newer["token"] == stale["over"]
    assert stale["balance"] == newer["balance"] == 1
    verdict = one(events, "without", "the demo", "verdict")
    assert verdict["ledger"] == "corrupt"
    assert (verdict["acknowledged"], verdict["balance"]) == (2, 1)
    assert f"token {stale['token']} came after token {newer['token']}" in verdict["wrong"]
    assert "an update was lost: 1 was written after 1" in verdict["wrong"]

    # With: the stale write is refused, and made again.
    told = story(events, "with")
    again = ["A refused", "A lost", "A holds", "A wrote", "the demo verdict"]
    assert told == [*opening, *again]
    refused = one(events, "with", "A", "refused")
    frozen = one(events, "with", "A", "frozen")
    newest = one(events, "with", "B", "wrote")["token"]
    assert refused["token"] == frozen["token"] < refused["newest"] == newest
    assert refused["error"].startswith("StaleToken: ")
    assert str(refused["token"]) in refused["error"]
    assert str(newest) in refused["error"]
    assert one(events, "with", "A", "wrote")["balance"] == 2
    verdict = one(events, "with", "the demo", "verdict")
    assert (verdict["ledger"], verdict["wrong"]) == ("right", [])
    assert (verdict["acknowledged"], verdict["balance"]) == (2, 2)
    assert all(event["ok"] for event in events if event["event"] == "verdict")


@pytest.mark.parametrize("width", [80, 300])
def test_a_terminal_shows_both_runs_side_by_side(cli: Cli, width: int) -> None:
    lines = screen(cli, width, "demo", "split-brain")
    shown = [plain(line) for line in lines]
    assert [line for line in shown if len(line) > width] == []
    rows = [line for line in shown if " | " in line or line.endswith(" |")]
    [bar] = {line.index(" |") for line in rows}
    assert rows[0].split() == ["WITHOUT", "A", "FENCE", "|", "WITH", "A", "FENCE"]
    left = " ".join(row[12:bar].strip() for row in rows)
    right = " ".join(row[bar + 3 :].strip() for row in rows)
    assert "is ACCEPTED" in " ".join(left.split())
    assert "REFUSED" in " ".join(right.split())
    assert "StaleToken" in right
    assert "The ledger is CORRUPT:" in left
    assert "The ledger is RIGHT:" in right
    assert "\x1b[31m" in "".join(lines)  # red
    # Columns use the width, but are no wider than a line of a book.
    assert bar == 12 + min((width - 15) // 2, 72)


@pytest.mark.parametrize("width", [40, 71])
def test_a_narrow_terminal_shows_one_below_the_other(cli: Cli, width: int) -> None:
    lines = [plain(line) for line in screen(cli, width, "demo", "split-brain")]
    assert [line for line in lines if len(line) > width] == []
    assert not any("|" in line for line in lines)
    text = "\n".join(lines)
    assert "A FENCE" not in text  # that is a title of a column
    assert re.search(r"^ +\d+\.\d{3} s  without  A  HOLDS", text, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d{3} s  with     A  is REFUSED", text, re.MULTILINE)
    # What is found in one ledger is not mixed with what is found in the other.
    without, right = text.split("\nwith     The ledger is RIGHT:\n")
    corrupt = without.split("\nwithout  The ledger is CORRUPT:\n")[1]
    for found, part in ((corrupt, "the balance is 1"), (right, "the balance is 2")):
        assert part in " ".join(found.split())
        assert found.startswith("         token ")
    # Of a token that is broken in two nobody would know.
    assert {len(digits) for digits in long_numbers(text)} == {16}


def test_without_a_terminal_or_with_no_color_it_is_plain(cli: Cli) -> None:
    done = cli.run("demo", "split-brain")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert " | " in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    assert "only the fence kept a ledger right" in done.stdout.splitlines()[-1]
    assert "\x1b" not in "".join(
        screen(cli, 80, "demo", "split-brain", environment={"NO_COLOR": "1"})
    )


def test_ctrl_c_leaves_no_process_and_no_file(etcd: Etcd, root: str, tmp_path: Path) -> None:
    cli = Cli(etcd.url_for(root), tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = cli.environment | {"TMPDIR": str(scratch)}
    command = ("demo", "split-brain", "--json", "--ttl", "30s")
    with cli.started(*command, env=environment) as process:
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["event"] != "frozen":
            pass
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 4
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        eventually(lambda: all(is_gone(int(child)) for child in children))
        assert list(scratch.iterdir()) == []


def test_help_and_mistakes(cli: Cli) -> None:
    text = cli.run("demo", "split-brain", "--help").stdout
    assert "SIGSTOP" in text
    assert "Example: coordlock demo split-brain" in text
    assert "split-brain " in cli.run("demo", "--help").stdout
    for line, part in (
        (["demo", "--ttl", "3s", "split-brain"], "write the options of split-brain after it"),
        (["demo", "no-such-story"], "no such command"),
        (["demo", "split-brain", "--workers", "3"], "--workers"),
    ):
        done = cli.run(*line)
        assert (done.returncode, done.stdout) == (64, "")
        assert part in done.stderr
        assert len(done.stderr.splitlines()) == 1
    done = cli.run("demo", "split-brain", "--url", "memory://")
    assert done.returncode == 78


# What counts as proof

READ_A, READ_B = Entry(1, "A", "read", 0), Entry(2, "B", "read", 0)
STALE, NEWER = Entry(1, "A", "wrote", 1), Entry(2, "B", "wrote", 1)
AGAIN = [Entry(3, "A", "read", 1), Entry(3, "A", "wrote", 2)]
CORRUPT = [READ_A, READ_B, NEWER, STALE]
RIGHT = [READ_A, READ_B, NEWER, *AGAIN]


def test_the_two_ends_that_prove_something() -> None:
    assert Outcome(False, CORRUPT, 2, [], []).missing() == []
    assert Outcome(True, RIGHT, 2, [(1, 2)], []).missing() == []


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (Outcome(False, RIGHT, 2, [], []), "should have been accepted"),
        (Outcome(False, RIGHT, 2, [(1, 2)], []), "should have been lost"),
        (Outcome(False, [READ_A, STALE, READ_B, NEWER], 2, [], []), "should have been accepted"),
        (Outcome(False, CORRUPT, 1, [], []), "should have been lost"),
        (Outcome(False, CORRUPT, 2, [], ["1 of 2 workers came through"]), "came through"),
        (Outcome(False, [], 0, [], []), "should have been accepted"),
        (Outcome(True, CORRUPT, 2, [], []), "should have been refused"),
        (Outcome(True, CORRUPT, 2, [(1, 2)], []), "came after token 2"),
        (Outcome(True, RIGHT, 2, [], []), "should have been refused"),
        (Outcome(True, RIGHT, 2, [(1, 2), (1, 3)], []), "should have been refused"),
        (Outcome(True, RIGHT, 2, [(3, 2)], []), "should have been refused"),
        (Outcome(True, RIGHT, 3, [(1, 2)], []), "3 updates were acknowledged"),
        (Outcome(True, RIGHT, 2, [(1, 2)], ["1 contenders were left"]), "were left"),
    ],
)
def test_anything_else_proves_nothing(outcome: Outcome, problem: str) -> None:
    assert any(problem in missing for missing in outcome.missing())


def test_the_findings_name_what_is_wrong_and_what_was_refused() -> None:
    lost, kept = Outcome(False, CORRUPT, 2, [], []), Outcome(True, RIGHT, 2, [(1, 2)], [])
    assert lost.findings()[0] == "The ledger is CORRUPT:"
    assert "2 updates were acknowledged, and the balance is 1" in lost.findings()
    assert kept.findings()[1:] == [
        "token 1 was refused, because 2 was seen",
        "2 updates were acknowledged, and the balance is 2",
    ]
