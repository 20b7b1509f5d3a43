"""One run with faults: clients at work, the nemesis at them, and the verdict on what happened."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from coordlock.testing.faults import Bounds, Journal
from coordlock.testing.faults.events import Quiesced, RunBegan, RunEnded
from tests.faults.crew import Crew, Talker
from tests.faults.nemesis import Nemesis
from tests.faults.outcome import Outcome
from tests.faults.plan import Plan
from tests.faults.system import System
from tests.faults.truth import observe
from tests.faults.workloads.guarded import log_final_sets

__all__ = ["BOUNDS", "run"]

#: A client process has one for its threads and one for its tasks.
SESSIONS: Final = 2
#: A time-to-live is 2 s, a dead holder's ends within two of them, and a queue of dozens may hold
#: before a waiter; elections and restarts of Java take their time on two busy cores.
BOUNDS: Final = Bounds(signal=1_000_000_000, notice=5_000_000_000, recovery=30_000_000_000)


def run(system: System, plan: Plan, directory: Path, bounds: Bounds = BOUNDS) -> Outcome:
    """Do one run on a ``system`` that is well, and judge it. Its journals stay in ``directory``.

    Raises `ProcessFailed` when a client or the resource does, and TimeoutError when the system
    doesn't get well after the faults, or a client is granted nothing any more: such a run has no
    verdict.
    """
    directory.mkdir(parents=True)
    act(system, plan, directory, bounds)
    return Outcome.of(plan, directory, bounds)


def act(system: System, plan: Plan, directory: Path, bounds: Bounds) -> None:
    """Do one run, and write its history into ``directory``."""
    root = f"/{plan.name}"
    url = system.url(root, ttl=f"{plan.ttl:g}s")
    socket = directory / "resource.sock"

    def client(name: str, number: int) -> list[str]:
        return [
            *("-m", "tests.faults.client", "--url", url, "--name", name),
            *("--journal", str(directory / f"{name}.jsonl")),
            *("--seed", str(plan.seed * 1000 + number)),
            *("--workload", plan.workload, "--resource", str(socket)),
        ]

    def environment(name: str) -> Mapping[str, str]:
        return {
            **system.clocks.clock(name).environment,
            # In a child of a process whose threads are in gRPC, gRPC starts threads that crash.
            "GRPC_ENABLE_FORK_SUPPORT": "0",
        }

    with contextlib.ExitStack() as stack:

        def journal(name: str) -> Journal:
            return stack.enter_context(Journal(directory / f"{name}.jsonl", name))

        runner = journal("runner")
        runner.log(
            RunBegan,
            plan.seed,
            system.name,
            truth=True,
            versions=system.versions(),
            parameters={
                "workload": plan.workload,
                "clients": str(plan.clients),
                "ttl": f"{plan.ttl:g} s",
            },
        )
        truth = stack.enter_context(observe(system, root, journal("truth")))
        resource = Talker(
            "resource",
            [
                *("-m", "tests.faults.resource", "--socket", str(socket)),
                *("--journal", str(directory / "resource.jsonl")),
            ],
            directory / "resource.stderr",
        )
        stack.callback(resource.kill)
        resource.expect("ready")
        network = system.network
        crew = stack.enter_context(
            Crew(directory, client, environment, network.know, network.forget)
        )
        for _ in range(plan.clients):
            crew.spawn()
        crew.await_ready()
        truth.count(runner, baseline=True, sessions=SESSIONS * plan.clients)
        crew.begin()

        nemesis = Nemesis(
            system, crew, journal("nemesis"), plan.seed, root, plan.faults, truth.seen
        )
        try:
            nemesis.run(plan.seconds)
        except Exception:
            nemesis.heal()  # the next run needs a system that is well
            raise
        nemesis.heal()
        crew.ask("prove", "proven", within=bounds.recovery / 1e9)
        crew.ask("drain", "drained")
        runner.log(Quiesced)
        crew.ask("count", "counted")
        truth.count(runner, baseline=False, sessions=SESSIONS * plan.clients)
        resource.tell("finish")
        resource.expect("finished")
        if plan.workload == "guarded":
            log_final_sets(system.direct_url(root), 3, runner)
        truth.survey()
        crew.finish()
        truth.count_left(runner)
        runner.log(RunEnded)
