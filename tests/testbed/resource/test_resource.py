"""The resource process, and the two ways to talk to it."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest
from coordlock_faults.events import (
    FinalSet,
    Kind,
    OperationAccepted,
    OperationOffered,
    OperationRefused,
)
from coordlock_faults.history import History
from coordlock_faults.journal import Journal, read
from coordlock_faults.register import register

from testbed.resource.protocol import Answer, Request
from testbed.resource.remote import AsyncRemote, Remote
from testbed.resource.resource import Resource
from testbed.soak.crew import ProcessFailed, Talker


class Ledger(Talker):
    """The resource process, and the set "ledger" in it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "socket"
        self.journal = directory / "resource.jsonl"
        self.stderr = directory / "stderr"
        command = ["-m", "testbed.resource.resource", "--socket", str(self.path)]
        super().__init__("resource", [*command, "--journal", str(self.journal)], self.stderr)
        self.expect("ready")

    def events(self) -> History:
        return read([self.journal])

    def final(self) -> list[int]:
        self.tell("finish")
        self.expect("finished")
        found = [event for event in self.events().events if isinstance(event, FinalSet)]
        return [value for event in found for value in event.values]


class Offer(Protocol):
    """Does one operation on a set: an add where there is a value, else a read."""

    def __call__(self, token: int, value: int | None = None, *, shared: bool = False) -> Answer: ...


def operation(token: int, value: int | None = None, *, shared: bool = False) -> Request:
    kind = Kind.READ if value is None else Kind.ADD
    return Request(f"o{token}-{value}", "ledger", token, shared, kind, value)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path)
    yield ledger
    ledger.kill()


@pytest.fixture(params=["threads", "asyncio"])
def offer(request: pytest.FixtureRequest, ledger: Ledger) -> Iterator[Offer]:
    if request.param == "threads":
        remote = Remote(ledger.path)
        yield lambda *args, **more: remote.offer(operation(*args, **more))
        remote.close()
        return
    with asyncio.Runner() as runner:
        other = AsyncRemote(ledger.path)
        yield lambda *args, **more: runner.run(other.offer(operation(*args, **more)))
        runner.run(other.close())


def test_what_is_added_is_there_when_it_is_read_and_in_the_end(
    ledger: Ledger, offer: Offer
) -> None:
    assert offer(33, 1) == Answer(order=1)
    assert offer(33, 2) == Answer(order=2)
    assert offer(34) == Answer(order=3, value=2)
    assert ledger.final() == [1, 2]


def test_a_stale_operation_is_refused_and_does_nothing(ledger: Ledger, offer: Offer) -> None:
    offer(34, 1)
    assert offer(33, 2) == Answer(newest=34)
    assert offer(33) == Answer(newest=34)
    assert ledger.final() == [1]


def test_readers_pass_newer_readers_and_no_newer_writer(ledger: Ledger, offer: Offer) -> None:
    offer(35, shared=True)
    assert offer(33, shared=True) == Answer(order=2, value=0)
    assert offer(34, 1) == Answer(newest=35)
    offer(36, 2)
    assert offer(35, shared=True) == Answer(newest=36)


def test_the_resource_writes_down_what_it_answers(ledger: Ledger, offer: Offer) -> None:
    offer(34, 1)
    offer(33, 2)
    offer(34)
    accepted, refused, read_ = (event for event, _ in ledger.events().strays)
    assert isinstance(accepted, OperationAccepted)
    assert (accepted.operation, accepted.order, accepted.value) == ("o34-1", 1, None)
    assert isinstance(refused, OperationRefused)
    assert (refused.operation, refused.newest) == ("o33-2", 34)
    assert isinstance(read_, OperationAccepted)
    assert (read_.operation, read_.order, read_.value) == ("o34-None", 2, 1)


def test_resources_have_an_order_and_a_fence_each(ledger: Ledger) -> None:
    remote = Remote(ledger.path)
    for name in ("one", "another"):
        for token in (35, 36):
            remote.offer(Request(f"{name}{token}", name, token, False, Kind.ADD, token))
    remote.close()
    accepted = [event for event, _ in ledger.events().strays]
    orders = [event.order for event in accepted if isinstance(event, OperationAccepted)]
    assert orders == [1, 2, 1, 2]


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_what_many_do_at_once_has_one_order_that_their_tokens_allow(
    tmp_path: Path, hasty_threads: None
) -> None:
    """Judged by the checker, which knows nothing of the fence."""
    together = threading.Barrier(8, timeout=60)
    file = tmp_path / "journal.jsonl"
    refused = []
    with Journal(file, "resource") as journal:
        resource = Resource("ledger", journal)

        def work(number: int) -> None:
            dice = random.Random(number)
            for step in range(200):
                together.wait()
                # Tokens grow all in all, and many come late.
                token, shared = 1 + step + dice.randrange(5), dice.random() < 0.3
                kind, value = (Kind.READ, None) if shared else (Kind.ADD, number * 1000 + step)
                one = Request(f"{number}-{step}", "ledger", token, shared, kind, value)
                journal.log(
                    OperationOffered, one.operation, "ledger", "", token, shared, kind, value
                )
                if resource.take(one).newest:
                    refused.append(one)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        resource.finish()
    assert 200 < len(refused) < 1400
    assert register(read([file])) == []


class Dawdling:
    """A lock that the first one comes to half a second late, unless somebody overtakes it."""

    def __init__(self) -> None:
        self.approached = threading.Event()
        self._lock = threading.Lock()
        self._overtaken = threading.Event()

    def __enter__(self) -> None:
        if not self.approached.is_set():
            self.approached.set()
            self._overtaken.wait(0.5)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._overtaken.set()


def test_nobody_newer_comes_between_an_operation_and_its_place_in_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "journal.jsonl", "resource") as journal:
        resource = Resource("ledger", journal)
        lock = Dawdling()
        monkeypatch.setattr(resource, "_lock", lock)
        with ThreadPoolExecutor() as pool:
            older = pool.submit(resource.take, operation(33, 1))
            assert lock.approached.wait(10)
            newer = pool.submit(resource.take, operation(34, 2))
            assert (older.result(10).order, newer.result(10).order) == (1, 2)


def test_a_client_that_dies_in_the_middle_of_a_line_has_done_nothing(ledger: Ledger) -> None:
    with socket.socket(socket.AF_UNIX) as dying:
        dying.connect(str(ledger.path))
        dying.sendall(operation(33, 1).encode()[:-1])
    remote = Remote(ledger.path)
    assert remote.offer(operation(33)) == Answer(order=1, value=0)
    remote.close()


def test_a_path_that_is_too_long_for_an_address_will_do(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 120)
    directory.mkdir()
    ledger = Ledger(directory)
    try:
        remote = Remote(ledger.path)
        assert remote.offer(operation(33, 1)).order == 1
        remote.close()
    finally:
        ledger.kill()


def test_it_ends_with_its_input(ledger: Ledger) -> None:
    ledger.finish(within=30)


def test_a_client_is_told_when_the_resource_has_gone(ledger: Ledger) -> None:
    remote = Remote(ledger.path)
    remote.offer(operation(33))
    ledger.kill()
    with pytest.raises(ConnectionError):
        remote.offer(operation(33))
    remote.close()


def test_nonsense_ends_the_resource_with_a_traceback(ledger: Ledger) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(ledger.path))
        client.sendall(b"nonsense\n")
        with pytest.raises(ProcessFailed, match="Traceback"):
            ledger.expect("anything")
