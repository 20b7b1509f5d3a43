"""``coordlock demo split-brain``: one story twice, and only a fence tells the two ends apart."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from coordlock.cli.connection import Service, connected
from coordlock.cli.demo.columns import Columns
from coordlock.cli.demo.crew import Crew, Event
from coordlock.cli.demo.outcome import Outcome
from coordlock.cli.demo.story import is_leased
from coordlock.cli.demo.twin import WORKERS, Twin, play
from coordlock.cli.exits import Exit
from coordlock.cli.options import json_option, service_options
from coordlock.cli.parser import Parser
from coordlock.client import Client
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["parser", "split_brain"]

#: The runs, and whether their ledger has a fence.
_RUNS: Final = {"without": False, "with": True}


def parser() -> Parser:
    """Its parser."""
    parser = Parser(
        "coordlock demo split-brain",
        split_brain,
        usage="[OPTIONS]",
        example="coordlock demo split-brain --url etcd://localhost",
    )
    service_options(parser)
    parser.option(
        "--ttl",
        metavar="DURATION",
        default="2s",
        help="Time-to-live, where there are leases. Default: 2s.",
    )
    json_option(parser)
    return parser.finished()


def split_brain(*, service: Service, ttl: str, as_json: bool) -> int:
    """Watch a stale write, with and without a fence.

    A takes the lock, reads a balance, and is stopped (SIGSTOP) past its lease. B takes the lock,
    reads and writes. A goes on, and writes what it computed. The story runs twice at the same
    time. The exit status is 0 if the ledger without a fence got corrupt, and the one with a fence
    refused the stale write and lost nothing.
    """
    settings = service.settings(ttl=ttl, label="demo")
    leased = is_leased(settings)
    timeline = Columns(SYSTEM_CLOCK.now(), list(_RUNS), as_json=as_json)
    with (
        tempfile.TemporaryDirectory(prefix="coordlock-demo-") as directory,
        connected(settings) as client,
        Crew(service.url) as crew,
    ):
        timeline.say(f"One story, twice at the same time, at {settings}.")
        timeline.head({run: f"{run} a fence".upper() for run in _RUNS})
        runs = {run: _Run(crew, client, timeline, run, leased=leased) for run in _RUNS}
        for name, run in runs.items():
            run.prepare(Path(directory), ttl, str(Path(directory, "fences")) if _RUNS[name] else "")
        if not play(runs, crew, timeline):
            return Exit.FAILED
        timeline.flush()
        outcomes = {name: run.outcome() for name, run in runs.items()}
        if as_json:
            for name, outcome in outcomes.items():
                runs[name].conclude(outcome)
            timeline.flush()
        else:
            _conclude(timeline, outcomes)
        return Exit.FAILED if any(one.missing() for one in outcomes.values()) else Exit.OK


class _Run(Twin):
    """A is frozen between its read and its write, until B has written."""

    def __init__(
        self, crew: Crew, client: Client, timeline: Columns, run: str, *, leased: bool
    ) -> None:
        super().__init__(crew, client, timeline, run, leased=leased)
        self._newest = 0
        self._refused: list[tuple[int, int]] = []

    def go_on(self, event: Event) -> None:
        """Show ``event``, and do what comes next."""
        worker, kind = event["worker"], event["event"]
        self.counts[kind] += 1
        if kind == "wrote" and event["token"] < self._newest:
            event |= {"over": self._newest}
        if kind not in ("ready", "last"):
            self._timeline.show(self._dated(event) if kind == "holds" else event)
        match kind:
            case "holds":
                self._newest = event["token"]
            case "halfway":
                self._freeze(event)
                self._crew.order("B", self._run)
            case "last":
                self._crew.order("B", self._run)
            case "waits" if worker == "B" and not self._leased:
                self._evict("A", self._newest)
            case "wrote" if worker == "B":
                self._thaw("A")
            case "refused":
                self._refused.append((event["token"], event["newest"]))

    def outcome(self) -> Outcome:
        """How it ended."""
        troubles = self._left_over()
        if self.counts["done"] != WORKERS:
            troubles.append(f"{self.counts['done']} of {WORKERS} workers came through")
        return Outcome(
            _RUNS[self._run],
            self._ledger.entries(),
            self.counts["wrote"],
            self._refused,
            troubles,
        )

    def conclude(self, outcome: Outcome) -> None:
        """The last event, for programs."""
        facts: dict[str, Any] = {
            "ok": not outcome.missing(),
            "ledger": "corrupt" if outcome.wrong else "right",
            "acknowledged": outcome.acknowledged,
            "balance": outcome.balance,
            "wrong": outcome.wrong,
            "missing": outcome.missing(),
        }
        self._tell("verdict", "the demo", **facts)


def _conclude(timeline: Columns, outcomes: dict[str, Outcome]) -> None:
    timeline.say()
    colours = {run: "red" if outcome.wrong else "green" for run, outcome in outcomes.items()}
    timeline.tell({run: outcome.findings() for run, outcome in outcomes.items()}, colours)
    timeline.say()
    for run, outcome in outcomes.items():
        for problem in outcome.missing():
            timeline.say(f"WRONG, {run} a fence: {problem}")
    if not any(outcome.missing() for outcome in outcomes.values()):
        timeline.say("The same stale write, twice: only the fence kept a ledger right.", "green")
