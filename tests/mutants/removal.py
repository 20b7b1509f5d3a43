"""Mistakes in withdrawing contenders, and in sending them again."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from coordlock_faults.leaks import Leaked
from coordlock_faults.liveness import Unanswered
from coordlock_faults.release import FalselyHeld, FalselyLost

import coordlock.kernel.access
import coordlock.kernel.removal
import coordlock.kernel.tickets
from coordlock.kernel.ticket import Ticket
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.runtime.promise import Promise, resolved
from tests.faults.mutants import scenarios
from tests.mutants.mutant import Changes, Play, mutant, nothing
from tests.simulation.contention import Contention


@mutant("What was given up or released stays in the queue.", simulated=(Contention,))
def never_withdraws() -> Changes:
    def withdraw(self: Ticket) -> Promise[bool]:
        self._tickets.forget(self.entries)
        return resolved(False)

    return [(Ticket, "withdraw", withdraw)]


@mutant(
    "What was released during an outage stays in the queue.",
    Play(scenarios.a_release_finds_no_server, Leaked),
    simulated=(Contention,),
)
def withdraws_once() -> Changes:
    def give_up(self: Ticket, _: BaseException) -> None:
        self._answer(was_there=False)

    return [(Ticket, "_failed", give_up)]


@mutant(
    "A request that arrives after the removal leaves a contender that nothing removes.",
    Play(scenarios.a_create_arrives_late, Leaked, ("etcd",)),
    simulated=(Contention,),
    rare=True,
)
def never_looks_for_what_came_late() -> Changes:
    return [(coordlock.kernel.removal, "_CONFIRMATIONS_S", ())]


@mutant(
    "A closed client leaves contenders in a session that goes on.",
    Play(scenarios.a_visitor_leaves_during_an_outage, Unanswered, ("zookeeper",)),
)
def leaves_its_contenders_when_it_is_closed() -> Changes:
    return [(coordlock.kernel.access, "_must_stay", lambda _: False)]


@mutant(
    "A contender waits for its own lost attempt.",
    Play(scenarios.the_answer_to_a_create_is_lost, Unanswered),
    simulated=(Contention,),
)
def sends_again_under_another_id() -> Changes:
    send = Ticket._send

    def send_anew(self: Ticket, unless_blocked: bool) -> Any:
        if self._attempts:
            (entry,) = self.entries
            self.entries = (replace(entry, id=uuid.uuid4().hex),)
        return send(self, unless_blocked)

    return [(Ticket, "_send", send_anew)]


@mutant(
    "The lock stays taken, though its holder was told that it is lost.",
    Play(scenarios.heartbeats_find_no_leader, Unanswered, ("zookeeper",)),
)
def keeps_its_place_when_it_counts_as_lost() -> Changes:
    return [(coordlock.kernel.tickets, "_withdraw", nothing)]


@mutant(
    "A release says that the lock was held, when another holder has it.",
    Play(scenarios.a_holder_is_evicted_and_releases, FalselyHeld),
)
def says_held_whatever_has_happened() -> Changes:
    def held_anyway(self: Grant | AsyncGrant, timeout: float | None = None) -> Steps[bool]:
        yield from self._release(timeout)
        return True

    return [
        (Ticket, "vanished", nothing),
        (Grant, "release", blocking(held_anyway)),
        (AsyncGrant, "release", awaiting(held_anyway)),
    ]


@mutant(
    "A release says that the lock was lost, which was held to the end.",
    Play(scenarios.a_semaphore_is_full, FalselyLost),
)
def takes_its_own_removal_for_another_ones() -> Changes:
    removed = Ticket._removed

    def find_nothing(self: Ticket, *, was_there: bool) -> None:
        self.found_nothing = True
        self.withdrawn.resolve(False)
        removed(self, was_there=was_there)

    return [(Ticket, "_removed", find_nothing)]
