"""Deadlocks: which contenders wait for each other in a cycle, over all queues. No I/O.

The graph has two kinds of edges. A contender that waits is stuck behind the earlier ones in its
queue that are in its way. A contender that is admitted stays until its actor goes on, so it is
stuck behind whatever the actor waits for, which the actor publishes.

A wait for several locks is granted as a whole. So its contenders are one node of the graph: it is
stuck as long as one of them is, and holds up everything behind any of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coordlock.model.admission import holders, obstacles
from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.conversion import waited_for
from coordlock.model.record import NewerFormat, decode, encode

__all__ = ["Deadlock", "DeadlockStep", "Wait", "deadlocks", "needed"]


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait that an actor publishes, because it keeps contenders in other queues meanwhile.

    Attributes:
        actor: which task or thread of its client, for people.
        waits: queue and entry id of each contender that waits: all are granted, or none.
        holds: the entry ids of the actor's other contenders, which stay until it goes on.
    """

    actor: str
    waits: tuple[tuple[str, str], ...]
    holds: frozenset[str]

    @property
    def id(self) -> str:
        """The entry id of its first contender, which identifies it."""
        return self.waits[0][1]

    def encode(self) -> bytes:
        """The record to publish."""
        return encode({"actor": self.actor, "waits": self.waits, "holds": sorted(self.holds)})

    @classmethod
    def decode(cls, record: bytes) -> Wait | None:
        """What ``record`` says; None for what another release may have written."""
        try:
            fields = decode(record)
            waits = tuple((str(queue), str(id)) for queue, id in fields["waits"])
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
        waits = f"{self.who_waits} waits for {self.name!r}{_since(self.waiter)}"
        return f"{waits}, which {self.who_blocks} {has}{_since(self.blocker)}"


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Contenders that wait for each other in a cycle: for ever, unless one gives up.

    Attributes:
        steps: the shortest cycle. Each blocker's client is the next step's waiter.
        victim: the entry id of the youngest contender that waits while its caller has others.
    """

    steps: tuple[DeadlockStep, ...]
    victim: str

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps))


def needed(waits: Sequence[Wait], queues: Mapping[str, Snapshot]) -> set[str]:
    """The queues that must be read, too, to know which contenders in ``queues`` are stuck."""
    by_id = _by_id(waits)
    standing = {one.id for snapshot in queues.values() for one in snapshot.contenders}
    found = {queue for id in standing for wait in by_id.get(id, ()) for queue, _ in wait.waits}
    return found - queues.keys()


def deadlocks(waits: Sequence[Wait], queues: Mapping[str, Snapshot]) -> Iterator[Deadlock]:
    """The deadlocks in ``queues``, which are read whole and with owners."""
    graph = _Graph(waits, queues)
    ahead = graph.ahead()
    behind: dict[str, set[str]] = {}
    for one, others in ahead.items():
        for other in others:
            behind.setdefault(other, set()).add(one)
    seen: set[str] = set()
    for start in graph.candidates:
        if start in seen or start not in ahead:
            continue
        round_ = _reachable(ahead, start) & _reachable(behind, start)
        if start in round_:
            seen |= round_
            able = round_ & graph.candidates.keys()
            victim = max(able, key=lambda one: _age(graph.contenders[graph.candidates[one]]))
            steps = tuple(graph.way_round(victim))
            if len(steps) > 1:  # else it waits for its own lock, which another thread may release
                yield Deadlock(steps, graph.candidates[victim])


class _Graph:
    """Which nodes are stuck behind which.

    A node is a published wait, known by its `Wait.id`, or one contender, known by its entry id.
    """

    def __init__(self, waits: Sequence[Wait], queues: Mapping[str, Snapshot]) -> None:
        self.contenders = {
            one.id: one for snapshot in queues.values() for one in snapshot.contenders
        }
        self._nodes = {id: wait.id for wait in waits for _, id in wait.waits}
        #: By node: each of its contenders, those it is stuck behind, and how many of these suffice.
        self._behind: dict[str, list[tuple[str, list[str], int]]] = {}
        self._queue_of: dict[str, str] = {}
        self._admitted: set[str] = set()
        self._waiting: set[str] = set()
        for queue, snapshot in queues.items():
            admitted = holders(snapshot)
            self._admitted |= admitted
            for one in snapshot.contenders:
                self._queue_of[one.id] = queue
                if one.id not in admitted:
                    ahead, most = obstacles(snapshot, one)
                elif isinstance(one.claim, Convertible) and one.claim.target is not None:
                    ahead, most = waited_for(snapshot, one), 1  # it holds, and waits for more
                else:
                    continue
                self._waiting.add(one.id)
                self._add(one.id, [other.id for other in ahead], most)
        for wait in waits:
            for id in wait.holds & (self._admitted - self._waiting):
                if self._node(id) != wait.id:
                    self._add(id, [wait.id], 1)
        self._free()
        #: By node that is stuck: see `_edges`.
        self._steps = {node: self._edges(node) for node in self._behind}
        self._waits_of = _by_id(waits)
        #: The waits of actors that hold up others, each with a contender that waits.
        self.candidates = {
            wait.id: id
            for wait in waits
            for _, id in wait.waits
            if id in self._waiting and wait.id in self._behind
        }

    def _node(self, id: str) -> str:
        return self._nodes.get(id, id)

    def _add(self, place: str, ahead: list[str], most: int) -> None:
        self._behind.setdefault(self._node(place), []).append((place, ahead, most))

    def _free(self) -> None:
        """Forget the nodes that can go on, then those whose blockers can, until none is left."""
        goes_on = True
        while goes_on:
            goes_on = False
            for node in list(self._behind):  # in the order of their queues: few rounds are needed
                if not self._edges(node):
                    del self._behind[node]
                    goes_on = True

    def _edges(self, node: str) -> list[tuple[str, str]]:
        """Each contender of ``node`` that is stuck, with each contender that it is stuck behind."""
        edges = []
        for place, ahead, most in self._behind[node]:
            left = [one for one in ahead if self._node(one) in self._behind]
            if len(left) >= most:
                edges += [(place, one) for one in left]
        return edges

    def ahead(self) -> dict[str, set[str]]:
        """The nodes behind which each is stuck, without those that wait behind a cycle.

        Those are in no cycle: no node is stuck behind them, or only others of them are.
        """
        ahead = {
            node: {self._node(place) for _, place in steps} for node, steps in self._steps.items()
        }
        kept = Counter(other for others in ahead.values() for other in others)
        last = [node for node in ahead if not kept[node]]
        for node in last:
            for other in ahead.pop(node):
                kept[other] -= 1
                if not kept[other]:
                    last.append(other)
        return ahead

    def way_round(self, start: str) -> Iterator[DeadlockStep]:
        """The shortest cycle through ``start``."""
        before: dict[str, tuple[str, str, str]] = {}
        left = [start]
        for node in left:
            for place, other in self._steps[node]:
                if (behind := self._node(other)) not in before:
                    before[behind] = node, place, other
                    left.append(behind)
        node, place, other = before[start]
        path = [(place, other)]
        while node != start:
            node, place, other = before[node]
            path.append((place, other))
        for one, other in reversed(path):
            if one in self._waiting:
                yield DeadlockStep(
                    self._queue_of[one],
                    self.contenders[one],
                    self.contenders[other],
                    other in self._admitted,
                    self._actor_of(one),
                    self._actor_of(other),
                )

    def _actor_of(self, id: str) -> str:
        return next((wait.actor for wait in self._waits_of.get(id, ())), "")


def _reachable(edges: Mapping[str, set[str]], start: str) -> set[str]:
    """All nodes that ``edges`` reach from ``start``; itself, too, where they lead back."""
    found: set[str] = set()
    left = [start]
    while left:
        new = edges.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def _by_id(waits: Iterable[Wait]) -> dict[str, list[Wait]]:
    found: dict[str, list[Wait]] = {}
    for wait in waits:
        for id in wait.holds.union(id for _, id in wait.waits):
            found.setdefault(id, []).append(wait)
    return found


def _age(contender: Contender) -> tuple[int, str]:
    return contender.token or contender.order, contender.id


def _since(contender: Contender) -> str:
    owner = contender.owner
    if owner is None or not owner.since:
        return ""
    return f" since {datetime.fromtimestamp(owner.since):%H:%M:%S}"
