"""``coordlock show``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Cli
from tests.cli.terminals import Terminal, plain, screen


def test_show_tells_who_holds_and_who_waits(cli: Cli) -> None:
    with cli.holding("x", "--label", "holder"), cli.started("run", "-s", "x", "--", "cat"):
        cli.wait_for_queue("x", 2)
        holder, waiter = cli.show("x")
        assert holder["position"] == 0
        assert holder["holding"] is True
        assert holder["mode"] == "EX"
        assert holder["permits"] is None
        assert holder["owner"]["label"] == "holder"
        assert holder["age"] >= 0
        assert holder["key"]
        assert (waiter["position"], waiter["holding"], waiter["mode"]) == (1, False, "PR")
        assert waiter["token"] > holder["token"]
        plain = cli.run("show", "x").stdout.splitlines()
        assert "QUEUED" in plain[0]  # for a holder, too: since when it holds, nobody tells
        assert "AGE" not in plain[0]
        assert plain[1].split()[:3] == ["0", "holds", "EX"]
        assert plain[2].split()[:3] == ["1", "waits", "PR"]


def test_show_tells_of_permits(cli: Cli) -> None:
    with cli.holding("x", "--permits", "3"):
        (holder,) = cli.show("x")
        assert (holder["mode"], holder["permits"]) == (None, 3)
        assert "1 of 3" in cli.run("show", "x").stdout


def test_an_empty_queue_is_an_empty_list(cli: Cli) -> None:
    assert cli.show("nobody") == []
    done = cli.run("show", "nobody")
    assert (done.returncode, done.stdout) == (0, "")


def test_labels_cannot_steer_the_terminal(cli: Cli) -> None:
    with cli.holding("x\x1b[2J", "--label", "\x1b]0;owned\x07[red]"):
        for command in (["ls"], ["show", "x\x1b[2J"]):
            done = cli.run(*command)
            assert "\x1b" not in done.stdout
            assert "[red]" in done.stdout
        busy = cli.run("run", "-n", "x\x1b[2J", "--", "true")
        assert busy.returncode == 75
        assert "\x1b" not in busy.stderr


def test_on_a_terminal_there_are_tables_and_colours_only_if_wanted(
    cli: Cli, tmp_path: Path
) -> None:
    environment = cli.environment | {"TERM": "xterm-256color"}
    with cli.holding("x", "--label", "[red]label"), Terminal(environment, tmp_path) as terminal:
        program = " ".join(cli.command("show", "x"))
        terminal.write(f"TERM=xterm-256color {program}\n")
        terminal.expect("\x1b\\[1m")
        terminal.expect("\\[red\\]label")
        terminal.expect_prompt()
        for variable in ("NO_COLOR=1", "TERM=dumb"):
            terminal.write(f"{variable} {program}; echo over\n")
            assert "\x1b[1m" not in terminal.expect("(?s)label.*over\r\n")[0]


@pytest.mark.parametrize("encoding", ["utf-8:strict", "iso8859-7"])
def test_names_and_labels_that_the_terminal_cannot_show_are_escaped(
    cli: Cli, encoding: str
) -> None:
    # A command line may hold bytes that are no UTF-8, and then the label has surrogates.
    label = "ü" + b"\xff".decode("utf-8", "surrogateescape")
    cli.environment["PYTHONIOENCODING"] = encoding
    with cli.holding("日本", "--label", label):
        (holder,) = cli.show("日本")
        assert holder["owner"]["label"] == label
        assert [line["name"] for line in json.loads(cli.run("ls", "--json").stdout)] == ["日本"]
        for command in (["ls"], ["show", "日本"], ["evict", "日本", "--yes"]):
            done = cli.run(*command)
            assert (done.returncode, done.stderr) == (0, "")
            assert "\\udcff" in done.stdout


def test_a_table_fits_the_terminal_and_tokens_stay_whole(cli: Cli) -> None:
    label = "a label of quite some words"
    with cli.holding("x", "--label", label):
        (holder,) = cli.show("x")
        token = str(holder["token"])
        for command in (["show", "x"], ["ls"]):
            for width in (40, 80, 200):
                lines = [plain(line) for line in screen(cli, width, *command)]
                assert [line for line in lines if len(line) > width] == []
                assert any(token in line for line in lines) == (command != ["ls"])
                assert ("QUEUED" in lines[0]) == (width == 200 or len(lines) == 2)
                for word in label.split():
                    assert any(word in line for line in lines)
