"""``coordlock demo`` and ``demo split-brain``: the stories, and what they prove."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.cli.command import Cli, is_gone
from tests.cli.terminals import screen


@pytest.fixture(params=["local", "etcd", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, cli: Cli, root: str) -> Cli:
    """The command line on each backend in turn."""
    if request.param == "local":
        return cli
    service: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    return Cli(service.url_for(root), cli.directory)


def story_of(cli: Cli, *command: str) -> list[str]:
    """The lines without their times."""
    done = cli.run("demo", *command, "--ttl", "6s")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "\x1b" not in done.stdout
    return re.findall(r"^ +[\d.]+ s  (.*)", done.stdout, re.MULTILINE)


def told(lines: Iterable[str], who: str) -> list[str]:
    """The verbs of what ``who`` does, but for an eviction, which only services without leases need.

    ``RIGHT`` or ``CORRUPT`` for a verdict.
    """
    of = [re.split(r"\s+", line[len(who) :].strip()) for line in lines if line.startswith(who)]
    words = [
        of_line[1] if of_line[0] == "is" else of_line[3 if of_line[0] == "finds" else 0]
        for of_line in of
    ]
    return [word.rstrip(":") for word in words if word != "evicted,"]


@pytest.mark.long_on("zookeeper")
def test_the_demo_shows_waiting_a_crash_a_freeze_and_a_refused_token(anywhere: Cli) -> None:
    lines = story_of(anywhere)
    assert told(lines, "worker-2") == ["waits", "HOLDS", "read", "killed"]
    assert told(lines, "worker-3") == [
        *("waits", "HOLDS", "read", "frozen", "woken", "REFUSED", "learns"),
        *("HOLDS", "read", "wrote", "released"),
    ]
    assert lines[-1].endswith("RIGHT: the balance is 3")
    tokens = [int(token) for token in re.findall(r"HOLDS the lock, token (\d+)", "\n".join(lines))]
    assert tokens == sorted(tokens)
    assert f"token {tokens[2]} is older than {tokens[3]}" in "\n".join(lines)


@pytest.mark.faults
def test_a_stale_write_corrupts_the_ledger_without_a_fence_and_is_refused_with_it(
    anywhere: Cli,
) -> None:
    lines = story_of(anywhere, "split-brain")
    begin = ["HOLDS", "read", "frozen", "woken"]
    assert told(lines, "without A") == [*begin, "wrote", "learns"]
    again = ["HOLDS", "read", "wrote", "released"]
    assert told(lines, "with A") == [*begin, "REFUSED", "learns", *again]
    for run in ("without", "with"):
        assert told(lines, f"{run} B") == ["HOLDS", "read", "wrote", "released"]
    assert told(lines, "without the demo") == ["CORRUPT"]
    assert told(lines, "with the demo") == ["RIGHT"]
    text = "\n".join(lines)
    [(stale, newest)] = re.findall(r"token (\d+): the stale .* ACCEPTED, though token (\d+)", text)
    assert f"token {stale} came after token {newest}" in text
    assert "2 updates were written, the balance is 1" in text


def test_what_must_not_be_missed_is_red_on_a_terminal(cli: Cli) -> None:
    assert "\x1b[1;31m" in "".join(screen(cli, 120, "demo", "split-brain"))


@pytest.mark.parametrize("url", ["memory://", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"])
def test_a_service_that_proves_nothing_is_refused_with_the_reason(url: str, tmp_path: Path) -> None:
    done = Cli(url, tmp_path).run("demo")
    assert done.returncode == 78
    assert "covers one process" in done.stderr or "has no tokens" in done.stderr


@pytest.mark.parametrize(
    ("command", "moment"), [(["demo"], "HOLDS"), (["demo", "split-brain"], "is frozen")]
)
def test_ctrl_c_leaves_no_worker_and_no_file(
    etcd: Etcd, root: str, tmp_path: Path, command: list[str], moment: str
) -> None:
    cli = Cli(etcd.url_for(root, request_timeout="5s"), tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = cli.environment | {"TMPDIR": str(scratch)}
    with cli.started(*command, "--ttl", "30s", env=environment) as process:
        assert process.stdout is not None
        while moment not in process.stdout.readline():
            pass
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) >= 2
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        eventually(lambda: all(is_gone(int(child)) for child in children))
        assert list(scratch.iterdir()) == []
