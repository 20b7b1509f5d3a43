"""A job on a bad day: hosts whose clocks are wrong, and what the service keeps of its slots."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from coordlock.backend import Operation, Put, Written
from coordlock.errors import (
    AlreadyDone,
    AlreadyFailed,
    BackendUnavailable,
    ConfigurationError,
    JobNotRun,
    LockLost,
)
from coordlock.jobs import job, ledger
from coordlock.jobs.job import Job
from coordlock.jobs.ledger import Ledger, Policy, Rules, SlotInfo, State
from coordlock.jobs.run import JobRun
from coordlock.jobs.schedule import Every, latest
from coordlock.jobs.slots import Slot
from coordlock.jobs.view import queue_of
from coordlock.model.contender import Contender
from coordlock.runtime.clock import sleep
from coordlock.runtime.driver import Steps
from tests.simulation.bad_day import HONEST, PARTIES, BadDayForData, delays, indices
from tests.simulation.world import TTL, Call, Party

__all__ = ["Scheduling"]

LEAST = Policy.AT_LEAST_ONCE
MANY = 10_000
RULES = Rules(LEAST, MANY)
KEY = "/coordlock/@jobs/j"
MINUTE = timedelta(minutes=1)
#: When the day begins, by the service's clock. The simulation's own begins at 0.
DAWN = datetime(2026, 11, 22, 12, tzinfo=UTC)
#: How far a slot may lie ahead, in seconds.
AHEAD = 180.0
#: By how many seconds the clocks of hosts are wrong.
WRONG = st.sampled_from([0.0, 0.0, 20.0, -20.0, 110.0, -110.0, 3600.0, -3600.0, 1e8])


@dataclass(frozen=True)
class Plan:
    """Who starts what the schedule says, or the slot so many minutes from now, and how it ends."""

    who: int
    policy: Policy = LEAST
    minutes: int | None = None
    pause: float = 0.0
    end: str = "done"
    catch_up: str = "latest"


plans = st.builds(
    Plan,
    who=indices,
    policy=st.sampled_from(Policy),
    minutes=st.sampled_from([None, None, -2, -1, 0, 1, 2]),
    pause=st.sampled_from([0.0, 0.0, 0.3, 3.0, 20.0]),
    end=st.sampled_from(["done", "done", "failed", "finish"]),
    catch_up=st.sampled_from(["latest", "latest", "all"]),
)


class Kept:
    """What the service has kept of the job, and what is wrong with that."""

    def __init__(self, service: Any) -> None:
        self.wrong: list[str] = []
        self.ledger = Ledger()
        #: The policies by which each slot was recorded as started.
        self.starts: defaultdict[Slot, list[Policy]] = defaultdict(list)
        self.done: set[Slot] = set()
        #: How often the effect of each slot was written.
        self.effects: defaultdict[str, int] = defaultdict(int)
        self._service = service
        self._write = service.write
        service.write = self.write

    @property
    def owed(self) -> set[Slot]:
        """The slots that were started at least once, and are not done."""
        begun = {slot for slot, starts in self.starts.items() if starts[0] is LEAST}
        return begun - self.done

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Written:
        """The service's, which is looked at here."""
        written: Written = self._write(operations, guards)
        puts = {one.key: one.data for one in operations if isinstance(one, Put)}
        for key in puts:
            if key.startswith("/effects/"):
                self.effects[key] += 1
        if KEY in puts:
            before, self.ledger = self.ledger, Ledger.parse(json.loads(puts[KEY]))
            [token] = [one.token for one in guards] or [None]
            self._compare(before, token)
        return written

    def _compare(self, before: Ledger, token: int | None) -> None:
        now = datetime.fromtimestamp(self._service.time(), UTC)
        for slot in sorted({*before.records, *self.ledger.records}):
            was, one = before.records.get(slot), self.ledger.records.get(slot)
            if one is None:
                if self.ledger.refusal(slot, RULES) != "passed":
                    self.wrong.append(f"{slot} is forgotten")
            elif one != was:
                self._changed(slot, was, one, token)
                if was is None and before.is_passed(slot):
                    self.wrong.append(f"{slot} was passed, and has a record")
        floor = self.ledger.floor
        if floor is not None:
            if floor > now:  # type: ignore[operator]
                self.wrong.append(f"the floor {floor} is in the future")
            if before.floor is not None and floor < before.floor:  # type: ignore[operator]
                self.wrong.append("the floor sinks")
        self._look_for_passed(before)
        for slot in self.owed:
            if self.ledger.refusal(slot, RULES) is not None:
                self.wrong.append(f"{slot} is not done, and is refused")

    def _look_for_passed(self, before: Ledger) -> None:
        """Whether a start that makes up for all slots has let the floor pass one of them."""
        changed = [
            one for one in self.ledger.records.values() if one not in before.records.values()
        ]
        makes_up = any(one.owner.endswith(" all") for one in changed)
        lowest, floor = before.lowest, self.ledger.floor
        if makes_up and floor is not None and floor != before.floor:
            records = {**before.records, **{record.slot: record for record in changed}}
            owed = next(Ledger(before.floor, records).missing(Every("1m")))
            if lowest is not None and owed <= floor:  # type: ignore[operator]
                self.wrong.append(f"{owed} is passed, and was to be made up for")

    def _changed(self, slot: Slot, was: SlotInfo | None, one: SlotInfo, by: int | None) -> None:
        match one.state:
            case State.RUNNING:
                self.starts[slot].append(one.policy)
                if slot.timestamp() > self._service.time() + AHEAD:  # type: ignore[union-attr]
                    self.wrong.append(f"{slot} is started far too early")
                if one.token != by or one.attempts != len(self.starts[slot]):
                    self.wrong.append(f"{slot} is started by another one")
                if len(self.starts[slot]) > 1 and set(self.starts[slot]) != {LEAST}:
                    self.wrong.append(f"{slot} is started again")
                if slot in self.done:
                    self.wrong.append(f"{slot} is started, and was done")
            case _:
                is_mine = one.token == by
                if (
                    was is None
                    or was.state is not State.RUNNING
                    or was.token != one.token
                    or is_mine is (one.state is State.INTERRUPTED)
                ):
                    self.wrong.append(f"{slot} is ended by another one than has started it")
                if one.state is State.DONE:
                    self.done.add(slot)


class Scheduling(BadDayForData):
    """Four processes that run slots of a job under both policies, with clocks that are wrong.

    After every single event: no slot has a second start, unless both were at least once and the
    first came to no end; nothing that is done changes; only the holder that started a
    slot records its end; what is unfinished is never refused; the floor never sinks, or lies in
    the future.

    In the end: what was begun at least once is done, and the present has its turn.
    """

    overtaken: ClassVar[str] = queue_of("j")

    def __init__(self) -> None:
        super().__init__()
        self.wrong_by: list[float] = []
        self.calls: list[Call[None]] = []
        #: Those of processes that were killed, which never go on.
        self.dead: list[Call[None]] = []
        #: The bodies that have run, and those whose runs said that they are done.
        self.bodies: defaultdict[Slot, list[Policy]] = defaultdict(list)
        self.told: set[Slot] = set()
        #: Whether a call was refused because of a start that it has made itself.
        self.refused_own = False
        self.numbers = itertools.count()
        #: What becomes of missed slots on this day; None where each start says so.
        self.catch_up: str | None = None
        self.world.service.time = lambda: DAWN.timestamp() + self.world.time.now()
        self.kept = Kept(self.world.service)
        self.host = 0
        self.clocks = ExitStack()
        for owner, name, replacement in (
            (job, "time", SimpleNamespace(time=self.clock)),
            (ledger, "KEPT", 2),
            (job, "interval_after", lambda *_: timedelta(seconds=AHEAD)),
        ):
            self.clocks.enter_context(patch.object(owner, name, replacement))

    @initialize(catch_up=st.sampled_from([None, "all"]))
    def connect(self, catch_up: str | None = None) -> None:
        """On some days all make up for what they have missed."""
        super().connect()
        self.catch_up = catch_up
        self.wrong_by = [0.0] * PARTIES

    def teardown(self) -> None:
        with self.clocks:
            super().teardown()

    def clock(self) -> float:
        """What the host says that asks now."""
        return self.world.service.time() + self.wrong_by[self.host]

    # What the processes do

    @rule(crowd=st.lists(plans, min_size=1, max_size=4), seconds=delays)
    def work(self, crowd: list[Plan], seconds: float) -> None:
        for plan in crowd:
            self.begin(plan)
        self.world.advance(seconds)

    @rule(minutes=st.integers(1, 4))
    def sleep(self, minutes: int) -> None:
        self.world.advance(60.0 * minutes)

    @rule(who=indices, seconds=WRONG)
    def jump(self, who: int, seconds: float) -> None:
        """The clock of a host goes wrong, or right again."""
        self.wrong_by[who % PARTIES] = seconds

    @rule(who=indices)
    def kill(self, who: int) -> None:
        """What was begun stands still for ever; another process takes its place."""
        party = self.pick(who)
        if party.engine.tickets:
            party.pause()
            self.dead += [call for call in self.calls if call._party is party]
            self.calls = [call for call in self.calls if call._party is not party]
            self.world.party(TTL, network=self.network)
            parties = self.world.parties
            parties[parties.index(party)] = parties.pop()

    @rule(which=indices)
    def give_up(self, which: int) -> None:
        under_way = [call for call in self.calls if not call.done]
        if under_way:
            under_way[which % len(under_way)].cancel()

    def begin(self, plan: Plan) -> None:
        party = self.pick(plan.who)
        if not party.paused and sum(not call.done for call in self.calls) < 10:
            self.calls.append(party.run(self.working(party, plan)))

    def working(self, party: Party, plan: Plan) -> Steps[None]:
        """What `coordlock run` does, and what a program does that computes the slot."""
        overlap: Any = "queue" if plan.pause else "skip"
        mine: Any = Job(
            party.access,
            "j",
            policy=plan.policy.value,
            overlap=overlap,
            schedule=Every("1m"),
            catch_up=(catch_up := self.catch_up or plan.catch_up),  # type: ignore[arg-type]
            max_attempts=MANY,
            retry_delay=1,
            timeout=60.0,
            label=(label := f"call {next(self.numbers)} {catch_up}"),
        )
        self.host = self.world.parties.index(party)
        if plan.minutes is None:
            due = yield from mine._due()
        else:
            due = [latest(Every("1m"), self.clock()) + plan.minutes * MINUTE]
        for slot in due:
            try:
                run: JobRun = yield from mine._begin(slot)
            except JobNotRun as refused:
                is_own = isinstance(
                    refused, AlreadyDone | AlreadyFailed
                ) and refused.owner.endswith(label)
                self.refused_own |= is_own and slot not in self.bodies
                continue
            except ConfigurationError:
                return
            yield from self.running(party, run, plan)

    def running(self, party: Party, run: JobRun, plan: Plan) -> Steps[None]:
        """The body of a run, and its end."""
        self.bodies[run.slot].append(plan.policy)
        error = ArithmeticError("it has failed") if plan.end == "failed" else None
        try:
            yield sleep(party.process, plan.pause)
            if plan.end == "finish":
                effect = run.finish().put(f"/effects/{run.slot:%H%M}", b"")
                yield from effect._commit()
            yield from run._leave(error)
            self.told |= set() if error else {run.slot}
        except ArithmeticError:
            pass
        except (LockLost, BackendUnavailable) as gone:
            yield from self.left(run, gone)
        except BaseException:  # it gives up
            run._withdraw()
            raise

    def left(self, run: JobRun, error: Exception) -> Steps[None]:
        """The block ends with ``error``, as where a commit has raised it."""
        with suppress(LockLost, BackendUnavailable):
            yield from run._leave(error)

    # What must hold

    def check(self) -> None:
        assert self.kept.wrong == []
        for slot, bodies in self.bodies.items():
            assert len(bodies) == 1 or set(bodies) == {LEAST}, f"{slot} has run twice"
            assert len(bodies) <= len(self.kept.starts[slot]), f"{slot} has run unrecorded"
        assert self.told <= self.kept.done, "told what is not so"
        assert not self.refused_own, "refused because of its own start"
        assert all(number == 1 for number in self.kept.effects.values()), "an effect came twice"

    def get_over(self) -> None:
        self.wrong_by = [0.0] * PARTIES
        self.world.advance(300.0)  # late requests, too
        present = latest(Every("1m"), self.world.service.time())
        for _ in range(60):
            for who in range(PARTIES):
                self.begin(Plan(who, pause=0.1))
            self.world.advance(20.0)
            if not self.kept.owed and present in {*self.kept.starts}:
                break
        self.world.advance(300.0)
        for call in self.calls:
            assert call.done
            assert call.error is None or isinstance(call.error, HONEST), call.error
        self.check()
        assert not self.kept.owed, "a slot is lost"
        assert present in self.kept.starts, "the present was pushed out"
