"""``--json``: programs read its keys, so these are public."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from coordlock.cli.command_table import COMMANDS
from tests.cli.command import Cli
from tests.cli.test_deadlocks import cycle

__all__ = ["cycle"]


def named(path: str, which: int = 0) -> Any:
    """The keys that the help of a command names, as JSON; what is below none of them is null."""
    [text] = [option.help for option in COMMANDS[path].options if option.names == ("--json",)]
    keys = re.sub(r"(\w+)(?=[,}])", r"\1: null", re.findall(r"`(.*?)`", text)[which])
    return json.loads(re.sub(r"(\w+):", r'"\1":', keys))


def keys_of(found: Any, wanted: Any) -> Any:
    """The keys of what was ``found``, down to those that are ``wanted``."""
    if wanted is None:
        return None
    if isinstance(found, list):
        assert found
        return [keys_of(found[0], wanted[0])]
    return {key: keys_of(value, wanted.get(key)) for key, value in found.items()}


def check(cli: Cli, *words: str, which: int = 0) -> None:
    wanted = named(" ".join(words[: 1 + (" ".join(words[:2]) in COMMANDS)]), which)
    assert keys_of(json.loads(cli.run(*words, "--json").stdout), wanted) == wanted


def test_json_has_the_keys_that_the_help_names(cli: Cli) -> None:
    cli.run("run", "night", "--slot", "1", "--keep-stderr", "--", "sh", "-c", "echo no >&2; exit 3")
    cli.run("queue", "put", "mails", "to: ann")
    cli.run("value", "set", "/shop/limit", "20")
    cli.run("counter", "add", "kept")
    with (
        cli.holding("kept"),
        cli.started("run", "kept", "--", "true"),
        cli.started("elect", "leaders"),
        cli.started("group", "join", "members"),
        cli.started("events", "kept", "--json") as events,
    ):
        for name, length in {"kept": 2, "leaders": 1, "members": 1}.items():
            cli.wait_for_queue(name, length)
        check(cli, "ls", "kept")
        check(cli, "ls", "--kept", which=1)
        check(cli, "show", "kept")
        check(cli, "leader", "leaders")
        check(cli, "group", "members", "members")
        assert events.stdout is not None
        assert list(json.loads(events.stdout.readline())) == list(named("events"))
    check(cli, "queue", "ls", "mails")
    check(cli, "jobs")
    check(cli, "jobs", "check", "night")
    check(cli, "jobs", "show", "night")
    check(cli, "value", "get", "/shop/limit")
    check(cli, "value", "ls", "/shop")
    check(cli, "counter", "add", "kept")
    check(cli, "counter", "get", "kept")
    check(cli, "latch", "down", "open", "2")
    check(cli, "doctor")


@pytest.mark.usefixtures("cycle")
def test_the_json_of_a_deadlock_has_the_keys_that_the_help_names(cli: Cli) -> None:
    check(cli, "deadlocks")
