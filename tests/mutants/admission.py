"""Mistakes in granting: of the contender itself, of departures, of the rule."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import coordlock.kernel.acquisition
import coordlock.model.admission
import coordlock.model.handover
import coordlock.runtime.driver
from coordlock.backend import Departure
from coordlock.backend.waiting import Waiting
from coordlock.errors import Evicted
from coordlock.kernel.acquisition import _Acquisition
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.admission import blockers
from coordlock.model.claim import Mode, Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.deadline import Deadline
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, all_of, resolved
from tests.mutants.mutant import Changes, mutant, nothing
from tests.simulation.contention import (
    Contention,
    Informed,
    Knowing,
    Modes,
    Readers,
    Several,
    SeveralDoubts,
    TwoPermits,
)

Blockers = tuple[Contender, ...]
Queues = tuple[Snapshot, ...]


# The own contender.


def _read_without_a_look(
    self: _Acquisition, ticket: Ticket, *, conflicting: bool = False
) -> Steps[Queues]:
    def read() -> Promise[Queues]:
        return ticket.unless_lost(ticket.waiting.read(conflicting=conflicting))

    return (yield from retried(read, self.engine.timers))


@mutant("A waiter is granted the lock in a session that has ended.", simulated=(Contention,))
def skips_the_final_look() -> Changes:
    return [(Ticket, "check", nothing)]


@mutant("A queue that its contender has left makes it the holder.", simulated=(Contention,))
def reads_a_queue_without_its_own_contender() -> Changes:
    return [(_Acquisition, "_read", _read_without_a_look)]


# Departures.


def _nobody_is_left(queues: Queues, mine: Sequence[Contender], _: object) -> Queues:
    pairs = zip(queues, mine, strict=True)
    return tuple(replace(queue, contenders=(me,), omitted=0) for queue, me in pairs)


@mutant(
    "A waiter is granted the lock beside its holder, when another waiter has given up.",
    simulated=(TwoPermits,),
)
def takes_any_departure_for_its_turn() -> Changes:
    return [(coordlock.kernel.acquisition, "after", _nobody_is_left)]


@mutant(
    "A waiter is never told that its turn has come.",
    "tests/unit/kernel/test_acquisition.py::test_the_second_in_line_is_granted_without_a_read",
)
def misses_some_departures() -> Changes:
    """The first one, and every third one after that."""
    depart, missed = Waiting._departed, itertools.cycle((True, False, False))

    def depart_sometimes(self: Waiting, contender: Contender, departure: Departure) -> None:
        if not next(missed):
            depart(self, contender, departure)

    return [(Waiting, "_departed", depart_sometimes)]


@mutant(
    "A waiter is granted the lock beside its holder, when the one between them gives up.",
    simulated=(Informed,),
)
def takes_all_that_depart_for_holders() -> Changes:
    def known(self: Knowing, contender: Contender, departure: Departure) -> Departure:
        return Departure.FIRST if departure is Departure.IN_ORDER else departure

    return [(Knowing, "known", known)]


@mutant(
    "A waiter is granted the lock, though the session that ended was its own, too.",
    simulated=(Contention,),
)
def trusts_the_order_in_which_a_session_ends() -> Changes:
    def proved(
        self: _Acquisition, one: Contender, departure: Departure, ticket: Ticket
    ) -> Steps[Departure]:
        yield resolved(None)
        return departure

    return [(_Acquisition, "_proved", proved)]


@mutant(
    "A predecessor of the same client leaves the lock to the next, though it never held it.",
    simulated=(Contention, TwoPermits),
)
def takes_over_from_what_gave_up() -> Changes:
    proved = _Acquisition._proved

    def proved_holder(
        self: _Acquisition, one: Contender, departure: Departure, ticket: Ticket
    ) -> Steps[Departure]:
        departure = yield from proved(self, one, departure, ticket)
        is_own = self.own.get(one) is not None and departure is Departure.IN_ORDER
        return Departure.FIRST if is_own else departure

    return [(_Acquisition, "_proved", proved_holder)]


@mutant(
    "A reader leaves the lock to a writer, while other readers hold it.",
    simulated=(Modes,),
)
def takes_over_from_any_mode() -> Changes:
    def leaves_to(holder: Contender, me: Contender, left: Snapshot) -> bool:
        return True

    return [(coordlock.model.handover, "_leaves_to", leaves_to)]


# Several locks at once.


@mutant("Of several locks the last is taken, though it is held.", simulated=(Several,))
def looks_at_all_queues_but_the_last() -> Changes:
    def careless(snapshot: Snapshot, me: Contender) -> Blockers:
        return () if snapshot.queue == "s" else blockers(snapshot, me)

    return [(coordlock.kernel.acquisition, "blockers", careless)]


@mutant("Several locks are granted to a waiter that has lost one place.", simulated=(Several,))
def looks_for_its_place_in_one_queue_only() -> Changes:
    def read_one(self: _Acquisition, ticket: Ticket, *, conflicting: bool = False) -> Steps[Queues]:
        first, *others = yield from _read_without_a_look(self, ticket, conflicting=conflicting)
        if first.find(ticket.entries[0].id) is None:
            raise Evicted(first.queue)
        mine = ticket.contenders[1:]
        pairs = zip(others, mine, strict=True)
        return (first, *(replace(queue, contenders=(me,), omitted=0) for queue, me in pairs))

    return [(_Acquisition, "_read", read_one), (Ticket, "removed_by_service", nothing)]


@mutant(
    "Several locks are granted to a waiter that has lost one place and has read another queue.",
    simulated=(SeveralDoubts,),
)
def takes_a_reading_of_one_queue_for_one_of_all() -> Changes:
    """What it reads settles the doubts about the queues that it does not read, too."""
    read, old = _Acquisition._read, coordlock.model.handover.after
    doubted: dict[str, Snapshot] = {}

    def after(
        queues: Queues, mine: Sequence[Contender], departures: Mapping[Contender, Departure]
    ) -> Queues | None:
        doubted.clear()
        if (left := old(queues, mine, departures)) is None:
            gone = departures.keys()
            doubted.update({one.queue: one for one in queues if gone.isdisjoint(one.contenders)})
        return left

    def read_those_that_changed(
        self: _Acquisition, ticket: Ticket, *, conflicting: bool = False
    ) -> Steps[Queues]:
        if conflicting or not doubted:
            return (yield from read(self, ticket, conflicting=conflicting))
        known = dict(doubted)
        pairs = [(one.queue, me) for one, me in zip(ticket.entries, ticket.contenders, strict=True)]

        def ask() -> Promise[Queues]:
            asked = [self.engine.backend.snapshot(*pair) for pair in pairs if pair[0] not in known]
            return ticket.unless_lost(all_of(asked))

        found = iter((yield from retried(ask, self.engine.timers)))
        queues = tuple(known.get(queue) or next(found) for queue, _ in pairs)
        for snapshot, me in zip(queues, ticket.contenders, strict=True):
            if snapshot.find(me.id) is None:
                raise Evicted(snapshot.queue)
        return queues

    return [
        (coordlock.kernel.acquisition, "after", after),
        (_Acquisition, "_read", read_those_that_changed),
    ]


# The rule.


@mutant(
    "A semaphore of two is held three times.",
    simulated=(TwoPermits,),
)
def gives_one_permit_too_many() -> Changes:
    def generous(snapshot: Snapshot, me: Contender) -> Blockers:
        if isinstance(me.claim, Permit):
            me = replace(me, claim=Permit(me.claim.of + 1))
        return blockers(snapshot, me)

    return [(coordlock.kernel.acquisition, "blockers", generous)]


@mutant(
    "A waiter does not hear of a permit that is free.",
    "tests/unit/kernel/test_acquisition.py::"
    "test_a_waiter_gets_the_permit_of_whichever_holder_leaves_first",
)
def waits_for_the_nearest_alone() -> Changes:
    def nearest(snapshot: Snapshot, me: Contender) -> Blockers:
        return blockers(snapshot, me)[-1:]

    return [(coordlock.kernel.acquisition, "blockers", nearest)]


@mutant(
    "A reader holds the lock together with a writer, or overtakes one.",
    simulated=(Readers,),
)
def lets_readers_pass_writers() -> Changes:
    rule = coordlock.model.admission.keeps_out

    def keeps_out(other: Contender, me: Contender) -> bool:
        return me.claim is not Mode.PR and rule(other, me)

    return [(coordlock.model.admission, "keeps_out", keeps_out)]


@mutant("A contender with the number 10 comes before one with 9.", simulated=(Contention,))
def compares_orders_as_texts() -> Changes:
    def textual(snapshot: Snapshot, me: Contender) -> Blockers:
        return tuple(one for one in snapshot.contenders if str(one.order) < str(me.order))[-1:]

    return [(coordlock.kernel.acquisition, "blockers", textual)]


# What it costs.


@mutant(
    "An acquire is two round trips.",
    "tests/integration/test_messages.py"
    "::test_an_uncontended_acquire_is_one_round_trip_and_a_release_is_one",
)
def looks_before_it_enqueues() -> Changes:
    enqueue = Ticket.enqueue

    def look_first(self: Ticket, *, unless_blocked: bool = False) -> Steps[Queues]:
        yield self._backend.snapshot(self.entries[0].queue)
        return (yield from enqueue(self, unless_blocked=unless_blocked))

    return [(Ticket, "enqueue", look_first)]


@mutant(
    "Each waiting task costs a thread.",
    "tests/integration/test_messages.py"
    "::test_a_lock_goes_through_a_crowd_of_one_client_without_reads_or_herds[etcd]",
)
def waits_in_a_thread() -> Changes:
    async def completion(promise: Promise[object], deadline: Deadline | None = None) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            await loop.run_in_executor(pool, coordlock.runtime.driver._wait, promise, deadline)

    return [(coordlock.runtime.driver, "completion", completion)]
