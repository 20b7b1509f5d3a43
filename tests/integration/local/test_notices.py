"""Which changes wake which processes, also when the one that made them is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from coordlock_local import listening
from coordlock_local.data import DataFile

from coordlock.backend import Listing, Observation, Put
from coordlock.testing.waiting import eventually
from tests.integration.local.conftest import BOUND, Party

#: Is killed when it has left its queue, before it has told those that wait.
LEAVER = """
import os, signal, sys, uuid
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from coordlock_local import LocalBackend

class Listener:
    lost = suspect = recovered = lambda *_: None

backend = LocalBackend(sys.argv[1])
backend.open(Listener()).result()
entry = Entry("q", uuid.uuid4().hex, Mode.EX, Owner("host", 1))
backend.enqueue([entry]).result()
print(flush=True)
sys.stdin.read()
write = os.pwrite

def write_and_die(*arguments):
    write(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

os.pwrite = write_and_die
backend.withdraw([entry]).result()
"""


@pytest.fixture(autouse=True)
def messages_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no message reports is not found by looking now and then either."""
    monkeypatch.setattr(listening, "_INTERVAL_S", 3600.0)


def test_a_process_killed_between_its_departure_and_its_message_is_noticed(
    party: Callable[..., Party], root: str
) -> None:
    leaver = subprocess.Popen(
        [sys.executable, "-c", LEAVER, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with leaver:
        assert leaver.stdout is not None
        leaver.stdout.readline()
        one = party()
        _, _, snapshot = one.enqueue()
        left = one.departure(snapshot.contenders[0])
        leaver.communicate(timeout=BOUND)
    assert leaver.returncode == -signal.SIGKILL
    assert left.wait(BOUND)


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
    # The listener's first look, and one every few seconds, read all that is followed.
    rest = reads[before:]
    assert all(rest.count(where) < 5 for where in rest if where not in {"/busy/", "/busy/b"})


def _values(seen: Observation[Listing]) -> list[bytes]:
    state = seen.view.state
    return [] if state is None else [one.data for one in state.values.values()]
