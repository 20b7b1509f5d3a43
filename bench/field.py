"""The contestants on one service, all connected at once, for turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from bench.contestants import Entrant
from bench.environments import NotInstalled
from bench.progress import doing
from bench.workers import Worker, WorkerFailed

__all__ = ["Field", "field", "in_turns", "turns"]

T = TypeVar("T")

#: Each entrant's processes.
Field = dict[Entrant, list[Worker]]


@contextmanager
def field(
    entrants: Sequence[Entrant],
    address: str | Callable[[Entrant], str],
    notes: list[str],
    *,
    processes: int = 1,
) -> Iterator[Field]:
    """Start ``processes`` of each; who cannot take part is left out, and ``notes`` says why."""
    with ExitStack() as stack:
        there: Field = {}
        for one in entrants:
            where = address if isinstance(address, str) else address(one)
            subject = f"bench.contestants.{one.subject}"
            root = f"/bench-{len(there)}"
            doing(f"{one.service}, starting {one.name}")
            try:
                workers = [
                    Worker(
                        *(subject, where, root),
                        environment=one.environment,
                        quiet=one.role == "peer",
                    )
                    for _ in range(processes)
                ]
                for worker in workers:
                    worker.start()
                    stack.callback(worker.stop)
                for worker in workers:
                    worker.ready()
                there[one] = workers
            except (NotInstalled, WorkerFailed) as reason:
                notes.append(f"{one.name} ({one.service}) was left out: {reason}")
        yield there


def turns(
    entrants: Sequence[Entrant], rounds: int, what: str = ""
) -> Iterator[tuple[int, Entrant]]:
    """Who is next, each in every round, another one going first each time. Round 0 warms up.

    ``what`` they do, ahead of their names, is for whoever watches.
    """
    for number, one in in_turns(entrants, rounds):
        doing(f"{what}{one.service}, {one.name}", number, rounds)
        yield number, one


def in_turns(those: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Each of ``those`` in every round, another one going first each time. Round 0 warms up."""
    for number in range(rounds + 1):
        first = number % len(those)
        for one in (*those[first:], *those[:first]):
            yield number, one
