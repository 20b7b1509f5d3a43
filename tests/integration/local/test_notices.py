"""Which changes wake which processes, also when the one that made them is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from coordlock_local.data import DataFile
from coordlock_local.inotify import Inotify

from coordlock.backend import Listing, Observation, Put
from coordlock.testing.waiting import eventually
from tests.integration.local.conftest import BOUND, Party

#: Is killed when it has written, before it has done anything more.
WRITER = """
import os, signal, sys
from coordlock.backend import Put
from coordlock_local import LocalBackend, data

write = data._write

def write_and_die(kept, operations):
    write(kept, operations)
    os.kill(os.getpid(), signal.SIGKILL)

data._write = write_and_die
LocalBackend(sys.argv[1]).write([Put("/app/a", b"1")]).result()
"""
#: Is killed when it has evicted a contender, before it has done anything more.
EVICTOR = """
import os, signal, sys
from coordlock_local import LocalBackend

backend = LocalBackend(sys.argv[1])
[holder] = backend.snapshot("q").result().contenders[:1]
write = os.pwrite

def write_and_die(*arguments):
    write(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

os.pwrite = write_and_die
backend.evict(holder).result()
"""


@pytest.fixture(autouse=True)
def notices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not told by a notice is not found by looking now and then either."""
    monkeypatch.setattr(Inotify, "interval", 3600.0)


def killed(program: str, root: str) -> None:
    done = subprocess.run([sys.executable, "-c", program, root], timeout=BOUND, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("where", ["/app/", "/app/a"])
def test_a_writer_killed_between_its_commit_and_its_notice_is_heard(
    party: Callable[..., Party], root: str, where: str
) -> None:
    seen = party().backend.follow(where, lambda: None)
    eventually(lambda: seen.view.state is not None)
    killed(WRITER, root)
    eventually(lambda: _values(seen) == [b"1"])


def test_a_process_killed_between_its_eviction_and_its_notice_is_heard(
    party: Callable[..., Party], root: str
) -> None:
    one, two = party(), party()
    _, held, _ = one.enqueue()
    two.enqueue()
    by_itself, by_the_other = one.departure(held), two.departure(held)
    killed(EVICTOR, root)
    assert by_the_other.wait(BOUND)
    assert by_itself.wait(BOUND)


@pytest.mark.parametrize("together", [True, False], ids=["one client", "two clients"])
def test_a_write_wakes_those_alone_that_follow_what_it_touches(
    party: Callable[..., Party], monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    read, reads = DataFile.read, list[str]()

    def counted(self: DataFile, where: str) -> Listing:
        reads.append(where)
        return read(self, where)

    monkeypatch.setattr(DataFile, "read", counted)
    one = party()
    other = one if together else party()
    idle = [one.backend.follow(where, lambda: None) for where in ("/idle/", "/busy/a", "/")]
    busy = [other.backend.follow(where, lambda: None) for where in ("/busy/", "/busy/b")]
    eventually(lambda: all(each.view.state is not None for each in (*idle, *busy)))
    before = len(reads)
    writer = party()
    for number in range(10):
        data = b"%d" % number
        writer.backend.write([Put("/busy/b", data)]).result(BOUND)
        eventually(lambda: all(_values(each) == [data] for each in busy))  # noqa: B023
    assert set(reads[before:]) == {"/busy/", "/busy/b"}


def test_one_that_stops_following_keeps_none_of_the_others_from_hearing(
    party: Callable[..., Party], root: str
) -> None:
    parties = [party() for _ in range(3)]
    seen = [each.backend.follow("/app/", lambda: None) for each in parties]
    eventually(lambda: all(each.view.state is not None for each in seen))
    for number, each in enumerate(parties[:-1]):
        each.backend.close().result(BOUND)
        data = b"%d" % number
        parties[-1].backend.write([Put("/app/a", data)]).result(BOUND)
        eventually(lambda: all(_values(one) == [data] for one in seen[number + 1 :]))  # noqa: B023
    parties[-1].backend.close().result(BOUND)
    assert list((Path(root) / "changes").iterdir()) == []


def _values(seen: Observation[Listing]) -> list[bytes]:
    state = seen.view.state
    return [] if state is None else [one.data for one in state.values.values()]
