"""Mistakes in withdrawing contenders, and in sending them again."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import coordlock.kernel.access
import coordlock.kernel.removal
import coordlock.kernel.tickets
from coordlock.kernel.ticket import Ticket
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.promise import Promise, resolved
from tests.mutants.mutant import SUITES, Changes, mutant, nothing
from tests.simulation.contention import Contention


@mutant("What was given up or released stays in the queue.", simulated=(Contention,))
def never_withdraws() -> Changes:
    def withdraw(self: Ticket) -> Promise[bool]:
        self._tickets.forget(self)
        return resolved(False)

    return [(Ticket, "withdraw", withdraw)]


@mutant(
    "What was released during an outage stays in the queue.",
    simulated=(Contention,),
)
def withdraws_once() -> Changes:
    def give_up(self: Ticket, _: BaseException) -> None:
        self._answer(was_there=False)

    return [(Ticket, "_failed", give_up)]


@mutant(
    "A request that arrives after the removal leaves a contender that nothing removes.",
    simulated=(Contention,),
    rare=True,
)
def never_looks_for_what_came_late() -> Changes:
    return [(coordlock.kernel.removal, "_CONFIRMATIONS_S", ())]


@mutant(
    "A closed client leaves contenders in a session that goes on.",
    "tests/integration/zookeeper/test_given_client.py::test_what_closing_could_not_remove_in_an_outage_is_removed_after_it",
)
def leaves_its_contenders_when_it_is_closed() -> Changes:
    return [(coordlock.kernel.access, "_must_stay", lambda _: False)]


@mutant(
    "A contender waits for its own lost attempt.",
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
    "tests/unit/kernel/test_acquisition_losses.py::test_a_lock_that_was_lost_at_its_deadline_is_free_though_the_session_lives_on",
)
def keeps_its_place_when_it_counts_as_lost() -> Changes:
    return [(coordlock.kernel.tickets, "_withdraw", nothing)]


@mutant(
    "A release says that the lock was held, when another holder has it.",
    SUITES + "TestLockOnMemory::test_an_evicted_holder_is_told",
)
def says_held_whatever_has_happened() -> Changes:
    def held_anyway(self: Grant | AsyncGrant, timeout: float | None = None) -> Steps[bool]:
        yield from self._release(timeout)
        return True

    return [
        (Ticket, "removed_by_service", nothing),
        (Grant, "release", blocking(held_anyway)),
        (AsyncGrant, "release", awaiting(held_anyway)),
    ]


@mutant(
    "A release says that the lock was lost, which was held to the end.",
    SUITES + "TestLockOnMemory::test_a_free_lock_is_granted_with_a_token",
)
def takes_its_own_removal_for_another_ones() -> Changes:
    removed = Ticket._removed

    def find_nothing(self: Ticket, *, was_there: bool) -> None:
        self.found_nothing = True
        self.withdrawn.resolve(False)
        removed(self, was_there=was_there)

    return [(Ticket, "_removed", find_nothing)]


@mutant(
    "What a signal handler struck stays in the queue.",
    "tests/unit/test_interrupts.py"
    "::test_wherever_a_signal_handler_raises_the_lock_is_free_at_the_next_sweep[memory-23-acquire]",
)
def never_sweeps() -> Changes:
    return [(coordlock.kernel.tickets.Tickets, "sweep", nothing)]
