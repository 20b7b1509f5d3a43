"""A state directory of another release is refused by name, or taken over."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from sys import byteorder

import pytest
from coordlock_local import LocalBackend
from coordlock_local.counter import Counter, Tokens
from coordlock_local.directory import Directory
from coordlock_local.layout import LAYOUT
from coordlock_local.slots import header

from coordlock import connect
from coordlock.errors import BackendError, ConfigurationError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def older(root: Path) -> Path:
    """A state directory as the release with layout 1 left it; its session."""
    (root / "queues" / "q").mkdir(parents=True)
    (root / "sessions").mkdir()
    root.chmod(0o700)
    session = root / "sessions" / ("a" * 32)
    session.touch()
    name = f"{7:019d}-lock-{'b' * 32}-{'a' * 32}"
    (root / "queues" / "q" / name).write_text('q\n{"host": "h"}')
    Counter(Directory(str(root))).hold(Tokens.take)
    return session


def test_a_new_directory_says_its_layout(root: Path) -> None:
    with connect(f"local://{root}") as client, client.lock("q"):
        pass
    assert (root / "layout").read_text() == f"coordlock's local locks, layout {LAYOUT}\n"


@pytest.mark.parametrize(
    "line", ["coordlock's local locks, layout 3\n", "", "\xff\0", "x" * 5000], ids=len
)
@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.lock("q").acquire(),
        lambda client: client.queues(),
        lambda client: client.contenders("q"),
    ],
    ids=["acquire", "queues", "queue"],
)
def test_another_layout_is_refused_by_name_and_nothing_is_changed(
    root: Path, line: str, ask: Callable[[object], object]
) -> None:
    root.mkdir(mode=0o700)
    (root / "layout").write_text(line)
    with (
        pytest.raises(ConfigurationError, match=r"layout says .*layout 2 alone: upgrade coordlock"),
        connect(f"local://{root}") as client,
    ):
        ask(client)
    assert (root / "layout").read_text() == line


def test_an_older_layout_is_taken_over_while_nobody_holds(root: Path, older: Path) -> None:
    before = Counter(Directory(str(root))).hold(Tokens.take)
    with connect(f"local://{root}") as client, client.lock("q") as grant:
        assert grant.token > before
        assert len(client.contenders("q")) == 1
        assert not older.exists()
    assert (root / "layout").exists()


def test_an_older_release_in_use_is_named_and_nothing_is_changed(root: Path, older: Path) -> None:
    with open(older, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with (
            pytest.raises(BackendError, match=rf"process {os.getpid()}\) uses {root}: end or"),
            connect(f"local://{root}") as client,
        ):
            client.lock("q").acquire()
        assert older.exists()
        assert len(os.listdir(root / "queues" / "q")) == 1
    with connect(f"local://{root}") as client, client.lock("q"):
        pass


def test_a_queue_of_an_older_release_that_came_later_is_not_overlooked(root: Path) -> None:
    with connect(f"local://{root}") as client:
        client.lock("other").acquire()
        (root / "queues" / "q").mkdir()
        with pytest.raises(BackendError, match="older release of coordlock"):
            client.lock("q").acquire()
        assert LocalBackend(str(root)).queues().result(5) == ["other"]


def test_a_file_that_was_begun_and_not_finished_is_an_empty_queue(root: Path) -> None:
    """Its process was killed between the two pages of the first write."""
    with connect(f"local://{root}") as client:
        client.lock("other").acquire()
        path = root / "queues" / "q"
        path.write_bytes(header(Directory(str(root)), "q") + (1).to_bytes(8, byteorder))
        assert client.contenders("q") == ()
        with client.lock("q", timeout=5):
            assert len(client.contenders("q")) == 1
