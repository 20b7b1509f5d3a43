"""Kernels with one thing wrong: mistakes that clients of lock services are known for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

import pytest

from coordlock.errors import BackendUnavailable
from coordlock.kernel import acquisition, removal
from coordlock.kernel.acquisition import _Acquisition
from coordlock.kernel.link import Link
from coordlock.kernel.removal import Removal, Removed
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.kernel.ticket import Ticket
from coordlock.model.admission import blockers
from coordlock.model.claim import Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from tests.simulation.contention import Contention, Modes, Readers, TwoPermits

__all__ = ["MUTANTS", "Mutant"]

Patch = pytest.MonkeyPatch
Blockers = tuple[Contender, ...]


@dataclass(frozen=True)
class Mutant:
    """``change`` breaks the kernel; on bad days with this ``kind`` of lock that must be seen."""

    change: Callable[[Patch], None]
    kind: type[Contention]


MUTANTS: Final[dict[str, Mutant]] = {}


def mutant(kind: type[Contention] = Contention) -> Callable[[Callable[[Patch], None]], None]:
    def enter(change: Callable[[Patch], None]) -> None:
        MUTANTS[change.__name__.replace("_", " ")] = Mutant(change, kind)

    return enter


# The grant


@mutant()
def the_final_look_is_skipped(patch: Patch) -> None:
    patch.setattr(Ticket, "check", lambda self: None)


@mutant()
def a_queue_will_do_in_which_the_own_contender_is_not(patch: Patch) -> None:
    def read(self: _Acquisition, ticket: Ticket, upto: Contender | None) -> Steps[Snapshot]:
        ask = lambda: ticket.unless_lost(self.link.backend.snapshot(self.queue, upto))  # noqa: E731
        return (yield from retried(ask, self.link.timers))

    patch.setattr(_Acquisition, "_read", read)


@mutant()
def departures_are_believed_in_any_order(patch: Patch) -> None:
    def wait(
        self: _Acquisition, ticket: Ticket, me: Contender, snapshot: Snapshot, waiting_for: Blockers
    ) -> Steps[Snapshot]:
        yield ticket.departure(waiting_for, snapshot.revision)
        assert ticket.departures is not None
        snapshot = snapshot.without(ticket.departures.seen)
        if snapshot.omitted or blockers(snapshot, me):
            return (yield from self._read(ticket, me))
        return snapshot

    patch.setattr(_Acquisition, "_wait", wait)


@mutant(TwoPermits)
def any_departure_is_a_grant(patch: Patch) -> None:
    def wait(
        self: _Acquisition, ticket: Ticket, me: Contender, snapshot: Snapshot, waiting_for: Blockers
    ) -> Steps[Snapshot]:
        yield ticket.departure(waiting_for, snapshot.revision)
        return replace(snapshot, contenders=(me,), omitted=0)

    patch.setattr(_Acquisition, "_wait", wait)


@mutant()
def a_predecessor_of_the_own_client_hands_over_even_when_it_gives_up(patch: Patch) -> None:
    patch.setattr(acquisition, "_hands_over", lambda predecessor, *_: predecessor is not None)


@mutant(Modes)
def a_predecessor_in_any_mode_hands_over(patch: Patch) -> None:
    def wrong(predecessor: Ticket | None, nearest: Contender, me: Contender) -> bool:
        return predecessor is not None and predecessor.granted is not None

    patch.setattr(acquisition, "_hands_over", wrong)


@mutant(TwoPermits)
def a_permit_that_gives_up_hands_over(patch: Patch) -> None:
    patch.setattr(acquisition, "_hands_over", lambda predecessor, *_: predecessor is not None)


@mutant(TwoPermits)
def there_is_one_permit_too_many(patch: Patch) -> None:
    def wrong(snapshot: Snapshot, me: Contender) -> Blockers:
        earlier = snapshot.before(me)
        assert isinstance(me.claim, Permit)
        return earlier[-me.claim.of :] if len(earlier) > me.claim.of else ()

    patch.setattr(acquisition, "blockers", wrong)


@mutant()
def numbers_are_compared_as_texts(patch: Patch) -> None:
    def wrong(snapshot: Snapshot, me: Contender) -> Blockers:
        return tuple(one for one in snapshot.contenders if str(one.order) < str(me.order))[-1:]

    patch.setattr(acquisition, "blockers", wrong)


@mutant(Readers)
def readers_wait_for_nobody(patch: Patch) -> None:
    def wrong(snapshot: Snapshot, me: Contender) -> Blockers:
        return () if me.claim.marker == "rlock" else blockers(snapshot, me)

    patch.setattr(acquisition, "blockers", wrong)


# The way out


@mutant()
def nobody_withdraws(patch: Patch) -> None:
    def withdraw(self: Ticket) -> Promise[bool]:
        promise: Promise[bool] = Promise()
        promise.resolve(False)
        self._on_gone(self)
        return promise

    patch.setattr(Ticket, "withdraw", withdraw)


@mutant()
def a_withdrawal_is_not_tried_again(patch: Patch) -> None:
    def steps(self: Removal) -> Steps[Removed]:
        try:
            was_there: bool = yield self._ask()
        except BackendUnavailable:
            return Removed(False, True)
        return Removed(was_there, True)

    patch.setattr(Removal, "steps", steps)


@mutant()
def requests_that_arrive_late_are_forgotten(patch: Patch) -> None:
    patch.setattr(removal, "_CONFIRMATIONS", ())


# The loss


@mutant()
def the_deadline_is_counted_from_the_reply(patch: Patch) -> None:
    def beaten(self: Session, sent: float, answer: Promise[float], future: Future[float]) -> None:
        real(self, self._timers.clock.now(), answer, future)

    real = Session._beaten
    patch.setattr(Session, "_beaten", beaten)


@mutant()
def only_the_service_tells_that_the_session_has_ended(patch: Patch) -> None:
    patch.setattr(Session, "ended", property(lambda self: self._end))
    patch.setattr(Session, "_watch", lambda self: None)


@mutant()
def only_timers_tell_that_the_deadline_has_passed(patch: Patch) -> None:
    patch.setattr(Session, "ended", property(lambda self: self._end))

    def watch(self: Session) -> None:
        if self._timers.clock.now() >= self._deadline:
            self.end(self._too_late())
        real(self)

    real = Session._watch
    patch.setattr(Session, "_watch", watch)


@mutant()
def the_end_of_a_session_is_nobodys_loss(patch: Patch) -> None:
    patch.setattr(Link, "_session_ended", lambda self, session, error: None)


@mutant()
def evictions_are_not_noticed(patch: Patch) -> None:
    patch.setattr(Ticket, "_watch", lambda self, revision: None)
