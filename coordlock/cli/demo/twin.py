"""Stories that are told twice at the same time: A stops between its read and its write."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from coordlock.cli.demo.columns import Columns
from coordlock.cli.demo.crew import Crew, Stuck
from coordlock.cli.demo.ledger import Ledger
from coordlock.cli.demo.story import Story
from coordlock.cli.demo.worker import Task
from coordlock.cli.exits import complain
from coordlock.client import Client

__all__ = ["WORKERS", "Twin", "play"]

#: A and B.
WORKERS: Final = 2


class Twin(Story):
    """One of the runs, with a lock and a ledger of its own. A goes on when B has written."""

    def __init__(
        self, crew: Crew, client: Client, timeline: Columns, run: str, *, leased: bool
    ) -> None:
        lock = f"demo-{uuid.uuid4().hex[:8]}"
        super().__init__(crew, client, timeline, lock, leased=leased, run=run)

    def prepare(self, directory: Path, ttl: str, fences: str = "") -> None:
        """Start the processes, with a ledger in ``directory``."""
        self._ledger = Ledger(directory / self._run)
        task = Task("", self._lock, str(self._ledger.file), -1, 1, 0, ttl, fences, self._run)
        self._crew.hire(replace(task, worker="A", halt=1))
        self._crew.hire(replace(task, worker="B"))

    @property
    def is_ready(self) -> bool:
        """Whether all processes have started."""
        return self.counts["ready"] == WORKERS

    def begin(self) -> None:
        """Let A take the lock."""
        self._crew.order("A", self._run)


def play(runs: Mapping[str, Twin], crew: Crew, timeline: Columns) -> bool:
    """Let ``runs`` go on until all have ended; False if they got stuck, which is said."""
    try:
        for event in crew.events(idle=timeline.flush):
            runs[event["run"]].go_on(event)
            if event["event"] == "ready" and all(run.is_ready for run in runs.values()):
                timeline.start = event["at"]  # starting the processes is no part of the story
                for run in runs.values():
                    run.begin()
    except Stuck as stuck:
        timeline.flush()
        complain(stuck)
        return False
    return True
