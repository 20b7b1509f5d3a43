"""``coordlock counter``, ``gate`` and ``latch``."""

from __future__ import annotations

import json

from tests.cli.command import Cli
from tests.cli.test_completion import completed


def test_a_counter_counts_for_shells(cli: Cli) -> None:
    assert cli.run("counter", "get", "n").stdout == "0\n"
    assert cli.run("counter", "add", "n").stdout == "1\n"
    assert cli.run("counter", "add", "n", "41").stdout == "42\n"
    assert cli.run("counter", "add", "n", "--", "-2").stdout == "40\n"
    assert json.loads(cli.run("counter", "get", "n", "--json").stdout) == {
        "name": "n",
        "number": 40,
    }
    assert completed(cli, "coordlock counter get ") == ["n"]
    with cli.started("counter", "get", "n", "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "40\n"
        assert cli.run("counter", "add", "n", "--json").returncode == 0
        assert process.stdout.readline() == "41\n"


def test_a_gate_holds_shells_back_until_it_is_opened(cli: Cli) -> None:
    assert cli.run("gate", "wait", "g", "-n").returncode == 0
    assert cli.run("gate", "shut", "g").stdout == "shut: g\n"
    assert cli.run("gate", "shut", "g").stdout == "shut already: g\n"
    assert cli.run("show", "g").stdout == "gate: shut\n"
    for patience in (["-n"], ["--timeout", "2s"]):
        done = cli.run("gate", "wait", "g", *patience)
        assert (done.returncode, done.stdout) == (75, "")
        assert "gate 'g'" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    with cli.started("gate", "wait", "g", "--timeout", "60s") as process:
        assert cli.run("gate", "open", "g").stdout == "opened: g\n"
        assert process.wait(60) == 0
    assert cli.run("gate", "open", "g").stdout == "open already: g\n"


def test_a_latch_opens_once_it_was_counted_down(cli: Cli) -> None:
    assert cli.run("latch", "down", "l", "2").stdout == "1\n"
    assert cli.run("show", "l").stdout == "latch: 1 of 2 left\n"
    done = cli.run("latch", "wait", "l", "2", "-n")
    assert done.returncode == 75
    assert "latch 'l'" in done.stderr
    left = json.loads(cli.run("latch", "down", "l", "2", "--json").stdout)
    assert left == {"name": "l", "count": 2, "remaining": 0}
    assert cli.run("latch", "wait", "l", "2").returncode == 0
    done = cli.run("latch", "down", "l", "3")
    assert done.returncode == 64
    assert len(done.stderr.splitlines()) == 1
