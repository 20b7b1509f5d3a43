"""Deadlocks: which contenders wait for each other in a cycle, over all queues. No I/O.

A contender that waits is granted after the earlier ones in its way have left. A contender that was
granted leaves after its actor has got what it waits for, which the actor publishes. A wait for
several locks is granted as a whole. Let all leave that can: each of those left waits for one that
is left, and whoever goes from one to the next comes to a cycle.

Of those in its way, each goes to the same one. So no two cycles have a contender in common, each
needs a victim, and all clients find the same ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coordlock.model.admission import holders, keeps_out
from coordlock.model.claim import AnyClaim, Convertible, Permit
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
        steps: the cycle. Each blocker's client is the next step's waiter.
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
    blockers = graph.stuck()
    seen: set[str] = set()
    for place in blockers:
        way: list[str] = []
        while place not in seen:
            seen.add(place)
            way.append(place)
            place = next(next_ for next_ in graph.waits(blockers[place]) if next_ in blockers)
        if place not in way:
            continue  # it leads to a cycle that is known
        cycle = way[way.index(place) :]
        able = [place for place in cycle if graph.is_published(place)]
        if len(cycle) > 1 and able:  # else one waits for itself, and another thread may release
            victim = max(able, key=graph.age)
            first = cycle.index(victim)
            steps = [graph.step(place, blockers[place]) for place in cycle[first:] + cycle[:first]]
            yield Deadlock(tuple(steps), victim)


class _Graph:
    """Which contenders wait for which, by their places."""

    def __init__(self, waits: Sequence[Wait], queues: Iterable[Snapshot]) -> None:
        self._queues = {snapshot.queue: snapshot for snapshot in queues}
        self._published = by_contender(waits)
        self._contenders: dict[str, tuple[str, Contender]] = {}
        self._admitted: set[str] = set()
        #: Those that wait, for their turn or for an upgrade.
        self._waiting: set[str] = set()
        for snapshot in self._queues.values():
            admitted = holders(snapshot)
            for contender in snapshot.contenders:
                self._contenders[contender.place] = snapshot.queue, contender
                if contender.id in admitted:
                    self._admitted.add(contender.place)
                if contender.id not in admitted or _is_upgraded(contender):
                    self._waiting.add(contender.place)

    def stuck(self) -> dict[str, str]:
        """Those that wait for ever, each with one that stays in its way: the oldest of a claim."""
        blocked = dict.fromkeys(self._waiting, "")
        stuck = {place for place in self._contenders if self._is_kept(place, blocked)}
        left = dict(self._queues)
        while left:
            _, snapshot = left.popitem()
            for place, blocker in self._blocked(snapshot, stuck):  # who leaves is out of the way
                if blocker:
                    blocked[place] = blocker
                elif blocked.pop(place, None) is not None:
                    for other in self._with(place):
                        if other in stuck and not self._is_kept(other, blocked):
                            stuck.remove(other)
                            queue = self._contenders[other][0]
                            left[queue] = self._queues[queue]
        return blocked

    def _blocked(self, snapshot: Snapshot, stuck: Container[str]) -> Iterator[tuple[str, str]]:
        """Those that wait, each with one of the ``stuck`` that keeps it out, or ""."""
        earlier: dict[AnyClaim, Contender] = {}  # one of each claim is enough
        count = 0
        for contender in snapshot.contenders:
            place, claim = contender.place, contender.claim
            if place in self._waiting:
                ahead: Iterable[Contender] = earlier.values()
                if _is_upgraded(contender):
                    ahead = upgrade_blockers(snapshot, contender)
                    ahead = [other for other in ahead if other.place in stuck]
                elif not isinstance(claim, Permit):
                    ahead = [other for other in ahead if keeps_out(other, contender)]
                elif count < claim.of:
                    ahead = ()
                yield place, next((other.place for other in ahead), "")
            if place in stuck:
                earlier.setdefault(claim, contender)
                count += 1

    def _is_kept(self, place: str, blocked: Container[str]) -> bool:
        """Whether it stays because of the ``blocked``."""
        return any(map(blocked.__contains__, self.waits(place)))

    def _with(self, place: str) -> set[str]:
        """The places that may leave once it is granted: its own, and its actor's."""
        found = {place}
        for wait in self._published.get(place, ()):
            found |= wait.holds.union(place for _, place in wait.waits)
        return found

    def waits(self, place: str) -> Iterator[str]:
        """Where it, or its actor, must get what it waits for before it leaves or claims less."""
        is_waiting = place in self._waiting
        if is_waiting:
            yield place
        for wait in self._published.get(place, ()):
            places = [waiting for _, waiting in wait.waits]
            if is_waiting and place not in places:
                continue  # it is not what its actor holds, whatever was published
            yield from (waiting for waiting in places if waiting in self._waiting)

    def is_published(self, place: str) -> bool:
        """Whether its actor publishes that it waits there, and so can give up."""
        waits = self._published.get(place, ())
        return any(place == waiting for wait in waits for _, waiting in wait.waits)

    def age(self, place: str) -> tuple[int, str]:
        """The greater, the younger."""
        contender = self._contenders[place][1]
        return contender.token or contender.order, place

    def step(self, waiter: str, blocker: str) -> DeadlockStep:
        """The step of a cycle in which ``waiter`` waits for ``blocker``."""
        (queue, one), (_, other) = self._contenders[waiter], self._contenders[blocker]
        actors = self._actor_of(waiter), self._actor_of(blocker)
        return DeadlockStep(queue, one, other, blocker in self._admitted, *actors)

    def _actor_of(self, place: str) -> str:
        return next((wait.actor for wait in self._published.get(place, ())), "")


def _is_upgraded(contender: Contender) -> bool:
    return isinstance(contender.claim, Convertible) and contender.claim.target is not None


def _queued(contender: Contender) -> str:
    """When it entered its queue, which says nothing of how long it has held the lock."""
    owner = contender.owner
    if owner is None or not owner.since:
        return ""
    return f" (queued {datetime.fromtimestamp(owner.since):%H:%M:%S})"
