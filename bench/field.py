"""The contestants on one service, all connected at once, for turns."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from statistics import median
from typing import Final, TypeVar

from bench.contestants import Entrant
from bench.services import Service
from bench.workers import Worker, WorkerFailed, crew
from coordlock.testing.proxy import FaultProxy

__all__ = ["Field", "field", "in_turns", "proxies"]

T = TypeVar("T", bound=Hashable)

#: Each entrant's processes.
Field = dict[Entrant, list[Worker]]
#: How many times as much time as usual a contestant may take.
_SHARE: Final = 3.0


@contextmanager
def field(
    server: Service,
    entrants: Sequence[Entrant],
    notes: list[str],
    *,
    processes: int = 1,
    through: Mapping[Entrant, FaultProxy] | None = None,
) -> Iterator[Field]:
    """Start ``processes`` of each; who cannot take part is left out, and ``notes`` says why.

    Each goes ``through`` its proxy, if there are some.
    """
    with ExitStack() as stack:
        there: Field = {}
        for one in entrants:
            where = server.behind(through[one]) if through else server
            subject = f"bench.contestants.{one.subject}"
            root = f"/bench-{len(there)}"
            try:
                quiet = one.role == "peer"
                address = where.url(root) if one.role == "coordlock" else where.address
                workers = [Worker(subject, address, root, quiet=quiet) for _ in range(processes)]
                there[one] = stack.enter_context(crew(workers))
            except WorkerFailed as reason:
                notes.append(f"{one.name} ({one.service}) was left out: {reason}")
        yield there
        for worker in chain.from_iterable(there.values()):
            worker.dismiss()  # all of them, before the first is waited for


@contextmanager
def proxies(server: Service, entrants: Sequence[Entrant]) -> Iterator[dict[Entrant, FaultProxy]]:
    """A proxy before the service for each."""
    with ExitStack() as stack:
        yield {one: stack.enter_context(server.proxy()) for one in entrants}


def in_turns(those: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Each of ``those`` in every round, another one going first each time. Round 0 warms up.

    From round 2 on those sit out that have taken much more time than usual, until others have, too.
    """
    spent = dict.fromkeys(those, 0.0)
    for number in range(rounds + 1):
        first = number % len(those)
        most = _SHARE * median(spent.values())
        for one in (*those[first:], *those[:first]):
            if number < 2 or spent[one] <= most:
                began = time.monotonic()
                yield number, one
                spent[one] += time.monotonic() - began
