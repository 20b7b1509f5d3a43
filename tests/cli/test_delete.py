"""``coordlock delete``."""

from __future__ import annotations

import json

from tests.cli.command import Cli
from tests.cli.test_completion import completed


def test_what_is_kept_is_deleted_by_name(cli: Cli) -> None:
    cli.run("counter", "add", "n", "41")
    cli.run("counter", "add", "m")
    cli.run("queue", "put", "q", "an item")
    assert sorted(completed(cli, "coordlock delete ")) == ["m", "n", "q"]
    assert cli.run("delete", "n", "--yes").stdout == "deleted: counter n\n"
    assert cli.run("counter", "get", "n").stdout == "0\n"
    done = cli.run("delete", "n", "m", "q", "--yes")
    assert (done.returncode, done.stdout) == (1, "deleted: counter m\n")
    first, second = done.stderr.splitlines()
    assert "no record is kept under 'n'" in first
    assert "it has items" in second
    assert cli.run("queue", "purge", "q", "--yes").returncode == 0
    assert cli.run("delete", "q", "--yes").returncode == 0
    assert json.loads(cli.run("ls", "--kept", "--json").stdout) == []


def test_a_name_with_several_kinds_needs_the_kind(cli: Cli) -> None:
    cli.run("counter", "add", "n")
    cli.run("latch", "down", "n", "2")
    done = cli.run("delete", "n", "--yes")
    assert (done.returncode, done.stdout) == (64, "")
    assert "counter and latch: say which with --kind" in done.stderr
    assert cli.run("delete", "n", "--kind", "latch", "--yes").stdout == "deleted: latch n\n"
    assert cli.run("delete", "n", "--kind", "latch", "--yes").returncode == 1
    assert cli.run("counter", "get", "n").stdout == "1\n"


def test_a_shut_gate_is_refused_by_name_and_stays_shut(cli: Cli) -> None:
    cli.run("gate", "shut", "g")
    done = cli.run("delete", "g", "--yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the gate 'g' was not deleted" in done.stderr
    assert cli.run("show", "g").stdout == "gate: shut\n"
