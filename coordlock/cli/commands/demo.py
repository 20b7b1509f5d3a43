"""``coordlock demo``: the story, and what must be true at its end."""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Final

from coordlock.cli.connection import Service, connected
from coordlock.cli.demo import failover, redlock, split_brain
from coordlock.cli.demo.crew import Crew, Event, Stuck
from coordlock.cli.demo.ledger import Entry, Ledger, audit
from coordlock.cli.demo.story import Story, is_leased
from coordlock.cli.demo.timeline import Timeline
from coordlock.cli.demo.worker import Task
from coordlock.cli.exits import Exit, complain
from coordlock.cli.options import json_option, service_options
from coordlock.cli.parser import Group, Parser, whole
from coordlock.cli.text import coloured, echo
from coordlock.client import Client
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["demo", "parser"]

#: In which of its rounds a worker is killed, or frozen: in time for the others to go on.
_HALT: Final = 2
_COMMANDS: Final = {"failover": failover, "redlock": redlock, "split-brain": split_brain}


def parser() -> Parser:
    """Its parser."""
    group = Group(
        "coordlock demo",
        demo,
        usage="[OPTIONS] [COMMAND]",
        commands={
            "failover": "Watch a fence after a failover of Redis, and what a clock behind does.",
            "redlock": "Watch a pause, and a clock that jumps, let two hold a Redlock.",
            "split-brain": "Watch a stale write, with and without a fence.",
        },
        load=lambda name: _COMMANDS[name].parser(),
        example="coordlock demo --url etcd://localhost",
    )
    service_options(group)
    group.option(
        "--workers",
        type=whole(3, 50),
        metavar="N",
        default=4,
        help="Processes, 3 to 50. Default: 4.",
    )
    group.option(
        "--rounds",
        type=whole(3, 1000),
        metavar="N",
        default=3,
        help="Updates each, 3 to 1000. Default: 3.",
    )
    group.option(
        "--ttl",
        metavar="DURATION",
        default="3s",
        help="Time-to-live, where there are leases. Default: 3s.",
    )
    json_option(group)
    return group.finished()


def demo(
    *,
    service: Service,
    workers: int,
    rounds: int,
    ttl: str,
    as_json: bool,
) -> int:
    """Watch processes share a ledger: one crashes, one freezes.

    Each worker raises the balance of a shared file, under one lock. One is killed while it holds
    the lock. Another is frozen until somebody else has the lock, wakes up, and writes: the ledger
    refuses its stale token. The exit status is 0 if the audit finds every update once.
    """
    settings = service.settings(ttl=ttl, label="demo")
    leased = is_leased(settings)
    lock = f"demo-{uuid.uuid4().hex[:8]}"
    timeline = Timeline(SYSTEM_CLOCK.now(), as_json=as_json)
    with (
        tempfile.TemporaryDirectory(prefix="coordlock-demo-") as directory,
        connected(settings) as client,
        Crew(service.url) as crew,
    ):
        ledger = Ledger(Path(directory) / "ledger")
        fences = str(Path(directory) / "fences")
        task = Task("", lock, str(ledger.file), -1, rounds, ttl=ttl, fences=fences)
        names = [f"worker-{number}" for number in range(1, workers + 1)]
        timeline.say(f"{workers} processes share a ledger under the lock {lock!r} at {settings}.")
        for name in names:
            halt = _HALT if name in names[:2] else 0
            crew.hire(replace(task, worker=name, halt=halt))
        story = _Story(crew, client, timeline, lock, leased=leased, workers=names)
        try:
            for event in crew.events():
                story.go_on(event)
        except Stuck as stuck:
            complain(stuck)
            return Exit.FAILED
        wrong = audit(ledger.entries(), story.counts["wrote"]) + story.missing()
        return _verdict(timeline, ledger.entries(), story, wrong)


class _Story(Story):
    """The first of the workers is killed, the second frozen."""

    def __init__(
        self,
        crew: Crew,
        client: Client,
        timeline: Timeline,
        lock: str,
        *,
        leased: bool,
        workers: list[str],
    ) -> None:
        super().__init__(crew, client, timeline, lock, leased=leased)
        self._workers = workers
        self._crashing, self._freezing = workers[:2]
        self._frozen = False
        self._waiting: list[str] = []
        self._refused: list[str] = []

    def go_on(self, event: Event) -> None:
        """Show ``event``, and do what comes next."""
        worker, kind = event["worker"], event["event"]
        self.counts[kind] += 1
        if kind == "last":
            self._waiting.append(worker)
            self._let_go_on()
            return
        self._timeline.show(self._dated(event) if kind == "holds" else event)
        if kind == "ready" and self.counts["ready"] == len(self._workers):
            self._timeline.start = event["at"]  # starting the processes is no part of the story
            for name in self._workers:
                self._crew.order(name)
        elif kind == "halfway":
            self._show_queue()
            if worker == self._crashing:
                self._kill(event)
            else:
                self._freeze_second(event)
        elif kind == "refused":
            self._refused.append(worker)
        elif kind == "wrote" and self._frozen:
            self._frozen = False
            self._thaw(self._freezing)

    def missing(self) -> list[str]:
        """What the story should have shown and did not."""
        wrong = []
        if not self.counts["killed"] or not self.counts["frozen"]:
            wrong.append("nobody crashed, or nobody froze")
        if self._refused != [self._freezing]:
            who = ", ".join(self._refused) or "nobody"
            wrong.append(f"{self._freezing} alone should have been refused once, and was: {who}")
        if self.counts["done"] != len(self._workers) - 1:
            wrong.append(f"{self.counts['done']} of {len(self._workers) - 1} workers came through")
        return wrong + self._left_over()

    def _let_go_on(self) -> None:
        """The last rounds wait for the freeze, so that another worker writes during it."""
        while self.counts["frozen"] and self._waiting:
            self._crew.order(self._waiting.pop())

    def _kill(self, halfway: Event) -> None:
        at = self._crew.kill(halfway["worker"])
        self._tell("killed", halfway["worker"], at, token=halfway["token"])
        self._waiting_for = "the crash", at

    def _freeze_second(self, halfway: Event) -> None:
        self._freeze(halfway)
        self._frozen = True
        self._let_go_on()
        if not self._leased:
            self._evict(halfway["worker"], halfway["token"])

    def _show_queue(self) -> None:
        queue = self._client.admin.contenders(self._lock)
        labels: dict[bool, list[str]] = {True: [], False: []}
        for one in queue:
            labels[one.holding].append(one.owner.label if one.owner else "?")
        holder = ", ".join(labels[True])
        self._tell("queue", "the demo", holder=holder, waiting=labels[False])


def _verdict(timeline: Timeline, entries: list[Entry], story: _Story, wrong: list[str]) -> Exit:
    tokens = sorted({entry.token for entry in entries})
    facts = {
        "updates": story.counts["wrote"],
        "tokens": [tokens[0], tokens[-1]] if tokens else [],
        "refused": story.counts["refused"],
        "ok": not wrong,
        "wrong": wrong,
    }
    if timeline.as_json:
        timeline.show({"at": SYSTEM_CLOCK.now(), "worker": "the demo", "event": "verdict", **facts})
        return Exit.FAILED if wrong else Exit.OK
    for problem in wrong:
        timeline.say(f"WRONG: {problem}")
    if wrong:
        return Exit.FAILED
    timeline.say(
        f"The ledger has {facts['updates']} updates under tokens that only grow, from {tokens[0]} "
        f"to {tokens[-1]}: none lost, none in between, {facts['refused']} stale one refused."
    )
    echo(coloured("All is well.", "green", bold=True))
    return Exit.OK
