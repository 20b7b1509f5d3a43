"""The backend itself, without the kernel, among real processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from coordlock_local import LocalBackend

from coordlock.backend import SessionInfo
from coordlock.model.claim import AnyClaim, Mode
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.testing import backend_contract
from coordlock.testing.backend_contract import BOUND as BOUND
from coordlock.testing.backend_contract import OWNER as OWNER

WORKER: Final = Path(__file__).parent / "worker.py"


class Party(backend_contract.Party):
    """A party whose session is never in doubt."""

    backend: LocalBackend

    def __init__(self, root: str, request_timeout: float = 5.0) -> None:
        super().__init__(LocalBackend(root, request_timeout=request_timeout))
        self.lost = self.listener.ended

    def open(self) -> SessionInfo:
        return self.backend.open(self.listener).result(BOUND)

    def enqueue(
        self, queue: str = "q", claim: AnyClaim = Mode.EX
    ) -> tuple[Entry, Contender, Snapshot]:
        return super().enqueue(queue, claim)

    def ids(self, queue: str = "q") -> list[str]:
        return super().ids(queue)

    def departure(self, contender: Contender) -> threading.Event:
        told = threading.Event()
        self.backend.watch(contender, 0, lambda _: told.set())
        return told


class Worker:
    """A process that does one thing with the backend (worker.py), and says so line by line."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the worker ended with status {self.process.wait()}"
        return line.strip()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        """Kill it where it still runs."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A state directory that is not there yet."""
    return str(tmp_path / "state")


@pytest.fixture
def party(root: str) -> Iterator[Callable[..., Party]]:
    """Makes parties; their backends are closed after the test."""
    parties: list[Party] = []

    def make(request_timeout: float = 5.0) -> Party:
        parties.append(Party(root, request_timeout))
        return parties[-1]

    yield make
    for one in parties:
        assert not [event for event in one.listener.events if not event.startswith("lost")]
        one.backend.close().result(BOUND)


@pytest.fixture
def worker(root: str) -> Iterator[Callable[..., Worker]]:
    """Starts workers on the state directory; they are killed after the test."""
    workers: list[Worker] = []

    def start(*arguments: str) -> Worker:
        workers.append(Worker(root, *arguments))
        return workers[-1]

    yield start
    for one in workers:
        one.end()
