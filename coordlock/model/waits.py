"""Deadlocks: which contenders wait for each other in a cycle, over all queues. No I/O.

The graph shows which events must come before which. A contender that waits is granted after the
earlier ones in its way have left. A contender that was granted leaves after its actor has got what
it waits for, which the actor publishes. A wait for several locks is granted as a whole.

The graph grows with the number of contenders, not with that of pairs: all that ask a queue for the
same claim share one chain of the contenders in their way.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coordlock.model.admission import holders, keeps_out
from coordlock.model.claim import Convertible, Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.conversion import upgrade_blockers
from coordlock.model.record import NewerFormat, decode, encode

__all__ = ["Deadlock", "DeadlockStep", "Wait", "by_contender", "deadlocks", "needed"]


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait that an actor publishes, because it keeps contenders in other queues meanwhile.

    Attributes:
        actor: which task or thread of its client, for people.
        waits: queue and place of each contender that waits: all are granted, or none.
        holds: the places of the actor's other contenders, which stay until it goes on.
    """

    actor: str
    waits: tuple[tuple[str, str], ...]
    holds: frozenset[str]

    @property
    def id(self) -> str:
        """The place of its first contender, which identifies it."""
        return self.waits[0][1]

    def encode(self) -> bytes:
        """The record to publish."""
        return encode({"actor": self.actor, "waits": self.waits, "holds": sorted(self.holds)})

    @classmethod
    def decode(cls, record: bytes) -> Wait | None:
        """What ``record`` says; None for what another release may have written."""
        try:
            fields = decode(record)
            waits = tuple((str(queue), str(place)) for queue, place in fields["waits"])
            wait = cls(str(fields["actor"]), waits, frozenset(map(str, fields["holds"])))
        except (NewerFormat, ValueError, TypeError, KeyError):
            return None
        return wait if waits else None


@dataclass(frozen=True, slots=True)
class DeadlockStep:
    """One step of a deadlock: ``waiter`` waits in a queue, and ``blocker`` is in its way there.

    Attributes:
        name: the lock's name.
        waiter, blocker: their contenders.
        holding: whether the blocker holds the lock; else it waits, too, and asked for it earlier.
        waiter_at, blocker_at: which thread or task of the client that is, such as
            ``in thread 'MainThread'``; "" where it is not known.
    """

    name: str
    waiter: Contender
    blocker: Contender
    holding: bool
    waiter_at: str = ""
    blocker_at: str = ""

    @property
    def who_waits(self) -> str:
        """The waiter in words, and its thread or task."""
        return f"{self.waiter} {self.waiter_at}".rstrip()

    @property
    def who_blocks(self) -> str:
        """The blocker in words, likewise."""
        return f"{self.blocker} {self.blocker_at}".rstrip()

    def __str__(self) -> str:
        has = "holds" if self.holding else "asked for before"
        waits = f"{self.who_waits}{_queued(self.waiter)} waits for {self.name!r}"
        return f"{waits}, which {self.who_blocks}{_queued(self.blocker)} {has}"


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Contenders that wait for each other in a cycle: for ever, unless one gives up.

    Attributes:
        steps: the shortest cycle. Each blocker's client is the next step's waiter.
        victim: the place of the youngest contender that waits while its caller has others.
    """

    steps: tuple[DeadlockStep, ...]
    victim: str

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps))


def by_contender(waits: Iterable[Wait]) -> dict[str, list[Wait]]:
    """By place: the ``waits`` of the actors to which the contender belongs."""
    found: defaultdict[str, list[Wait]] = defaultdict(list)
    for wait in waits:
        for place in wait.holds.union(place for _, place in wait.waits):
            found[place].append(wait)
    return found


def needed(waits: Mapping[str, Sequence[Wait]], queues: Iterable[Snapshot]) -> set[str]:
    """The queues in which actors wait who have contenders in ``queues``; see `by_contender`."""
    standing = (contender.place for snapshot in queues for contender in snapshot.contenders)
    return {queue for place in standing for wait in waits.get(place, ()) for queue, _ in wait.waits}


def deadlocks(waits: Sequence[Wait], queues: Mapping[str, Snapshot]) -> Iterator[Deadlock]:
    """The deadlocks in ``queues``, which are read whole and with owners: one victim for each."""
    graph = _Graph(waits, queues.values())
    stuck = graph.stuck()
    for circle in _circles(stuck):
        able = [event for event in circle if event in graph.candidates]
        if able:
            victim = max(able, key=lambda event: _age(graph.candidates[event]))
            steps = tuple(graph.steps(_way_round(stuck, victim)))
            if len(steps) > 1:  # else it waits for its own lock, which another thread may release
                yield Deadlock(steps, graph.candidates[victim].place)


#: What happens, and to which contender or wait.
_Event = tuple[object, ...]
_Events = dict[_Event, list[_Event]]
_GRANTED = "the contender is granted"
_LEAVES = "the contender leaves, or claims less"
_CLEAR = "the contender and all earlier ones in the way of this claim leave"
_GOES_ON = "the actor of the wait has what it waits for"


class _Graph:
    """Which events come before which."""

    def __init__(self, waits: Sequence[Wait], queues: Iterable[Snapshot]) -> None:
        #: By event: those that must come before it.
        self._before: _Events = {}
        #: By queue: those that wait for a permit. Each contender that leaves lets the next one in.
        self._lines: dict[str, deque[_Event]] = {}
        self._places: dict[str, tuple[str, Contender]] = {}
        self._admitted: set[str] = set()
        self._waits = by_contender(waits)
        for snapshot in queues:
            self._add(snapshot)
        for place in self._places:
            actors, waits_itself = self._waits.get(place, ()), (_GRANTED, place) in self._before
            if waits_itself:  # it is not what its actor holds, whatever was published
                actors = [
                    wait for wait in actors if any(place == waiting for _, waiting in wait.waits)
                ]
            must: list[_Event] = [(_GOES_ON, wait.id) for wait in actors]
            self._before[_LEAVES, place] = must or [(_GRANTED, place)] * waits_itself
        #: The waits of actors that hold up others, each with a contender that waits.
        self.candidates: dict[_Event, Contender] = {}
        for wait in waits:
            waiting = [place for _, place in wait.waits if (_GRANTED, place) in self._before]
            self._before[_GOES_ON, wait.id] = [(_GRANTED, place) for place in waiting]
            if waiting:
                self.candidates[_GOES_ON, wait.id] = self._places[waiting[-1]][1]

    def _add(self, snapshot: Snapshot) -> None:
        admitted, all_ = holders(snapshot), snapshot.contenders
        self._admitted |= {contender.place for contender in all_ if contender.id in admitted}
        self._places |= {contender.place: (snapshot.queue, contender) for contender in all_}
        waiting = [contender for contender in all_ if contender.id not in admitted]
        # No conversion lets one pass that waits: those that do not wait any more go first.
        for claim, asks in {contender.claim: contender for contender in waiting}.items():
            clear: list[_Event] = []  # the latest of the chain
            for contender in all_:
                if contender.claim == claim and contender.id not in admitted:
                    self._before[_GRANTED, contender.place] = clear
                if keeps_out(contender, asks):
                    self._before[_CLEAR, contender.place, claim] = [
                        (_LEAVES, contender.place),
                        *clear,
                    ]
                    clear = [(_CLEAR, contender.place, claim)]
        for contender in all_:
            if isinstance(contender.claim, Convertible) and contender.claim.target is not None:
                ahead = upgrade_blockers(snapshot, contender)
                self._before[_GRANTED, contender.place] = [
                    (_LEAVES, other.place) for other in ahead
                ]
        line = (
            (_GRANTED, contender.place)
            for contender in waiting
            if isinstance(contender.claim, Permit)
        )
        self._lines[snapshot.queue] = deque(line)

    def stuck(self) -> _Events:
        """The events that never come, each with those among them that must come before it."""
        missing = {event: len(before) for event, before in self._before.items()}
        for line in self._lines.values():
            missing |= dict.fromkeys(line, -1)  # they come one for each that leaves
        after = _reversed(self._before)
        come = [event for event, count in missing.items() if not count]
        for event in come:
            for later in after[event]:
                missing[later] -= 1
                if not missing[later]:
                    come.append(later)
            if event[0] != _LEAVES:
                continue
            if line := self._lines[self._places[str(event[1])][0]]:
                come.append(line.popleft())
        left = dict.fromkeys(self._before)
        for event in come:
            left.pop(event, None)
        return {
            event: [before for before in self._before[event] if before in left] for event in left
        }

    def steps(self, way: Iterable[_Event]) -> Iterator[DeadlockStep]:
        """The events of a circle, in words for people."""
        places = [str(event[1]) for event in way if event[0] in (_GRANTED, _LEAVES)]
        for waiter, blocker in zip(places[::2], places[1::2], strict=True):
            (queue, one), (_, other) = self._places[waiter], self._places[blocker]
            actors = self._actor_of(waiter), self._actor_of(blocker)
            yield DeadlockStep(queue, one, other, blocker in self._admitted, *actors)

    def _actor_of(self, place: str) -> str:
        return next((wait.actor for wait in self._waits.get(place, ())), "")


def _reversed(graph: _Events) -> _Events:
    found: _Events = {event: [] for event in graph}
    for event, others in graph.items():
        for other in others:
            found[other].append(event)
    return found


def _circles(graph: _Events) -> Iterator[list[_Event]]:
    """The strongly connected parts of ``graph`` that have several nodes (Kosaraju's search)."""
    seen: set[_Event] = set()
    finished: dict[_Event, None] = {}
    for left in ([event] for event in graph):
        while left:
            event = left[-1]
            if event in seen:
                finished[left.pop()] = None
            else:
                seen.add(event)
                left += [before for before in graph[event] if before not in seen]
    behind = _reversed(graph)
    for start in reversed(finished):
        circle, left = [], [start]
        while left:
            if (event := left.pop()) in seen:
                seen.remove(event)
                circle.append(event)
                left += behind[event]
        if len(circle) > 1:
            yield circle


def _way_round(graph: _Events, start: _Event) -> list[_Event]:
    """The events of the shortest circle through ``start``, by the number of waits in it."""
    origin: dict[_Event, _Event] = {}
    left = deque((event, start) for event in graph[start])
    while start not in origin:
        node, before = left.popleft()
        if node not in origin:
            origin[node] = before
            add = left.extend if node[0] == _GRANTED else left.extendleft
            add((event, node) for event in graph[node])
    way = [start]
    while (node := origin[way[-1]]) != start:
        way.append(node)
    return way[::-1]


def _age(contender: Contender) -> tuple[int, str]:
    return contender.token or contender.order, contender.place


def _queued(contender: Contender) -> str:
    """When it entered its queue, which says nothing of how long it has held the lock."""
    owner = contender.owner
    if owner is None or not owner.since:
        return ""
    return f" (queued {datetime.fromtimestamp(owner.since):%H:%M:%S})"
