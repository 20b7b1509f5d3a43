"""Mistakes in jobs: with the records of slots, with the floor below them, and with clocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from coordlock.backend import Operation
from coordlock.jobs import run
from coordlock.jobs.job import _BaseJob
from coordlock.jobs.ledger import Ledger, Policy, Rules, SlotInfo, State
from coordlock.jobs.run import _BaseJobRun
from coordlock.jobs.view import record_of
from coordlock.runtime.driver import Steps
from tests.mutants.mutant import Changes, mutant
from tests.simulation.scheduling import Scheduling


@mutant("A start at most once is recorded after the work.", simulated=(Scheduling,))
def records_the_start_after_the_work() -> Changes:
    record_start, settle = _BaseJobRun._record_start, _BaseJobRun._settle

    def look(self: _BaseJobRun) -> Steps[float]:
        if self._rules.policy is Policy.AT_LEAST_ONCE:
            return (yield from record_start(self))
        self._ledger = yield from self._record.read()
        run.refuse(self.name, self._ledger, self.slot, self._rules)
        return 0.0

    def both(
        self: _BaseJobRun, state: State, error: str | None, also: Sequence[Operation]
    ) -> Steps[None]:
        yield from record_start(self)
        yield from settle(self, state, error, also)

    return [(_BaseJobRun, "_record_start", look), (_BaseJobRun, "_settle", both)]


@mutant("Who finishes late writes over what its successor wrote.", simulated=(Scheduling,))
def finishes_without_a_guard() -> Changes:
    settle = _BaseJobRun._settle

    def write_over(
        self: _BaseJobRun, state: State, error: str | None, also: Sequence[Operation]
    ) -> Steps[None]:
        self._record = record_of(self._engine, self.name)
        self._ledger = yield from self._record.read()
        yield from settle(self, state, error, also)

    def anybodys(self: _BaseJobRun) -> SlotInfo | None:
        record = self._ledger.records.get(self.slot)
        is_mine = record is not None and record.token == self._first_token
        return record if self.attempt or is_mine else None

    return [(_BaseJobRun, "_settle", write_over), (_BaseJobRun, "_mine", property(anybodys))]


@mutant("A slot that is unfinished is forgotten.", simulated=(Scheduling,))
def trims_what_is_unfinished() -> Changes:
    with_record = Ledger.with_record

    def trim(self: Ledger, record: SlotInfo, at: datetime, rules: Rules) -> Ledger:
        return with_record(self, record, at, replace(rules, max_attempts=0))

    return [(Ledger, "with_record", trim)]


@mutant(
    "A start whose answer was lost is taken for another one's.", simulated=(Scheduling,), rare=True
)
def does_not_know_its_own_start() -> Changes:
    refuse = run.refuse

    def start(self: _BaseJobRun) -> Steps[float]:
        while True:
            self._ledger = yield from self._record.read()
            refuse(self.name, self._ledger, self.slot, self._rules)
            owner = str(self._ticket.entries[0].owner)
            started = self._ledger.started(
                self.slot, owner, self._first_token, self._now(), self._rules
            )
            if (yield from self._record.write(started.encode())):
                self._ledger = started
                self.attempt = started.records[self.slot].attempts
                return 0.0

    return [(_BaseJobRun, "_record_start", start)]


@mutant("A slot that has left the history runs again.", simulated=(Scheduling,))
def does_not_look_at_the_floor() -> Changes:
    return [(Ledger, "is_passed", lambda *_: False)]


@mutant("The floor rises into the future.", simulated=(Scheduling,))
def trims_what_is_yet_to_come() -> Changes:
    with_record = Ledger.with_record

    def trim(self: Ledger, record: SlotInfo, at: datetime, rules: Rules) -> Ledger:
        return with_record(self, record, at + timedelta(hours=1), rules)

    return [(Ledger, "with_record", trim)]


@mutant("The floor passes slots that are yet to be made up for.", simulated=(Scheduling,))
def trims_past_what_is_owed() -> Changes:
    with_record = Ledger.with_record

    def trim(self: Ledger, record: SlotInfo, at: datetime, rules: Rules) -> Ledger:
        return with_record(self, record, at, replace(rules, makes_up=False))

    return [(Ledger, "with_record", trim)]


@mutant("A host with a fast clock starts what is far ahead.", simulated=(Scheduling,))
def lets_the_future_in() -> Changes:
    return [(_BaseJob, "_most_ahead", lambda *_: math.inf)]
