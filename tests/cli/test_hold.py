"""``coordlock hold``: a lock for scripts."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from testbed.servers.etcd import EtcdServer
from tests.cli.command import Cli
from tests.cli.terminals import Terminal

DOCS: Final = Path(__file__).parents[2] / "docs"


def test_it_prints_the_token_and_holds_until_stdin_closes(cli: Cli) -> None:
    with cli.holding("x") as holder:
        assert cli.run("run", "-n", "x", "--", "true").returncode == 75
        assert holder.stdin is not None
        holder.stdin.write("what is written does not matter\n")
        holder.stdin.flush()
        assert cli.run("run", "-n", "x", "--", "true").returncode == 75
        holder.communicate(timeout=60)
        assert holder.returncode == 0
        assert cli.run("run", "-n", "x", "--", "true").returncode == 0


def test_the_token_is_the_one_in_the_queue(cli: Cli) -> None:
    with cli.started("hold", "x", "--json") as holder:
        assert holder.stdout is not None
        line = json.loads(holder.stdout.readline())
        (shown,) = cli.show("x")
        assert line["token"] == shown["token"]


def fits(line: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether ``line`` has the fields of the ``schema``, with their types, and no others."""
    types: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "null": type(None),
    }
    for name, value in line.items():
        known = schema["properties"][name]
        allowed = known.get("type", [])
        kinds = [allowed] if isinstance(allowed, str) else allowed
        if kinds and not any(isinstance(value, types.get(kind, dict)) for kind in kinds):
            return False
        if value not in known.get("enum", [value]) or value != known.get("const", value):
            return False
    return set(schema["required"]) <= line.keys()


@pytest.mark.etcd
def test_json_has_a_line_for_each_event_by_the_schema(tmp_path: Path) -> None:
    schema = json.loads((DOCS / "reference" / "hold-events.schema.json").read_text())
    with EtcdServer(tmp_path / "etcd") as server:
        cli = Cli(server.endpoint.url("/t", ttl="60s"), tmp_path)
        with cli.holding("x") as first, cli.started("hold", "x", "--json") as second:
            assert second.stdout is not None
            waiting = json.loads(second.stdout.readline())
            first.send_signal(signal.SIGTERM)
            first.wait(60)
            held = json.loads(second.stdout.readline())
            server.kill()
            suspect = json.loads(second.stdout.readline())
            server.start()
            again = json.loads(second.stdout.readline())
            assert cli.run("evict", "x", "--yes").returncode == 0
            lost = json.loads(second.stdout.readline())
            assert second.wait(60) == 79
        done = cli.run("hold", "x", "--json", "--for", "10ms")
        lines = [waiting, held, suspect, again, lost, *map(json.loads, done.stdout.splitlines())]
    events = [line["event"] for line in lines]
    assert events == ["waiting", "held", "suspect", "held", "lost", "held", "released"]
    assert all(fits(line, schema) for line in lines), lines
    assert waiting["position"] == 1
    assert lost["token"] == held["token"] < lines[-1]["token"]


def test_events_follow_those_that_come_and_go_by_the_schema(cli: Cli) -> None:
    schema = json.loads((DOCS / "reference" / "hold-events.schema.json").read_text())
    with cli.holding("x") as first, cli.started("events", "x", "--json") as following:
        assert following.stdout is not None
        lines = [json.loads(following.stdout.readline())]
        with cli.started("hold", "x", "--for", "1h"):
            lines.append(json.loads(following.stdout.readline()))
            first.send_signal(signal.SIGTERM)
            lines += [json.loads(following.stdout.readline()) for _ in range(2)]
        lines.append(json.loads(following.stdout.readline()))
    assert [line["event"] for line in lines] == ["held", "waiting", "left", "held", "left"]
    assert [line["token"] for line in lines] == [lines[index]["token"] for index in (0, 1, 0, 1, 1)]
    assert all(fits(line, schema) for line in lines), lines


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_releases_it(cli: Cli, name: str) -> None:
    number = getattr(signal, name)
    with cli.holding("x") as holder:
        holder.send_signal(number)
        assert holder.wait(60) == 128 + number
        assert holder.stderr is not None
        assert holder.stderr.read() == ""
        assert cli.show("x") == []


def test_for_a_duration_whatever_stdin_does(cli: Cli) -> None:
    with cli.started("hold", "x", "--for", "1h", stdin=subprocess.DEVNULL) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        assert cli.run("run", "-n", "x", "--", "true").returncode == 75
    done = cli.run("hold", "y", "--for", "50ms")
    assert done.returncode == 0


def test_an_empty_stdin_is_an_error_because_nothing_would_be_held(cli: Cli) -> None:
    # A shell gives it to what a script starts with &.
    script = f"{' '.join(cli.command('hold', 'x'))} & wait $!"
    done = subprocess.run(
        ["sh", "-c", script], env=cli.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert "--for" in done.stderr


def test_typing_does_not_stop_it_in_the_background(cli: Cli, tmp_path: Path) -> None:
    with Terminal(cli.environment, tmp_path) as terminal:
        terminal.write(f"{' '.join(cli.command('hold', 'x'))} &\n")
        terminal.expect(r"\d{16}\r\n")
        terminal.write("sleep 1; jobs\n")  # time enough for a signal that must not come
        terminal.expect(r"\[1\].* Running ")
        terminal.expect_prompt()
        assert len(cli.show("x")) == 1
        terminal.write("fg; echo status $?\n")
        terminal.expect("hold x\r\n")
        terminal.write("\x04")
        terminal.expect("status 0")
        assert cli.show("x") == []
