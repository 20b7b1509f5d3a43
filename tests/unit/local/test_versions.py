"""Files of another release are refused by name; what it only added is ignored, and kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from coordlock_local.counter import VERSION, Counter
from coordlock_local.directory import Directory
from coordlock_local.slots import Slot, header

from coordlock import connect
from coordlock.errors import BackendError, ConfigurationError
from coordlock.runtime.shared_file import seal, unseal
from coordlock.types import VersionedValue


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


def with_more(line: bytes) -> bytes:
    """The sealed ``line`` with a field of a later release."""
    return seal(unseal(line) + " later=1")


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.lock("q").acquire(),
        lambda client: client.admin.names(),
        lambda client: client.admin.contenders("q"),
        lambda client: client.value("/app/a").get(),
    ],
    ids=["acquire", "queues", "queue", "data"],
)
def test_another_version_is_refused_by_name_and_nothing_is_changed(
    root: Path, ask: Callable[[object], object]
) -> None:
    root.mkdir(mode=0o700)
    (root / "counter").write_bytes(content := b"4 whatever\n")
    with (
        pytest.raises(
            ConfigurationError, match=r"counter has version 4.*only version 3: use the release"
        ),
        connect(f"local://{root}?request_timeout=30s") as client,
    ):
        ask(client)
    assert (root / "counter").read_bytes() == content


def test_a_release_that_changes_the_files_under_a_client_is_noticed_before_the_next_token(
    root: Path,
) -> None:
    with connect(f"local://{root}?request_timeout=30s") as client:
        client.lock("q").acquire().release()
        (root / "counter").write_bytes(b"4 whatever\n")
        with pytest.raises(ConfigurationError, match="version 4"):
            client.lock("q").acquire()


def test_fields_of_later_releases_are_kept_in_the_counter(root: Path) -> None:
    directory = Directory.prepare(str(root))
    counter = Counter(directory)
    first = counter.hold(counter.take)
    path = Path(directory.counter)
    path.write_bytes(with_more(path.read_bytes()))
    assert counter.hold(counter.take) == first + 1
    line = unseal(path.read_bytes())
    assert line.startswith(f"{VERSION} ")
    assert line.endswith(" later=1")


def test_fields_of_later_releases_are_ignored_in_a_queue_and_its_records(root: Path) -> None:
    with (
        connect(f"local://{root}?request_timeout=30s") as client,
        connect(f"local://{root}?request_timeout=30s") as other,
    ):
        grant = client.lock("q").acquire()
        path = root / "queues" / "q"
        data = bytearray(path.read_bytes())
        line = data[: data.index(b"\n") + 1]
        more = with_more(bytes(line)) + b"another line\n"
        data[: len(more)] = more
        path.write_bytes(data)
        assert other.lock("q").try_acquire() is None
        assert [one.token for one in other.admin.contenders("q")] == [grant.token]
        assert list(other.admin.names()) == ["q"]


def test_fields_of_later_releases_are_ignored_in_published_values(root: Path) -> None:
    with connect(f"local://{root}?request_timeout=30s") as client, client.group("g").join(b"hello"):
        [file] = (root / "values").iterdir()
        line, _, value = file.read_bytes().partition(b"\n")
        assert line == f"{VERSION} 1".encode()
        file.write_bytes(line + b" later=1\n" + value)
        [member] = client.group("g").members()
        assert member.value == b"hello"


def test_columns_of_later_releases_are_ignored_and_another_version_is_refused(root: Path) -> None:
    with connect(f"local://{root}?request_timeout=30s") as client:
        client.value("/app/a").set(b"1")
        with closing(sqlite3.connect(root / "data")) as later:
            later.execute("ALTER TABLE kept ADD COLUMN later TEXT")
        client.value("/app/b").set(b"2")
        assert client.value("/app/b").get() == VersionedValue(b"2", 1)
        with closing(sqlite3.connect(root / "data")) as later:
            later.execute("PRAGMA user_version = 2")
        with pytest.raises(BackendError, match=r"version 2.*only version 1: upgrade"):
            client.value("/app/a").get()


def test_a_file_that_was_begun_and_not_finished_is_an_empty_queue(root: Path) -> None:
    """Its process was killed between the two pages of the first write."""
    with connect(f"local://{root}?request_timeout=30s") as client:
        client.lock("other").acquire()
        path = root / "queues" / "q"
        path.write_bytes(header("q"))
        assert client.admin.contenders("q") == ()
        with client.lock("q", timeout=60):
            [one] = client.admin.contenders("q")
            assert Slot.of(one.contender).number == 0
