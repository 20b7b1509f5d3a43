"""A process killed at every point, planned and at random, leaves the queues intact."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from coordlock.model.claim import Convertible, Mode
from tests.integration.local.conftest import BOUND, Party, Worker

pytestmark = pytest.mark.faults

#: Everything by which the backend changes or reads the state directory.
CALLS: Final = (
    *((os, name) for name in ("open", "close", "write", "pwrite", "pread", "fsync", "rename")),
    *((os, name) for name in ("unlink", "mkdir", "listdir", "scandir", "stat", "fstat")),
    *((os, name) for name in ("ftruncate", "utime", "access", "replace", "mkfifo", "rmdir")),
    (fcntl, "flock"),
)

#: Does not fit into a slot.
LONG: Final = Convertible(Mode.PR, Mode.EX, tuple((one, one) for one in range(1, 1000, 2)))


def _live_and_die(root: str, at: int) -> None:
    """In a child: enter, wait, convert, evict, leave, close, and be killed before a call.

    Its number is ``at``.
    """
    numbers = count(1)

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any, **named: Any) -> Any:
            if next(numbers) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return do

    for module, name in CALLS:
        setattr(module, name, deadly(getattr(module, name)))
    victim = Party(root)
    entry, _, _ = victim.enqueue()
    # Stored under a hash, and left to the end of the session.
    _, converting, _ = victim.enqueue("x" * 255, Convertible(Mode.EX))
    for version, claim in enumerate((Convertible(Mode.PR), LONG), start=1):
        victim.backend.publish(converting, claim.encode(), version).result(BOUND)
    other = Party(root)
    waiting, evicted, snapshot = other.enqueue()
    other.departure(snapshot.contenders[0])
    victim.backend.withdraw([entry]).result(BOUND)
    victim.backend.evict(evicted).result(BOUND)
    other.backend.withdraw([waiting]).result(BOUND)
    for party in (victim, other):
        party.backend.close().result(BOUND)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.long_on("2", "3", "4")
@pytest.mark.parametrize("first", ["1", "2", "3", "4"])
def test_a_process_killed_before_any_of_its_calls_disturbs_nobody(root: str, first: str) -> None:
    """Before each fourth of them, and in `make test-faults` before each."""
    tokens = [0]
    for at in count(int(first), 4):
        child = os.fork()
        if child == 0:
            try:
                _live_and_die(root, at)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)

        survivor = Party(root)
        for queue in ("q", "x" * 255):
            _, me, snapshot = survivor.enqueue(queue)
            assert snapshot.contenders == (me,), f"killed before call {at}"
            assert me.order > tokens[-1], f"killed before call {at}"
            tokens.append(me.order)
        assert set(survivor.backend.queues().result(BOUND)) == {"q", "x" * 255}
        assert os.listdir(Path(root) / "sessions") == [survivor.info.id]
        survivor.backend.close().result(BOUND)
        for part in ("queues", "sessions", "pipes", "values"):
            assert os.listdir(Path(root) / part) == [], f"killed before call {at}"
        if os.WIFEXITED(status):
            break
    print(f"killed before each of {at - 1} calls")
    assert at > 150  # it was killed that often


def test_a_storm_of_kills_leaves_exclusion_order_and_tokens_intact(
    root: str, tmp_path: Path, worker: Callable[..., Worker]
) -> None:
    log = tmp_path / "log"
    chaos = worker("storm", str(log), "200")
    assert chaos.line().split() == ["0"] * 8

    lines = [line.split() for line in log.read_text().splitlines()]
    tokens = [int(token) for event, _, token in lines if event == "enter"]
    print(f"200 processes killed, {len(tokens)} grants")
    assert tokens
    assert tokens == sorted(set(tokens))
    inside: str | None = None
    dead: set[str] = set()
    victims = {pid for event, pid, _ in lines if event == "killed"}
    for event, pid, _ in lines:
        assert pid not in dead
        if event == "enter":
            # Killed inside: its death may be logged after the next one has entered.
            assert inside is None or inside in victims
            inside = pid
        elif event == "leave":
            assert inside == pid
            inside = None
        else:
            dead.add(pid)
    assert os.listdir(Path(root) / "queues") in ([], ["q"])
    survivor = Party(root)
    _, me, snapshot = survivor.enqueue()
    assert snapshot.contenders == (me,)
    assert me.order > tokens[-1]
    survivor.backend.close().result(BOUND)
