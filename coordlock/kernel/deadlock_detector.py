"""Looking for deadlocks, on behalf of a contender that waits while its caller holds others.

After a while its client publishes what the caller holds and waits for, reads what others have
published, and the queues that this leads through. What is published is a contender in a queue of
coordlock's own, in a mode that conflicts with nothing: it is gone with its session, on every
backend.

A cycle is real if all its contenders are there when the queues are read again: what has departed
never returns, so each of them stood in the other's way at the moment between the two readings. What
a convertible one claims may come back, so it must not have published anything in between. The
youngest one that waits gives up; no other contender is touched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from coordlock.errors import ClientClosed, CoordlockError, DeadlockDetected, SessionLost
from coordlock.kernel.engine import Engine
from coordlock.kernel.entries import Announcement
from coordlock.kernel.ticket import Ticket
from coordlock.model import waits
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.names import internal
from coordlock.model.waits import Deadlock
from coordlock.runtime.caller import Caller, described
from coordlock.runtime.clock import sleep
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log

__all__ = ["WAITS", "DeadlockDetector", "deadlocks"]

log = Log("coordlock")

#: The queue of what is published.
WAITS: Final = internal("waits")
#: Seconds from one look to the next, at most: what closes a cycle looks soon after it has come.
_LONGEST: Final = 8.0


class DeadlockDetector:
    """Looks for a deadlock while ``ticket`` waits, from ``delay`` seconds on."""

    def __init__(
        self,
        engine: Engine,
        ticket: Ticket,
        caller: Caller,
        delay: float,
        give_up: Callable[[CoordlockError], bool] | None = None,
    ) -> None:
        """``give_up`` ends the wait with an error, where that is not the ticket's for its turn.

        It returns whether it did: what waits may just have been told something, and wait again.
        """
        self._give_up = give_up or ticket.give_up
        self._engine = engine
        self._ticket = ticket
        self._caller = caller
        self._delay = delay
        self._record: Ticket | None = None
        self._is_over = False
        self._timer = engine.timers.call_at(engine.clock.now() + delay, self._begin)

    def stop(self) -> None:
        """The wait is over. Idempotent."""
        self._is_over = True
        self._timer.cancel()
        self._stop_publishing()

    def _begin(self) -> None:
        if not self._is_over:
            run_in_background(self._watch())

    def _watch(self) -> Steps[None]:
        ticket, pause = self._ticket, self._delay / 2
        if not ticket.withdrawal.keep_ids():
            return
        wait = self._what_it_waits_for()
        if not wait.holds and len(wait.waits) == 1:
            return
        try:
            self._record = self._make_record(wait.encode())
            yield from self._record.enqueue()
            while not self._is_over:
                mine = yield from self._own(wait)
                if mine is not None and _are_same(mine, (yield from self._own(wait))):
                    name, steps = mine.steps[0].name, tuple(map(str, mine.steps))
                    if self._give_up(DeadlockDetected(name, steps)):
                        log.warning("lock %r: deadlock: %s", ticket.name, mine)
                        return
                yield sleep(self._engine.timers, pause)
                pause = min(2 * pause, _LONGEST)
        except (SessionLost, ClientClosed):
            pass  # as the wait, which says so
        except CoordlockError as error:
            # Once for each client and reason: where it lacks a right, it lacks it at every wait.
            told = self._engine.share((DeadlockDetector, type(error)), threading.Event)
            say = log.debug if told.is_set() else log.warning
            told.set()
            say("lock %r: a deadlock of this wait would go undetected: %s", ticket.name, error)
        finally:
            self._stop_publishing()

    def _make_record(self, record: bytes) -> Ticket:
        # In the session of the wait: what is lost with the one is lost with the other.
        ticket, session = self._engine.ticket, self._ticket.session
        if self._engine.backend.capabilities.publishing:  # of any length
            return ticket(session, {WAITS: Mode.NL}, announcement=Announcement(record))
        return ticket(session, {WAITS: Mode.NL}, record.decode())

    def _stop_publishing(self) -> None:
        if self._record is not None:
            self._record.withdraw()

    def _what_it_waits_for(self) -> waits.Wait:
        ticket = self._ticket
        places = tuple((entry.queue, entry.id) for entry in ticket.entries)
        held = [one for one in self._engine.held_by(self._caller) if one.withdrawal.keep_ids()]
        holds = frozenset(entry.id for one in held for entry in one.entries)
        return waits.Wait(described(self._caller, None), places, holds)

    def _own(self, wait: waits.Wait) -> Steps[Deadlock | None]:
        """The deadlock of which this is the victim, if there is one."""
        mine = {id for _, id in wait.waits}
        found = yield from _found(self._engine, [queue for queue, _ in wait.waits])
        return next((one for one in found if one.victim in mine), None)


def _are_same(one: Deadlock, again: Deadlock | None) -> bool:
    """Whether none in the cycle has left or published anything in between."""
    return one == again and _versions(one) == _versions(again)


def _versions(deadlock: Deadlock) -> list[tuple[int, int]]:
    return [(step.waiter.version, step.blocker.version) for step in deadlock.steps]


def deadlocks(engine: Engine) -> Steps[tuple[Deadlock, ...]]:
    """The deadlocks among all clients, as far as they look for any."""
    return tuple((yield from _found(engine, ())))


def _found(engine: Engine, start: Sequence[str]) -> Steps[list[Deadlock]]:
    """The deadlocks through the queues ``start``; through all, where none is given."""
    published = yield from _read(engine, WAITS)
    records = map(_record_of, published.contenders)
    found = [wait for record in records if (wait := waits.Wait.decode(record)) is not None]
    queues: dict[str, Snapshot] = {}
    missing = set(start) or {queue for wait in found for queue, _ in wait.waits}
    while missing:
        for queue in sorted(missing):
            queues[queue] = yield from _read(engine, queue)
        missing = waits.needed(found, queues)
    return list(waits.deadlocks(found, queues))


def _record_of(published: Contender) -> bytes:
    """Of a service without values, and of older releases, it is the label."""
    return published.value or (published.owner.label.encode() if published.owner else b"")


def _read(engine: Engine, queue: str) -> Steps[Snapshot]:
    return (yield from engine.repeated(lambda: engine.backend.snapshot(queue, owners=True)))
