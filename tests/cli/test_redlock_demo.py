"""``coordlock demo redlock``: two hold at once, by a pause and by clocks that jump."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.command import Cli

pytestmark = [pytest.mark.faults, pytest.mark.redis]


def test_both_runs_lose_an_update_and_the_jump_while_both_grants_say_held(cli: Cli) -> None:
    done = cli.run("demo", "redlock", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    for run, state in (("pause", "LOST"), ("clock", "HELD")):
        mine = [one for one in events if one["run"] == run]
        wrote = [one for one in mine if one["event"] == "wrote"]
        assert [(one["worker"], one["balance"], one["state"]) for one in wrote] == [
            ("B", 1, "HELD"),
            ("A", 1, state),
        ]
        assert (mine[-1]["event"], mine[-1]["lost"]) == ("counted", 1)


def test_servers_of_others_are_left_alone(cli: Cli) -> None:
    done = cli.run("demo", "redlock", "--url", "redlock://a,b,c")
    assert done.returncode == 64
    assert "servers of its own" in done.stderr


@pytest.mark.parametrize("story", [[], ["split-brain"]])
def test_the_stories_of_a_fence_are_refused_without_tokens(cli: Cli, story: list[str]) -> None:
    done = cli.run("demo", *story, "--url", "redlock://a,b,c")
    assert done.returncode == 78
    assert "redlock:// has no tokens" in done.stderr
    assert "coordlock demo redlock" in done.stderr
