"""What one client takes from a work queue.

A consumer waits in the queue of the takers, as for a lock. Who is first follows the work queue
alone, takes an item and leaves: so each item wakes one consumer, whichever client put it.

An item is taken by a write that makes a claim, is guarded by a contender of the worker's in the
queue of the workers, and takes away what made the item ready: it moves the head on, or deletes the
key of an attempt. Each of these can be done once, so an item has one claim. To be first among the
takers makes that quick; it is not what makes it safe, and ends when the claim is on its way.

A claim is void when its contender has left its queue. Departed contenders never return, and each
later write of that worker is guarded by it, so none of them comes through: whoever reads the claim,
then the workers, and does not find the contender there, may take the claim's place.

Tokens: that of a claim is greater than those of all claims of its item before. The first has none
before it; the others are told that of the claim before, and a worker whose own is not greater makes
another contender. So a consumer that came early and waited long takes over with a new token.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from coordlock.backend import Delete, Expect, Operation, Put
from coordlock.errors import Evicted, SessionLost
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.runtime.deadline import Deadline
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise
from coordlock.work import lookout
from coordlock.work.desk import Desk
from coordlock.work.layout import Attempt, ItemId, Layout, bucket_of, creating, opening
from coordlock.work.records import Again, Claim, Dead, Item, State, attempts, head_record
from coordlock.work.writing import Outcome, written

__all__ = ["Known", "Search", "Taken"]

#: Seconds for which a client that finds items does not look for void claims; and how many more for
#: each claim, so that all the looks of a thousand workers are no burden.
_LOOK: Final = 1.0
_LOOK_PER_CLAIM: Final = 0.01
#: How many delayed items become ready in one write.
_MOVED: Final = 16


@dataclass(frozen=True)
class Taken:
    """An item that was taken."""

    ticket: Ticket
    attempt: Attempt
    item: Item


@dataclass(frozen=True)
class _Ready:
    """An item that may be taken, after so many attempts: ``taking`` is what takes that away."""

    attempt: Attempt
    taking: Sequence[Operation]
    token: int = 0
    #: The state after that, if nobody else has changed it.
    leaves: State | None = None


@dataclass
class Known:
    """What a client knows of a queue and need not ask for again.

    All that comes to what is to be taken again, or later, rings the bell. So while the bell has the
    version at which it was looked, there is no more of it than was seen.
    """

    #: The bell at which nothing was to be taken again.
    empty_at: int = -1
    #: The bell at which was found before when nothing becomes due, in seconds since 1970, and that
    #: time; None for never.
    due: tuple[int, float | None] = (-1, None)
    #: Until when claims are not looked at, in seconds of the client's clock.
    look_at: float = 0.0
    #: The state after this client's last take at the head; None when it took elsewhere since.
    left: State | None = None
    #: Whether the take after that found the head there: no other consumer is as busy.
    is_alone: bool = False

    def may_go_on(self, now: float) -> State | None:
        """What was ``left``, where the next item at the head is the next of all; else None."""
        state = self.left
        if state is None or not self.is_alone or now >= self.look_at:
            return None
        due_at, due = self.due
        if not self.empty_at == due_at == state.versions[2]:
            return None
        return state if due is None or time.time() < due else None


class Search:
    """One call that takes an item; its caller drops the worker where it ends without one."""

    def __init__(
        self,
        desk: Desk,
        known: Known,
        max_attempts: int,
        label: str | None,
        deadline: Deadline | None,
    ) -> None:
        self._desk: Final = desk
        self._layout: Final = desk.layout
        self._known: Final = known
        self._max_attempts: Final = max_attempts
        self._label: Final = label
        self._deadline: Final = deadline
        #: Tells who waits that there is something, or a claim, that it has not seen.
        self._ring: Final = Put(desk.layout.bell, b"")
        self._worker: Promise[Ticket] | None = None
        #: The claims that were not void at the last look.
        self._claims: list[Claim] = []

    def at_once(self) -> Steps[Taken | None]:
        """Take the item after the one that this client has taken last, without a look or a turn.

        None where there is none so far, something comes before it, or others take, too: the write
        expects the head and the bell as they were left.
        """
        known = self._known
        state = known.may_go_on(self._desk.engine.clock.now())
        if state is None:
            return None
        self.begin_worker()
        taken: Taken | None = None
        item = yield from self._item(ItemId(state.head))
        if item is not None:
            bell = Expect(self._layout.bell, state.versions[2])
            taken = yield from self._claim(_at_head(self._layout, state, bell), item)
        known.is_alone = taken is not None
        return taken

    def steps(self, turn: Ticket | None) -> Steps[Taken | None]:
        """Take the next item, waiting for it under ``turn``; without one, None if there is none.

        The turn ends when the claim is on its way: who is next sees it, as a rule. None also where
        it was not made then: ``turn`` is over.
        """
        yield self._deadline
        while True:
            state = yield from self._desk.state()
            left = self._known.left
            self._known.is_alone = left is not None and left.versions[1:] == state.versions[1:]
            ready = yield from self._find(state)
            if ready is not None:
                taken = yield from self._claim(ready, turn=turn)
                if taken is not None or (turn is not None and turn.is_leaving):
                    return taken
            elif turn is None:
                return None
            else:
                due = self._known.due[1]
                yield from lookout.news(self._desk, turn, state, self._claims, due)

    def _find(self, state: State) -> Steps[_Ready | None]:
        """The item to take: what was begun before comes first, then what is due, then the head."""
        known, bell = self._known, state.versions[2]
        first: _Ready | None = None
        if looks := self._desk.engine.clock.now() >= known.look_at:
            first = yield from self._void()
        if first is None and known.empty_at != bell:
            first = yield from self._again(bell)
        if first is not None:
            return first
        if known.due[0] != bell:
            buckets = yield from self._buckets()
            known.due = bell, opening(buckets[0]) if buckets else None
        due = known.due[1]
        if due is not None and time.time() >= due and (yield from self._move_due(bell)):
            state = yield from self._desk.state()
            return (yield from self._find(state))
        if state.waiting:
            return _at_head(self._layout, state)
        return None if looks else (yield from self._void())  # a wait is to begin with a look

    def _void(self) -> Steps[_Ready | None]:
        """The first item whose claim is void. Buries those that were taken too often."""
        desk, known = self._desk, self._known
        while True:
            begun = desk.engine.clock.now()
            found = attempts((yield from desk.read(self._layout.claims)))
            claims = {one: Claim.decode(key, stored) for one, (key, stored) in found.items()}
            void = list(claims)
            if claims:  # only now, so that who is not there has left
                workers = yield from desk.workers()
                void = [one for one in claims if not claims[one].stands_in(workers)]
            self._claims = [claim for one, claim in claims.items() if one not in void]
            pause = _LOOK + _LOOK_PER_CLAIM * len(claims)
            known.look_at = begun + pause if len(void) <= 1 else begun  # for the next one
            if not void:
                return None
            first, key = void[0], self._layout.claim(void[0])
            ending = Expect(key, 1), Delete(key)
            if first.attempt < self._max_attempts:
                return _Ready(first, (*ending, self._ring), claims[first].token)
            reason = f"taken {first.attempt} times, and not done when its last worker ended"
            yield from self._write([*ending, *burying(self._desk, first, reason)])

    def _again(self, bell: int) -> Steps[_Ready | None]:
        """The first of those that were taken before, or have waited for their time."""
        listing = yield from self._desk.read(self._layout.again)
        found = {one: Again.decode(key, stored) for one, (key, stored) in attempts(listing).items()}
        if not found:
            self._known.empty_at = bell
            return None
        first = min(found, key=lambda one: (found[one].due, one))
        key = self._layout.returned(first)
        return _Ready(first, (Expect(key, 1), Delete(key), self._ring), found[first].token)

    def _buckets(self) -> Steps[list[str]]:
        """The buckets of what is delayed, in the order in which they open."""
        listing = yield from self._desk.read(self._layout.later.index)
        names = (key.rpartition("/")[2] for key in listing.values)
        return sorted(names, key=lambda name: (opening(name), name))

    def _move_due(self, bell: int) -> Steps[bool]:
        """Let the first few that are due be taken again; whether there were such."""
        now, layout, shelf = time.time(), self._layout, self._layout.later
        coming: list[float] = []
        operations: list[Operation] = []
        moved = 0
        for bucket in (yield from self._buckets()):
            if opening(bucket) > now or moved == _MOVED:
                coming.append(opening(bucket))
                break
            listing = yield from self._desk.read(shelf.folder(bucket))
            records = {
                one: Again.decode(key, stored) for one, (key, stored) in attempts(listing).items()
            }
            due = sorted((record.due, one) for one, record in records.items() if record.due <= now)
            chosen = [one for _, one in due[: _MOVED - moved]]
            for one in chosen:
                key = shelf.key(bucket, one)
                operations += Expect(key, 1), Delete(key)
                operations += creating(layout.returned(one), records[one].encode())
            moved += len(chosen)
            coming += [record.due for one, record in records.items() if one not in chosen]
            if len(chosen) == len(records):
                operations += shelf.clearing(bucket)
        if not operations:
            self._known.due = bell, min(coming, default=None)
            return False
        # What comes to a bucket rings the bell: so one that is cleared is empty.
        yield from self._write([Expect(layout.bell, bell), self._ring, *operations])
        return True

    def _claim(
        self, ready: _Ready, item: Item | None = None, turn: Ticket | None = None
    ) -> Steps[Taken | None]:
        """Take what is ``ready``, which is read after that; None where it is to be looked again."""
        desk, layout, known = self._desk, self._layout, self._known
        known.left = None
        worker = yield from self._worker_after(ready.token)
        me = worker.contenders[0]
        attempt = Attempt(ready.attempt.id, ready.attempt.attempt + 1)
        key = layout.claim(attempt)
        operations = [*ready.taking, *creating(key, Claim.of(me, time.time()).encode())]
        try:
            over = (lambda: None) if turn is None else turn.withdraw
            outcome = yield from written(desk.service, desk.engine.timers, operations, [me], over)
        except (Evicted, SessionLost):
            self.drop_worker()
            return None
        if outcome is Outcome.UNCLEAR:
            found = (yield from desk.read(key)).values.get(key)
            if found is not None and Claim.decode(key, found).is_of(me):
                outcome = Outcome.MADE
        if outcome is not Outcome.MADE:
            known.look_at = 0.0  # another consumer was faster, and it is not known at what
            return None
        known.left = ready.leaves
        item = item or (yield from self._item(attempt.id))
        if item is None:  # somebody has deleted it by hand
            yield from self._write([Expect(key, 1), Delete(key)])
            return None
        if worker.lost is not None:  # while the item was read: the claim is void
            self.drop_worker()
            known.look_at, known.left = 0.0, None
            return None
        return Taken(worker, attempt, item)

    def _item(self, id: ItemId) -> Steps[Item | None]:
        key = self._layout.item(id)
        stored = (yield from self._desk.read(key)).values.get(key)
        return None if stored is None else Item.decode(key, stored)

    def begin_worker(self) -> None:
        """Have a contender among the workers made, while something else is waited for."""
        if self._worker is not None:
            return
        claims = {self._layout.workers: Mode.NL}
        making = acquisition(self._desk.engine, claims, label=self._label)
        self._worker = run_in_background(making)

    def _worker_after(self, token: int) -> Steps[Ticket]:
        """A contender among the workers, with a token greater than this one."""
        while True:
            self.begin_worker()
            assert self._worker is not None
            worker: Ticket = yield self._worker
            if worker.lost is None and (worker.contenders[0].token or 0) > token:
                return worker
            self.drop_worker()

    def drop_worker(self) -> None:
        """Withdraw the contender among the workers, if there is one, or will be."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.add_done_callback(_withdraw)

    def _write(self, operations: Sequence[Operation]) -> Steps[None]:
        """Write what any consumer may; what is not made is looked at again."""
        desk = self._desk
        outcome = yield from written(desk.service, desk.engine.timers, operations)
        if outcome is not Outcome.MADE:
            self._known.look_at = 0.0  # another consumer was faster


def _at_head(layout: Layout, state: State, *expected: Operation) -> _Ready:
    """The item at the head."""
    tail, head, bell = state.versions
    moving = Put(layout.head, head_record(state.head + 1))
    return _Ready(
        Attempt(ItemId(state.head), 0),
        (*expected, Expect(layout.head, head), moving),
        leaves=State(state.tail, state.head + 1, (tail, head + 1, bell)),
    )


def _withdraw(worker: Promise[Ticket]) -> None:
    if worker.exception() is None:
        worker.result().withdraw()


def burying(desk: Desk, attempt: Attempt, reason: str) -> tuple[Operation, ...]:
    """What puts an item among the dead, beside what ends its claim."""
    layout, record = desk.layout, Dead(time.time(), reason).encode()
    adding = layout.dead.adding(bucket_of(attempt.id), attempt, record)
    return *adding, Put(layout.bell, b"")
