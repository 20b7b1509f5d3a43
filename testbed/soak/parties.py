"""Who takes part in a run: the resource, the clients, the observer, and whoever runs them."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from coordlock_faults import journal
from coordlock_faults.events import Quiesced, RunBegan, RunEnded
from coordlock_faults.journal import Journal

import coordlock
from testbed.clients.workloads import WORKLOADS
from testbed.soak.crew import Crew, NoAnswer, Talker
from testbed.soak.impasse import Impasse
from testbed.soak.plan import Plan
from testbed.systems.system import System

__all__ = ["LOCKS", "Parties", "at_work"]

#: Few, so that clients contend for them.
LOCKS: Final = 3
#: Seconds in which what servers have kept back is found and removed, and from one look to the next.
_LATE: Final = 16.0
_LOOK: Final = 0.5


class Parties:
    """All of them, at work; see `at_work`, which makes them. ``stack`` ends them.

    Attributes:
        root: under which all locks are.
        directory: where the journals are.
        runner: the journal of whoever runs all this.
        resource: the process of the resource.
        crew: the client processes.
        truth: the observer; None where the service has no record.
    """

    def __init__(
        self, system: System, plan: Plan, directory: Path, stack: contextlib.ExitStack
    ) -> None:
        self._system = system
        self._plan = plan
        self._stack = stack
        self._workload = WORKLOADS[plan.workload](LOCKS)
        # The address of a Unix socket is shorter than many a path.
        self._socket = f"{stack.enter_context(tempfile.TemporaryDirectory())}/resource"
        self.root: Final = f"/{plan.name}"
        self.directory: Final = directory
        self.runner: Final = self.journal("runner")
        self.truth: Final = system.truth(self.root, self.journal("truth"))
        self._log_began()
        if self.truth is not None:
            stack.enter_context(self.truth)
        self.resource: Final = self._start_resource()
        self.crew: Final = stack.enter_context(
            Crew(directory, self._client, self._environment, system.met, system.parted)
        )
        for _ in range(plan.clients):
            self.crew.spawn()
        self.crew.await_ready()
        self.crew.begin()

    def journal(self, name: str) -> Journal:
        """The journal of ``name``, closed at the end."""
        return self._stack.enter_context(Journal(self.directory / f"{name}.jsonl", name))

    def drain(self, within: float) -> None:
        """Let every client prove that it works, then answer all calls: each within so many seconds.

        Who waits for good fails the run, as does who is granted nothing any more.
        """
        self.crew.ask("prove", "proven", within)
        self.crew.ask("drain", "drained", within)
        self.runner.log(Quiesced)

    def impasse(self) -> Impasse:
        """Who waits, and for what."""
        return Impasse.of(self._system.direct_url(self.root), self.directory)

    def end(self) -> None:
        """Let observers catch up, write down what is left, and stop everybody, in order."""
        self._await_late_requests()
        self.crew.ask("agree", "agreed")
        self._workload.log_final(self._system.direct_url(self.root), self.runner)
        self.resource.tell("finish")
        self.resource.expect("finished")
        if self.truth is not None:
            self._await_late_requests()
            self.truth.survey()
        self.crew.finish()
        self.runner.log(RunEnded)

    def _await_late_requests(self) -> None:
        """Give clients the time to find what a server has kept back and done only now.

        A deposed leader of etcd hands requests on for up to seven seconds. Whoever has given up
        waiting for one looks for its contender again after one second, and then after five.
        """
        end = time.monotonic() + _LATE
        while not self._held() and time.monotonic() < end:
            time.sleep(_LOOK)

    def _held(self) -> bool:
        """Whether every contender in the service is that of a grant that is held."""
        held = {
            (one.lock, one.token)
            for one in journal.read(sorted(self.directory.glob("*.jsonl"))).granted
            if one.end is None
        }
        try:
            with coordlock.connect(self._system.direct_url(self.root)) as client:
                return all(
                    (name, one.token) in held
                    for name in client.admin.names()
                    for one in client.admin.contenders(name)
                )
        except coordlock.BackendError:
            return False

    def _start_resource(self) -> Talker:
        resource = Talker(
            "resource",
            [
                *("-m", "testbed.resource.resource", "--socket", self._socket),
                *("--journal", str(self.directory / "resource.jsonl")),
            ],
            self.directory / "resource.stderr",
        )
        self._stack.callback(resource.kill)
        resource.expect("ready")
        return resource

    def _client(self, name: str, number: int) -> list[str]:
        plan = self._plan
        return [
            *("-m", "testbed.clients.client", "--name", name),
            *("--url", self._system.url(self.root, ttl=f"{plan.ttl:g}s")),
            *("--journal", str(self.directory / f"{name}.jsonl")),
            *("--seed", str(plan.seed * 1000 + number), "--locks", str(LOCKS)),
            *("--workload", plan.workload, "--resource", self._socket),
        ]

    def _environment(self, name: str) -> Mapping[str, str]:
        # In a child of a process whose threads are in gRPC, gRPC starts threads that crash.
        return {**self._system.environment(name), "GRPC_ENABLE_FORK_SUPPORT": "0"}

    def _log_began(self) -> None:
        plan = self._plan
        self.runner.log(
            RunBegan,
            plan.seed,
            self._system.name,
            truth=self.truth is not None,
            versions=self._system.versions(),
            parameters={
                "workload": plan.workload,
                "clients": str(plan.clients),
                "ttl": f"{plan.ttl:g} s",
            },
        )


@contextlib.contextmanager
def at_work(system: System, plan: Plan, directory: Path) -> Iterator[Parties]:
    """All parties of a run, at work in the block. Who is left at its end is killed.

    Whatever is to happen to them happens in the block, which ends with `Parties.drain` and
    `Parties.end` unless the run is given up. Raises `ProcessFailed` when a client or the resource
    fails.
    """
    directory.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        parties = Parties(system, plan, directory, stack)
        try:
            yield parties
        except NoAnswer as error:
            raise NoAnswer(
                f"{error}\n{parties.impasse()}\n{parties.crew.activities()}"
            ) from error.__cause__
