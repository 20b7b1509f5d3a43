"""The file in which a run writes its history down: appending to it, and reading it back.

Every process appends to a file of its own, and reading merges them. A line is one write(2) to a
file opened with O_APPEND, so that threads and forks don't mix theirs, and a killed process leaves
whole lines but for the last, in case that was just being written.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from coordlock.runtime.clock import SYSTEM_CLOCK, Clock
from coordlock_faults.events import Event, FinalSet
from coordlock_faults.history import History
from coordlock_faults.record import decode, encode

__all__ = ["Journal", "MalformedHistory", "read"]

P = ParamSpec("P")
E = TypeVar("E", bound=Event)

#: Two readings of a clock that are further apart (nanoseconds) were interrupted.
_AT_ONCE: Final = 1_000_000
#: Values per line of a set, so that it stays below PIPE_BUF.
_VALUES: Final = 128


class MalformedHistory(ValueError):
    """A line that no journal wrote."""

    def __init__(self, file: Path, line: int, reason: str) -> None:
        super().__init__(f"{file}, line {line}: {reason}")
        self.file: Final = file
        self.line: Final = line


class Journal:
    """Appends the events of ``process`` to ``file``. Usable from any thread, and after a fork.

    ``clock`` gives nanoseconds on CLOCK_MONOTONIC. A process whose clock is faked must be given one
    that is not, else its lines don't compare with those of others.
    """

    def __init__(
        self, file: Path, process: str, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.process: Final = process
        self.now: Final = clock
        self._descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def log(
        self, kind: Callable[Concatenate[int, str, P], E], *args: P.args, **more: P.kwargs
    ) -> E:
        """Write an event of this process that happens now; it.

        As in ``journal.log(Granted, attempt, token=grant.token, deadline=deadline)``.
        """
        event = kind(self.now(), self.process, *args, **more)
        self.write(event)
        return event

    def write(self, event: Event) -> None:
        """Write an event as it is. Raises OSError when it cannot be written whole."""
        data = encode(event)
        if os.write(self._descriptor, data) != len(data):
            raise OSError("the history could not be written: a short write")

    def final_set(self, resource: str, values: Sequence[int]) -> None:
        """Write what ``resource`` holds in the end, on as many lines as it takes; at least one."""
        for first in range(0, max(len(values), 1), _VALUES):
            self.log(FinalSet, resource, tuple(values[first : first + _VALUES]))

    def moment(self, when: float, clock: Clock = SYSTEM_CLOCK) -> int | None:
        """``when`` in seconds on ``clock``, such as a deadline, on this journal's clock.

        None for infinity. For a grant: ``journal.moment(SYSTEM_CLOCK.now() + grant.remaining())``.
        """
        if when == math.inf:
            return None
        while True:
            before = self.now()
            there = clock.now()
            if self.now() - before < _AT_ONCE:
                return before + round((when - there) * 1e9)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def read(files: Iterable[Path]) -> History:
    """The history in ``files``.

    A last line that is not whole is left out, and its writer is in ``History.torn``: it was killed
    in the middle of it, or the disk was full. Raises `MalformedHistory` for anything else that is
    no event, and OSError.
    """
    events: list[Event] = []
    torn: list[str] = []
    for file in files:
        writer = file.stem
        for event in _events(file):
            if event is None:
                torn.append(writer)
            else:
                writer = event.process
                events.append(event)
    return History(events, torn)


def _events(file: Path) -> Iterator[Event | None]:
    """The events in ``file``; None for a line that is torn."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                yield None
                return  # if more comes, it is being written right now
            try:
                yield decode(line)
            except (ValueError, RecursionError) as error:
                raise MalformedHistory(file, number, str(error)) from error
