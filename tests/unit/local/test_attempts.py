"""What needs a lock of the directory waits for it in a thread, and never in a caller."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from coordlock_local import LocalBackend
from coordlock_local.attempts import Attempts
from coordlock_local.counter import Counter
from coordlock_local.errors import Busy

from coordlock.errors import BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from coordlock.runtime.promise import Promise
from coordlock.testing.backend_contract import Party

BOUND = 30.0
pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    made = Attempts(str(tmp_path / "counter"))
    yield made
    made.close(BOUND)


def busy(times: int) -> Callable[[], str]:
    left = [None] * times

    def action() -> str:
        if left:
            left.pop()
            raise Busy
        return "done"

    return action


def test_what_goes_on_in_the_thread_of_the_attempts_waits_for_the_lock_too(
    attempts: Attempts,
) -> None:
    goes_on = threading.Event()
    first = attempts.run(lambda: goes_on.wait(BOUND), BOUND, at_once=False)
    then: Promise[Promise[str]] = Promise()
    first.add_done_callback(
        lambda _: then.resolve(attempts.run(busy(3), BOUND, at_once=False)) and None
    )
    goes_on.set()
    assert then.result(BOUND).result(BOUND) == "done"


def test_without_a_thread_no_caller_waits_for_the_lock(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(BackendUnavailable, match="locked"):
        attempts.run(busy(1), BOUND, at_once=False).result(0.0)
    assert attempts.run(busy(0), BOUND, at_once=False).result(0.0) == "done"


def test_however_many_acquire_while_a_process_is_stopped_the_first_alone_tries_in_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try takes some milliseconds, and the loop's other tasks wait."""
    party = Party(LocalBackend(str(tmp_path / "state"), request_timeout=BOUND))
    hold, tries = Counter.hold, list[int]()

    def counted(counter: Counter, action: Callable[[int], Any]) -> Any:
        tries.append(threading.get_ident())
        return hold(counter, action)

    monkeypatch.setattr(Counter, "hold", counted)
    with open(tmp_path / "state" / "counter", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ids = [os.urandom(16).hex() for _ in range(10)]
        entries = [Entry("q", id, Mode.EX, Owner("host", 1)) for id in ids]
        added = [party.backend.enqueue([entry]) for entry in entries]
        assert tries.count(threading.get_ident()) == 1
        assert party.backend.heartbeat().done()  # what needs no counter does not wait
    for each in added:
        each.result(BOUND)
    assert party.ids("q") == ids
    party.backend.close().result(BOUND)
