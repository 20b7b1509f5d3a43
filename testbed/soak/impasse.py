"""Who waits for what, told when clients should have their answers and have not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from coordlock_faults import journal
from coordlock_faults.attempt import Attempt

import coordlock

__all__ = ["Impasse"]


@dataclass(frozen=True, slots=True)
class Impasse:
    """The calls that have no answer, and the queues as the service shows them.

    Attributes:
        waiting: the attempts that ask, or release, in vain.
        queues: who stands in each queue, or why that cannot be read; a line each.
    """

    waiting: tuple[Attempt, ...]
    queues: tuple[str, ...]

    @classmethod
    def of(cls, url: str, directory: Path) -> Self:
        """By the journals in ``directory``, after a look at the queues at ``url``."""
        queues = tuple(_queues(url))
        attempts = journal.read(directory.glob("*.jsonl")).attempts.values()
        return cls(tuple(one for one in attempts if _waits(one)), queues)

    @property
    def locks(self) -> frozenset[str]:
        """Those that somebody waits for."""
        return frozenset(one.lock for one in self.waiting)

    def __str__(self) -> str:
        now = time.monotonic_ns()
        waiting = (_told(one, now) for one in self.waiting)
        return "\n".join((*waiting, *self.queues))


def _waits(one: Attempt) -> bool:
    releasing = one.release_sent is not None and one.release_answer is None
    return one.killed is None and (one.answer is None or releasing)


def _told(one: Attempt, now: int) -> str:
    seconds = (now - (one.release_sent or one.invoked).at) / 1e9
    doing = "been releasing" if one.release_sent else "asked for"
    return f"{one.name} has {doing} {one.lock!r} as {one.claim} for {seconds:.1f} s"


def _queues(url: str) -> Iterator[str]:
    try:
        with coordlock.connect(url) as client:
            for queue in client.admin.names():
                for one in client.admin.contenders(queue):
                    yield f"{queue}: {one.contender.key} {one.claim}, {one.owner}, {one.session}"
    except coordlock.CoordlockError as error:
        yield f"the queues could not be read: {error}"
