"""Mistakes in granting: of the contender itself, of departures, of the rule."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

from coordlock_faults.exclusion import HeldTogether
from coordlock_faults.fifo import NeverFirst, Overtaken
from coordlock_faults.liveness import Unanswered

import coordlock.kernel.acquisition
import coordlock.model.admission
from coordlock.errors import Evicted
from coordlock.kernel.acquisition import _Acquisition
from coordlock.kernel.departures import Departures
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.admission import blockers
from coordlock.model.claim import Mode, Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, all_of
from tests.faults.mutants import scenarios
from tests.mutants.mutant import Changes, Play, mutant, nothing
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
Queues = list[Snapshot]


# The own contender.


def _read_without_a_look(
    self: _Acquisition, ticket: Ticket, queues: Queues, *, whole: bool = False
) -> Steps[None]:
    ask = partial(self._ask, ticket, whole)
    queues[:] = yield from retried(ask, self.engine.timers)


@mutant(
    "A waiter that was evicted is granted the lock.",
    Play(scenarios.a_waiter_is_evicted, NeverFirst),
    simulated=(Contention,),
)
def grants_without_a_look_at_its_own_contender() -> Changes:
    return [
        (Ticket, "vanished", nothing),
        (Ticket, "check", nothing),
        (_Acquisition, "_read", _read_without_a_look),
    ]


@mutant("A waiter is granted the lock in a session that has ended.", simulated=(Contention,))
def skips_the_final_look() -> Changes:
    return [(Ticket, "check", nothing)]


@mutant("A queue that its contender has left makes it the holder.", simulated=(Contention,))
def reads_a_queue_without_its_own_contender() -> Changes:
    return [(_Acquisition, "_read", _read_without_a_look)]


# Departures.


def _wait_for_anything(
    self: _Acquisition, ticket: Ticket, queues: Queues, waiting_for: list[Blockers]
) -> Steps[None]:
    yield ticket.departure(queues, waiting_for)
    for number, me in enumerate(ticket.contenders):
        queues[number] = replace(queues[number], contenders=(me,), omitted=0)


@mutant(
    "A waiter is granted the lock beside its holder, when another waiter has given up.",
    Play(scenarios.one_in_the_middle_gives_up, HeldTogether),
    simulated=(TwoPermits,),
)
def takes_any_departure_for_its_turn() -> Changes:
    return [(_Acquisition, "_wait", _wait_for_anything)]


@mutant(
    "A waiter is never told that its turn has come.",
    Play(scenarios.the_first_of_two_leaves_a_semaphore, Unanswered),
)
def misses_some_departures() -> Changes:
    """The first one, and every third one after that."""
    depart, missed = Departures._depart, itertools.cycle((True, False, False))

    def depart_sometimes(self: Departures, contender: Contender, in_order: bool) -> None:
        if not next(missed):
            depart(self, contender, in_order)

    return [(Departures, "_depart", depart_sometimes)]


@mutant(
    "A waiter whose own departure is told late is granted the lock.",
    Play(scenarios.a_waiter_is_evicted_before_it_hears_of_anything, NeverFirst, ("etcd",)),
)
def takes_departures_for_ordered() -> Changes:
    depart = Departures._depart

    def depart_in_order(self: Departures, contender: Contender, _: bool) -> None:
        depart(self, contender, True)

    return [(Departures, "_depart", depart_in_order)]


@mutant(
    "A waiter is granted the lock beside its holder, when the one between them gives up.",
    simulated=(Informed,),
)
def takes_all_before_a_departed_one_for_departed() -> Changes:
    def all_before(self: Knowing, snapshot: Snapshot) -> Blockers:
        return snapshot.contenders[:-1]

    return [(Knowing, "departed", all_before)]


@mutant(
    "A waiter is granted the lock that left before the one ahead of its predecessor.",
    simulated=(Informed,),
    rare=True,
)
def knows_of_all_departures_but_its_own() -> Changes:
    departed = Knowing.departed

    def of_others(self: Knowing, snapshot: Snapshot) -> list[Contender]:
        return [one for one in departed(self, snapshot) if one != snapshot.contenders[-1]]

    return [(Knowing, "departed", of_others)]


def _wait_without_doubt(
    self: _Acquisition, ticket: Ticket, queues: Queues, waiting_for: list[Blockers]
) -> Steps[None]:
    yield ticket.departure(queues, waiting_for)
    assert ticket.departures is not None
    ticket.departures.reads()
    for number, me in enumerate(ticket.contenders):
        queues[number] = left = queues[number].without(ticket.departures.seen)
        if left.omitted or blockers(left, me):
            ticket.departures.doubt()


@mutant(
    "A waiter is granted the lock, though the session that ended was its own, too.",
    simulated=(Contention,),
)
def never_reads_again_in_doubt() -> Changes:
    return [(_Acquisition, "_wait", _wait_without_doubt)]


@mutant(
    "A predecessor of the same client leaves the lock to the next, though it never held it.",
    simulated=(Contention, TwoPermits),
)
def takes_over_from_what_gave_up() -> Changes:
    return [
        (
            coordlock.kernel.acquisition,
            "_hands_over",
            lambda predecessor, *_: predecessor is not None,
        )
    ]


@mutant(
    "A reader leaves the lock to a writer, while other readers hold it.",
    simulated=(Modes,),
)
def takes_over_from_any_mode() -> Changes:
    def hands_over(predecessor: Ticket | None, *_: Contender) -> bool:
        return predecessor is not None and predecessor.granted_at is not None

    return [(coordlock.kernel.acquisition, "_hands_over", hands_over)]


# Several locks at once.


@mutant("Of several locks the last is taken, though it is held.", simulated=(Several,))
def looks_at_all_queues_but_the_last() -> Changes:
    def careless(snapshot: Snapshot, me: Contender) -> Blockers:
        return () if snapshot.queue == "s" else blockers(snapshot, me)

    return [(coordlock.kernel.acquisition, "blockers", careless)]


@mutant("Several locks are granted to a waiter that has lost one place.", simulated=(Several,))
def looks_for_its_place_in_one_queue_only() -> Changes:
    def read_one(
        self: _Acquisition, ticket: Ticket, queues: Queues, *, whole: bool = False
    ) -> Steps[None]:
        ask = partial(self._ask, ticket, whole)
        snapshots = yield from retried(ask, self.engine.timers)
        queues[0] = snapshots[0]
        for number in range(1, len(queues)):
            left = queues[number].contenders[-1:]
            queues[number] = replace(queues[number], contenders=left, omitted=0)

    return [(_Acquisition, "_read", read_one), (Ticket, "vanished", nothing)]


@mutant(
    "Several locks are granted to a waiter that has lost one place and has read another queue.",
    simulated=(SeveralDoubts,),
)
def takes_a_reading_of_one_queue_for_one_of_all() -> Changes:
    """What it reads settles the doubts about the queues that it does not read, too."""
    read = _Acquisition._read

    def read_those_that_changed(
        self: _Acquisition, ticket: Ticket, queues: Queues, *, whole: bool = False
    ) -> Steps[None]:
        if whole or (departures := ticket.departures) is None:
            return (yield from read(self, ticket, queues, whole=whole))
        gone = departures.seen
        changed = [one for one, queue in enumerate(queues) if not gone.isdisjoint(queue.contenders)]

        def ask() -> Promise[tuple[Snapshot, ...]]:
            departures.reads()
            pairs = ((ticket.entries[one].queue, ticket.contenders[one]) for one in changed)
            asked = (self.engine.backend.snapshot(*pair) for pair in pairs)
            return ticket.unless_lost(all_of(asked))

        snapshots = yield from retried(ask, self.engine.timers)
        for number, snapshot in zip(changed, snapshots, strict=True):
            if snapshot.find(ticket.entries[number].id) is None:
                raise Evicted(snapshot.queue)
            queues[number] = snapshot
        return None

    return [(_Acquisition, "_read", read_those_that_changed)]


# The rule.


@mutant(
    "A semaphore of two is held three times.",
    Play(scenarios.a_semaphore_is_full, HeldTogether),
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
    Play(scenarios.the_first_of_two_leaves_a_semaphore, Unanswered),
)
def waits_for_the_nearest_alone() -> Changes:
    def nearest(snapshot: Snapshot, me: Contender) -> Blockers:
        return blockers(snapshot, me)[-1:]

    return [(coordlock.kernel.acquisition, "blockers", nearest)]


@mutant(
    "A reader holds the lock together with a writer, or overtakes one.",
    Play(scenarios.a_reader_comes_under_a_writer, HeldTogether),
    Play(scenarios.a_reader_comes_behind_a_writer_who_waits, Overtaken),
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
