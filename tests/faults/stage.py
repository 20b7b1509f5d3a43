"""A resource and some clients at work without a nemesis, and the journals that they leave."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from coordlock.testing.faults import History, Journal, read
from coordlock.testing.faults.events import (
    FaultBegan,
    FaultHealed,
    Quiesced,
    Reach,
    RunBegan,
    RunEnded,
)
from tests.faults.crew import Talker
from tests.faults.workloads.guarded import log_final_sets

__all__ = ["LOCKS", "Stage"]

LOCKS: Final = 3


class Stage:
    """A run that its test directs; a context manager that kills whoever is left."""

    def __init__(self, directory: Path, url: str, workload: str) -> None:
        self.url: Final = url
        self.clients: dict[str, Talker] = {}
        self._directory = directory
        self._workload = workload
        self._socket = directory / "socket"
        self._stack = contextlib.ExitStack()
        self._runner = self._stack.enter_context(Journal(directory / "runner.jsonl", "runner"))
        self._runner.log(RunBegan, 1, "", truth=False)
        self.resource: Final = self._start("resource", "resource", "--socket", str(self._socket))
        self.resource.expect("ready")

    def hire(self, *numbers: int) -> None:
        """Start clients with these numbers, and wait until they are ready."""
        for number in numbers:
            name = f"c{number}"
            self.clients[name] = self._start(
                "client",
                name,
                *("--url", self.url, "--name", name, "--seed", str(number)),
                *("--workload", self._workload, "--resource", str(self._socket)),
                *("--locks", str(LOCKS)),
            )
        for number in numbers:
            self.clients[f"c{number}"].expect("ready")
            self.clients[f"c{number}"].tell("go")

    @contextlib.contextmanager
    def fault(self, name: str, reach: Reach, *targets: str) -> Iterator[None]:
        """The test does something to ``targets`` in the block."""
        self._runner.log(FaultBegan, name, name, reach, targets)
        yield
        self._runner.log(FaultHealed, name)

    def history(self) -> History:
        """What happened so far."""
        return read(sorted(self._directory.glob("*.jsonl")))

    def ask(self, order: str, answer: str) -> None:
        """Give all clients an order, and wait until they have done it."""
        for client in self.clients.values():
            client.tell(order)
        for client in self.clients.values():
            client.expect(answer)

    def drain(self) -> None:
        """Let all calls be answered."""
        self.ask("drain", "drained")
        self._runner.log(Quiesced)

    def end(self) -> History:
        """Everything that comes after `drain`; what happened in all."""
        self.ask("count", "counted")
        self.resource.tell("finish")
        self.resource.expect("finished")
        if self._workload == "guarded":
            log_final_sets(self.url, LOCKS, self._runner)
        self._runner.log(RunEnded)
        for one in (*self.clients.values(), self.resource):
            one.finish(within=60)
        return self.history()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, module: str, name: str, *more: str) -> Talker:
        journal = ("--journal", str(self._directory / f"{name}.jsonl"))
        command = ("-m", f"tests.faults.{module}", *journal, *more)
        talker = Talker(name, command, self._directory / f"{name}.stderr")
        self._stack.callback(talker.kill)
        return talker
