"""Items of a work queue on a bad day: who puts them, who takes them, and what the service kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from coordlock_memory import MemoryService
from hypothesis import strategies as st
from hypothesis.stateful import rule

from coordlock.backend import Delete, Operation, Put, VersionedValue, Written
from coordlock.errors import BackendUnavailable, LockLost, WorkQueueEmpty
from coordlock.model.contender import Contender
from coordlock.work import consumer, layout, producer
from coordlock.work.item import Item
from coordlock.work.layout import Entry, Layout
from coordlock.work.queue import WorkQueue
from coordlock.work.records import Claim, Content
from tests.simulation.bad_day import HONEST, BadDayForData, delays, indices
from tests.simulation.contention import trusts
from tests.simulation.world import Call, Party

__all__ = ["Working"]

LAYOUT = Layout("/coordlock", "q")
NOTHING = (WorkQueueEmpty,)
ITEMS = LAYOUT.item(1).removesuffix("1")
#: How often an item fails before it is dead.
ATTEMPTS = 3


@dataclass(frozen=True)
class Plan:
    """Who is to take an item, and what it says of the item after a pause."""

    who: int
    timeout: float | None = 10.0
    pause: float = 0.0
    word: str = "ack"


puts = st.tuples(indices, st.sampled_from([0.0, 0.0, 0.0, 0.5, 5.0, 90.0]))
plans = st.builds(
    Plan,
    who=indices,
    timeout=st.sampled_from([None, 0.0, 1.0, 30.0]),
    pause=st.sampled_from([0.0, 0.0, 0.3, 3.0, 20.0]),
    word=st.sampled_from(["ack", "ack", "ack", "nack", "later", "release"]),
)


class Ledger:
    """What the service has accepted for the work queue, and what is wrong with that."""

    def __init__(self, service: Any) -> None:
        self.wrong: list[str] = []
        #: The number under which each item was put.
        self.numbers: dict[bytes, int] = {}
        #: The claims of each item, the newest at the end.
        self.claims: defaultdict[int, list[Entry]] = defaultdict(list)
        #: Those that nobody has ended or taken over.
        self.open: dict[Entry, Claim] = {}
        #: The session of each worker, by its token; those that an operator removed have none.
        self.sessions: dict[int, str] = {}
        #: Whether a session goes on, as far as its client knows.
        self.lives: Callable[[str], bool] = lambda _: False
        #: The claims whose workers were told that they have the item.
        self.handed: set[Entry] = set()
        #: The claims that have failed: whose workers said so, or ended at work.
        self.failed: set[Entry] = set()
        #: The claims whose workers have set about to acknowledge the item.
        self.offered: set[Entry] = set()
        #: The claim by which each item that is acknowledged was.
        self.acked: dict[int, Entry] = {}
        self._service: MemoryService = service
        self._write = service.write
        service.write = self.write

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Written:
        """The service's, which is looked at here."""
        written: Written = self._write(operations, guards)
        deleted = {one.key for one in operations if isinstance(one, Delete)}
        for one in operations:
            folder, _, name = one.key.rpartition("/")
            if f"{folder}/" == ITEMS:
                if isinstance(one, Put):
                    content = Content.decode(one.key, VersionedValue(one.data, 1))
                    self._put(int(name), content)
                elif isinstance(one, Delete):
                    self._ack(int(name), deleted)
            elif f"{folder}/" == LAYOUT.claims and isinstance(one, Put):
                claim = Claim.decode(one.key, VersionedValue(one.data, 1))
                self._take(Entry.parse(name), claim)
        for entry in [entry for entry in self.open if f"{LAYOUT.claims}{entry}" in deleted]:
            claim = self.open.pop(entry)
            if claim in map(Claim.of, guards):
                continue
            self.failed.add(entry)
            if self.goes_on(entry.token):
                self.wrong.append(f"{entry} is blamed for a worker that has not ended")
        return written

    def _put(self, number: int, content: Content) -> None:
        if content.data in self.numbers:
            before = self.numbers[content.data]
            self.wrong.append(f"item {number} was put before, as {before}")
        self.numbers[content.data] = number

    def _take(self, one: Entry, claim: Claim) -> None:
        before, standing = self.claims[one.number], self._service.snapshot(LAYOUT.workers)
        if before and one.token <= before[-1].token:
            self.wrong.append(f"{one} has no greater token than the claim before")
        if one.number in self.acked:
            self.wrong.append(f"{one} is of an item that is acknowledged")
        workers = {Claim.of(worker): worker for worker in standing.contenders}
        if any(open in workers for each, open in self.open.items() if each.number == one.number):
            self.wrong.append(f"{one} takes an item from a worker that has it")
        handed = sum(1 for each in self.handed if each.number == one.number)
        if one.deliveries < handed:
            self.wrong.append(f"{one} tells of {one.deliveries} deliveries of {handed}")
        failed = sum(1 for each in self.failed if each.number == one.number)
        if one.failures > failed:
            self.wrong.append(f"{one} tells of {one.failures} failures of {failed}")
        before.append(one)
        self.open[one] = claim
        self.sessions[one.token] = workers[claim].session

    def goes_on(self, token: int) -> bool:
        """Whether the worker with this token has neither ended nor been removed."""
        return token in self.sessions and self.lives(self.sessions[token])

    def _ack(self, number: int, deleted: set[str]) -> None:
        one = self.claims[number][-1]
        if f"{LAYOUT.claims}{one}" not in deleted or number in self.acked:
            self.wrong.append(f"item {number} is acknowledged by another claim than {one}")
        if one not in self.offered:
            self.wrong.append(f"{one} is acknowledged, and nobody has said so")
        self.acked[number] = one

    @property
    def dead(self) -> dict[int, Entry]:
        """The items that nobody takes any more."""
        entries = map(Entry.parse, self._service.names(LAYOUT.dead))
        return {entry.number: entry for entry in entries}

    @property
    def left(self) -> set[int]:
        """The items that are neither acknowledged nor dead."""
        return set(self.numbers.values()) - set(self.acked) - self.dead.keys()


@dataclass(eq=False)
class Work:
    """An item in the hands of a process."""

    party: Party
    item: Item
    word: str
    #: The saying of it, from its beginning on.
    call: Call[Any] | None = None

    @property
    def claim(self) -> Entry:
        return self.item._claimed.entry


class Working(BadDayForData):
    """Four processes that put items, take them, and acknowledge them, or give them back.

    After every single event: no item was put twice, or acknowledged twice; none was taken from a
    worker that has it; tokens grow. No two hold the same item. What a worker is told of its item is
    so.

    In the end: every item that was put is acknowledged, or has failed as often as it may, and is
    dead. Only workers that said so, or ended at work, count as failures.
    """

    overtaken: ClassVar[str] = LAYOUT.workers

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(self.world.service)
        self.ledger.lives = self.lives
        self.puts: list[tuple[bytes, Call[str]]] = []
        self.takes: list[tuple[Plan, Call[Any]]] = []
        self.work: list[Work] = []
        # What is delayed is so by the time of day.
        self.time_of_day = ExitStack()
        for module in (consumer, layout, producer):
            clock = SimpleNamespace(time=self.world.time.now)
            self.time_of_day.enter_context(patch.object(module, "time", clock))

    def teardown(self) -> None:
        with self.time_of_day:
            super().teardown()

    def lives(self, session: str) -> bool:
        """Whether a process still counts on its ``session``."""
        known = (one for party in self.world.parties for one in party.engine.sessions.known)
        return any(one.id == session and one.ended is None for one in known)

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
            "ack": one.item._ack,
            "nack": one.item._nack,
            "later": lambda: one.item._nack(5.0),
            "release": one.item._release,
        }
        if one.word == "ack":
            self.ledger.offered.add(one.claim)
        elif one.word in ("nack", "later"):
            self.ledger.failed.add(one.claim)
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
                self.ledger.handed.add(work.claim)
                self.say_later(work, plan.pause)
            else:
                assert isinstance(call.error, (*HONEST, *NOTHING)), call.error
        for one in self.work:
            if one.call is not None and one.call.done:
                self.hear(one, one.call.error)
        self.work = [one for one in self.work if one.call is None or not one.call.done]
        for token in self.removed:
            self.ledger.sessions.pop(token, None)
        assert self.ledger.wrong == []
        # Who stands still does not know what he believes.
        believed = [
            one.item.id
            for one in self.work
            if not (one.call or one.party.paused or one.item._first_token in self.removed)
            and trusts(one.item)
        ]
        assert len(set(believed)) == len(believed), "two hold the same item"

    def hear(self, one: Work, error: BaseException | None) -> None:
        """A worker is answered."""
        if error is None:
            was_acked = self.ledger.acked.get(one.claim.number) == one.claim
            assert was_acked == (one.word == "ack"), "told what is not so"
            assert one.claim not in self.ledger.open or one.word == "release"
        elif isinstance(error, BackendUnavailable):
            self.say_later(one, 1.0)  # again, which is safe
        else:
            assert isinstance(error, LockLost), error
            one.party.run(one.item._release())  # as the end of a block does

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
        for dead in self.ledger.dead.values():
            assert dead.failures >= ATTEMPTS, f"{dead} is dead too early"
        for data, put in self.puts:
            assert put.done
            if put.error is None:
                assert str(self.ledger.numbers[data]) == put.result
            elif isinstance(put.error, BackendUnavailable) and "may" not in put.error.reason:
                assert data not in self.ledger.numbers, "put, and said not to be"
            else:
                assert isinstance(put.error, HONEST), put.error


def queue_of(party: Party) -> WorkQueue:
    return WorkQueue(party.access, "q", max_failures=ATTEMPTS)
