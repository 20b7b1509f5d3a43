"""``coordlock demo failover``: whom the fence refuses, by the new server's clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.command import Cli

pytestmark = [pytest.mark.faults, pytest.mark.redis]


def test_the_fence_refuses_the_late_writer_and_with_a_late_clock_the_holder(cli: Cli) -> None:
    done = cli.run("demo", "failover", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    for run, refused, first in (("right", {"A"}, "refused"), ("behind", {"B"}, "wrote")):
        mine = [one for one in events if one["run"] == run]
        assert {one["worker"] for one in mine if one["event"] == "refused"} == refused
        [token, later, *_] = [one["token"] for one in mine if one["event"] == "holds"]
        assert (later > token) is (run == "right")
        mine_of_a = [one["event"] for one in mine if one["worker"] == "A"]
        assert mine_of_a[mine_of_a.index("thawed") + 1] == first


def test_a_url_is_refused_because_the_demo_starts_its_own_server(cli: Cli) -> None:
    done = cli.run("demo", "failover", "--url", "redis://a")
    assert done.returncode == 64
    assert "servers of its own" in done.stderr
