"""Items of a work queue on a bad day: who puts them, who takes them, and what the service kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from coordlock_memory import MemoryService
from hypothesis import strategies as st
from hypothesis.stateful import rule

from coordlock.backend import Delete, Operation, Put, Stored
from coordlock.errors import BackendUnavailable, LockLost, WorkQueueEmpty
from coordlock.model.contender import Contender
from coordlock.work import consumer, job, lookout, producer
from coordlock.work.job import Job
from coordlock.work.layout import Attempt, ItemId, Layout, bucket_of
from coordlock.work.queue import WorkQueue
from coordlock.work.records import Claim, Item, attempts
from tests.simulation.bad_day import HONEST, BadDayForData, delays, indices
from tests.simulation.contention import trusts
from tests.simulation.world import Call, Party

__all__ = ["Working"]

LAYOUT = Layout("/coordlock", "q")
#: How often an item is taken before it counts as dead.
ATTEMPTS = 3


@dataclass(frozen=True)
class Plan:
    """Who is to take an item, and what it says of the item after a pause."""

    who: int
    timeout: float | None = 10.0
    pause: float = 0.0
    word: str = "done"


puts = st.tuples(indices, st.sampled_from([0.0, 0.0, 0.0, 0.5, 5.0, 90.0]))
plans = st.builds(
    Plan,
    who=indices,
    timeout=st.sampled_from([None, 0.0, 1.0, 30.0]),
    pause=st.sampled_from([0.0, 0.0, 0.3, 3.0, 20.0]),
    word=st.sampled_from(["done", "done", "done", "nack", "later", "release"]),
)


class Ledger:
    """What the service has accepted for the work queue, and what is wrong with that."""

    def __init__(self, service: Any) -> None:
        self.wrong: list[str] = []
        #: The id under which each item was put.
        self.ids: dict[bytes, ItemId] = {}
        #: The claims of each item, that of the newest attempt at the end.
        self.claims: defaultdict[ItemId, list[Claim]] = defaultdict(list)
        #: Those that nobody has ended or taken over.
        self.open: dict[Attempt, Claim] = {}
        #: The attempts whose workers have set about saying that they are done.
        self.offered: set[Attempt] = set()
        #: The attempt by which each item that is done was.
        self.done: dict[ItemId, Attempt] = {}
        self._service: MemoryService = service
        self._write = service.write
        service.write = self.write

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> int:
        """The service's, which is looked at here."""
        revision: int = self._write(operations, guards)
        deleted = {one.key for one in operations if isinstance(one, Delete)}
        for one in operations:
            folder, _, name = one.key.rpartition("/")
            if folder.startswith(f"{LAYOUT.mark}/items/"):
                if isinstance(one, Put):
                    self._put(ItemId.parse(name), Item.decode(one.key, Stored(one.data, 1)))
                elif isinstance(one, Delete):
                    self._do(ItemId.parse(name), deleted)
            elif f"{folder}/" == LAYOUT.claims and isinstance(one, Put):
                self._take(Attempt.parse(name), Claim.decode(one.key, Stored(one.data, 1)))
        for attempt in [one for one in self.open if LAYOUT.claim(one) in deleted]:
            del self.open[attempt]
        return revision

    def _put(self, id: ItemId, item: Item) -> None:
        if item.data in self.ids:
            self.wrong.append(f"item {id} was put before, as {self.ids[item.data]}")
        self.ids[item.data] = id

    def _take(self, attempt: Attempt, claim: Claim) -> None:
        before, standing = self.claims[attempt.id], self._service.snapshot(LAYOUT.workers)
        if attempt.attempt != len(before) + 1:
            self.wrong.append(f"{attempt} comes after {len(before)} attempts")
        if before and claim.token <= before[-1].token:
            self.wrong.append(f"{attempt} has no greater token than the attempt before")
        if attempt.id in self.done:
            self.wrong.append(f"{attempt} is of an item that is done")
        if any(one.id == attempt.id and self.open[one].stands_in(standing) for one in self.open):
            self.wrong.append(f"{attempt} takes an item from a worker that has it")
        first = [id.number for id, claims in self.claims.items() if claims and not id.delayed]
        if not before and not attempt.id.delayed and attempt.id.number != len(first) + 1:
            self.wrong.append(f"{attempt} overtakes an item that was put before")
        before.append(claim)
        self.open[attempt] = claim

    def _do(self, id: ItemId, deleted: set[str]) -> None:
        attempt = Attempt(id, len(self.claims[id]))
        if LAYOUT.claim(attempt) not in deleted or id in self.done:
            self.wrong.append(f"item {id} is done by another attempt than {attempt}")
        if attempt not in self.offered:
            self.wrong.append(f"{attempt} is done, and nobody has said so")
        self.done[id] = attempt

    @property
    def dead(self) -> set[ItemId]:
        """The items that nobody takes any more."""
        folders = {LAYOUT.dead.folder(bucket_of(id)) for id in self.ids.values()}
        return {one.id for folder in folders for one in attempts(self._service.read(folder))}

    @property
    def left(self) -> set[ItemId]:
        """The items that are neither done nor dead."""
        return set(self.ids.values()) - set(self.done) - self.dead


@dataclass(eq=False)
class Work:
    """A job in the hands of a process."""

    party: Party
    job: Job
    word: str
    #: The saying of it, from its beginning on.
    call: Call[Any] | None = None

    @property
    def attempt(self) -> Attempt:
        return self.job._taken.attempt


class Working(BadDayForData):
    """Four processes that put items, take them, and say that they are done, or give them back.

    After every single event: no item was put twice, or done twice; none was taken from a worker
    that has it; attempts and tokens grow; first attempts come in the order of the puts. No two hold
    a job of the same item. What a worker is told of its item is so.

    In the end: every item that was put is done, or was taken as often as it may be, and is dead.
    """

    overtaken: ClassVar[str] = LAYOUT.workers

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(self.world.service)
        self.puts: list[tuple[bytes, Call[str]]] = []
        self.takes: list[tuple[Plan, Call[Any]]] = []
        self.work: list[Work] = []
        # What is delayed is so by the time of day.
        self.time_of_day = ExitStack()
        for module in (consumer, job, lookout, producer):
            clock = SimpleNamespace(time=self.world.time.now)
            self.time_of_day.enter_context(patch.object(module, "time", clock))

    def teardown(self) -> None:
        with self.time_of_day:
            super().teardown()

    # What the processes do

    @rule(crowd=st.lists(puts, min_size=1, max_size=4), seconds=delays)
    def put(self, crowd: list[tuple[int, float]], seconds: float) -> None:
        for who, delay in crowd:
            party = self.pick(who)
            if not party.paused and len(self.puts) < 24:
                data = b"%d" % len(self.puts)
                self.puts.append((data, party.run(queue_of(party)._put(data, delay))))
        self.world.advance(seconds)

    @rule(crowd=st.lists(plans, min_size=1, max_size=4), seconds=delays)
    def take(self, crowd: list[Plan], seconds: float) -> None:
        for plan in crowd:
            if not self.pick(plan.who).paused and len(self.takes) + len(self.work) < 12:
                self.begin(plan)
        self.world.advance(seconds)

    def begin(self, plan: Plan) -> None:
        party = self.pick(plan.who)
        self.takes.append((plan, party.run(queue_of(party)._take(plan.timeout))))

    def say_later(self, one: Work, seconds: float) -> None:
        one.party.process.call_at(self.world.time.now() + seconds, lambda: self.say(one))

    def say(self, one: Work) -> None:
        steps: dict[str, Any] = {
            "done": one.job._done,
            "nack": one.job._nack,
            "later": lambda: one.job._nack(5.0),
            "release": one.job._release,
        }
        if one.word == "done":
            self.ledger.offered.add(one.attempt)
        one.call = one.party.run(steps[one.word]())

    @rule(which=indices)
    def give_up(self, which: int) -> None:
        under_way = [call for _, call in [*self.puts, *self.takes] if not call.done]
        if under_way:
            under_way[which % len(under_way)].cancel()

    # What must hold

    def check(self) -> None:
        for plan, call in [one for one in self.takes if one[1].done]:
            self.takes.remove((plan, call))
            if call.error is None:
                work = Work(self.pick(plan.who), call.result, plan.word)
                self.work.append(work)
                self.say_later(work, plan.pause)
            else:
                assert isinstance(call.error, (*HONEST, WorkQueueEmpty)), call.error
        for one in self.work:
            if one.call is not None and one.call.done:
                self.hear(one, one.call.error)
        self.work = [one for one in self.work if one.call is None or not one.call.done]
        assert self.ledger.wrong == []
        # Who stands still does not know what he believes.
        believed = [
            one.job.id
            for one in self.work
            if not (one.call or one.party.paused or one.job._first_token in self.removed)
            and trusts(one.job)
        ]
        assert len(set(believed)) == len(believed), "two hold a job of the same item"

    def hear(self, one: Work, error: BaseException | None) -> None:
        """A worker is answered."""
        if error is None:
            was_done = self.ledger.done.get(one.attempt.id) == one.attempt
            assert was_done == (one.word == "done"), "told what is not so"
            assert one.attempt not in self.ledger.open or one.word == "release"
        elif isinstance(error, BackendUnavailable):
            self.say_later(one, 1.0)  # again, which is safe
        else:
            assert isinstance(error, LockLost), error
            one.party.run(one.job._release())  # as the end of a block does

    def get_over(self) -> None:
        for _ in range(60):
            self.world.advance(20.0)
            if not (self.ledger.left or self.work):
                break
            for who in range(len(self.world.parties)):
                self.begin(Plan(who))
        for _, call in self.takes:
            call.cancel()
        self.world.advance(300.0)  # late requests, too
        self.check()
        assert not self.work
        assert not self.takes
        assert not self.ledger.left, "an item is neither done nor dead"
        for id in self.ledger.dead:
            assert len(self.ledger.claims[id]) >= ATTEMPTS, f"{id} is dead too early"
        for data, put in self.puts:
            assert put.done
            if put.error is None:
                assert str(self.ledger.ids[data]) == put.result
            elif isinstance(put.error, BackendUnavailable) and "may" not in put.error.reason:
                assert data not in self.ledger.ids, "put, and said not to be"
            else:
                assert isinstance(put.error, HONEST), put.error


def queue_of(party: Party) -> WorkQueue:
    return WorkQueue(party.access, "q", max_attempts=ATTEMPTS)
