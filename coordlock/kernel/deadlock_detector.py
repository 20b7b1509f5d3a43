"""Looking for deadlocks on behalf of those who wait while their callers hold others.

Each client has one detector, which works while such waits are under way. For each wait that lasts,
it publishes what the caller holds and waits for. From time to time it reads what all clients have
published, and the queues that this leads through. What is published is a contender in a queue of
coordlock's own, in a mode that conflicts with nothing: it is gone with its session, on every
backend.

A cycle is real if all its contenders are there when the queues are read again: what has departed
never returns, so each of them was in the other's way at the moment between the two readings. What
a convertible one claims may come back, so it must not have published anything in between. The
youngest one that waits gives up; no other contender is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
from coordlock.runtime.clock import Timer, sleep
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, all_of, settled

__all__ = ["WAITS", "DeadlockDetector", "deadlocks"]

log = Log("coordlock")

#: The queue of what is published.
WAITS: Final = internal("waits")
#: Seconds from one look to the next, at most, while the client's waits stay the same.
_LONGEST_PAUSE_S: Final = 8.0


@dataclass(slots=True, eq=False)
class _Wait:
    """A wait under way. ``give_up`` ends it with an error, and returns whether it did."""

    ticket: Ticket
    caller: Caller
    give_up: Callable[[CoordlockError], bool]
    since: float
    record: Ticket | None = None
    is_over: bool = False


class DeadlockDetector:
    """Looks for deadlocks through the waits of one client. Its looks share their readings."""

    def __init__(self, engine: Engine, delay: float) -> None:
        """A wait takes part once it lasts for ``delay`` seconds."""
        self._engine = engine
        self._delay = delay
        self._lock = engine.lock
        self._waits: dict[_Wait, None] = {}
        self._timer: Timer | None = None
        self._next_look = math.inf
        self._pause = delay
        self._is_looking = False
        self._warned_of: set[type[CoordlockError]] = set()

    @staticmethod
    def of(engine: Engine, delay: float) -> DeadlockDetector:
        """That of the client."""
        return engine.share(WAITS, partial(DeadlockDetector, engine, delay))

    def watch(
        self,
        ticket: Ticket,
        caller: Caller,
        give_up: Callable[[CoordlockError], bool] | None = None,
    ) -> Callable[[], None]:
        """Look for deadlocks while ``ticket`` waits, until the function returned is called.

        That function is idempotent. ``give_up`` ends the wait with an error, where that is not the
        ticket's for its turn. It returns whether it did: what waits may just have been granted
        something, and wait again.
        """
        now = self._engine.clock.now()
        wait = _Wait(ticket, caller, give_up or ticket.give_up, now)
        with self._lock:
            self._waits[wait] = None
            self._look_by(now + self._delay)
        return partial(self._end, wait)

    def _end(self, wait: _Wait) -> None:
        with self._lock:
            wait.is_over = True  # so its record is not made any more
        if wait.record is not None:
            wait.record.withdraw()
        self._waits.pop(wait, None)  # last: what a signal interrupts, the next look does

    # When it looks

    def _look_by(self, when: float) -> None:
        if self._is_looking or self._next_look <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._engine.timers.call_at(when, self._begin)
        self._next_look = when

    def _begin(self) -> None:
        with self._lock:
            self._next_look = math.inf
            self._is_looking = bool(self._waits)
        if self._is_looking:
            self._engine.aside(self._run)

    def _run(self) -> None:
        run_in_background(self._look(), self._engine.aside).add_done_callback(self._looked)

    def _looked(self, look: Promise[bool]) -> None:
        error = look.exception()
        if isinstance(error, CoordlockError):
            self._warn("the client", error)
        elif error is not None:
            log.error("looking for deadlocks failed", exc_info=error)
        changed = error is None and look.result()
        longest = max(self._delay, _LONGEST_PAUSE_S)
        self._pause = self._delay if changed else min(2 * self._pause, longest)
        with self._lock, suppress(ClientClosed):
            self._is_looking = False
            if self._waits:
                self._look_by(self._engine.clock.now() + self._pause)

    # What it looks at

    def _look(self) -> Steps[bool]:
        """Look once; whether waits have begun lately, so that the next look should be soon."""
        ripe_since = self._engine.clock.now() - self._delay
        with self._lock:
            all_waits = list(self._waits)
        for wait in all_waits:
            if wait.is_over or wait.ticket.is_leaving or wait.ticket.end.done():
                self._end(wait)
        ripe = [one for one in all_waits if one.since <= ripe_since and not one.is_over]
        new = [one for one in ripe if one.record is None]
        answers = [(one, run_in_background(self._publish(one), self._engine.aside)) for one in new]
        for wait, answer in answers:
            yield settled(answer)
            if isinstance(error := answer.exception(), CoordlockError):
                self._warn(f"lock {wait.ticket.name!r}", error)
                self._end(wait)
        mine = {
            entry.id: one
            for one in ripe
            if one.record is not None and not one.is_over
            for entry in one.ticket.entries
        }
        for deadlock in (yield from self._own(mine)):
            wait = mine[deadlock.victim]
            name, steps = deadlock.steps[0].name, tuple(map(str, deadlock.steps))
            if not wait.is_over and wait.give_up(DeadlockDetected(name, steps)):
                log.warning("lock %r: deadlock: %s", wait.ticket.name, deadlock)
                self._end(wait)
        return bool(new) or len(ripe) < len(self._waits)

    def _publish(self, wait: _Wait) -> Steps[None]:
        yield sleep(self._engine.timers, 0.0)  # so each is a call of its own, aside
        record = self._what_it_waits_for(wait)
        if not wait.ticket.withdrawal.keep_ids() or (len(record.waits) == 1 and not record.holds):
            self._end(wait)
            return
        with self._lock:
            if wait.is_over:
                return
            ticket = wait.record = self._make_record(wait.ticket, record.encode())
        yield from ticket.enqueue()

    def _make_record(self, waiting: Ticket, record: bytes) -> Ticket:
        # In the session of the wait: what is lost with the one is lost with the other.
        ticket, session = self._engine.ticket, waiting.session
        if self._engine.backend.capabilities.publishing:  # of any length
            return ticket(session, {WAITS: Mode.NL}, announcement=Announcement(record))
        return ticket(session, {WAITS: Mode.NL}, record.decode())

    def _what_it_waits_for(self, wait: _Wait) -> waits.Wait:
        places = tuple((entry.queue, entry.id) for entry in wait.ticket.entries)
        held = [one for one in self._engine.held_by(wait.caller) if one.withdrawal.keep_ids()]
        holds = frozenset(entry.id for one in held for entry in one.entries)
        return waits.Wait(described(wait.caller, None), places, holds)

    def _own(self, mine: dict[str, _Wait]) -> Steps[list[Deadlock]]:
        """The deadlocks whose victims are contenders in ``mine``, each seen in two readings."""
        queues = {entry.queue for wait in mine.values() for entry in wait.ticket.entries}
        # Most looks find no cycle, and to know that they need not read who the owners are.
        if not queues or not (yield from _found(self._engine, queues, owners=False)):
            return []
        found = yield from _found(self._engine, queues)
        again = {one.victim: one for one in (yield from _found(self._engine, queues))}
        return [
            one for one in found if one.victim in mine and _are_same(one, again.get(one.victim))
        ]

    def _warn(self, what: str, error: CoordlockError) -> None:
        """Once for each reason: where the client lacks a right, it lacks it at every wait."""
        if isinstance(error, (SessionLost, ClientClosed)):
            return  # as the wait, which says so
        say = log.debug if type(error) in self._warned_of else log.warning
        self._warned_of.add(type(error))
        say("%s: a deadlock of this wait would go undetected: %s", what, error)


def _are_same(one: Deadlock, again: Deadlock | None) -> bool:
    """Whether none in the cycle has left or published anything in between."""
    return one == again and _versions(one) == _versions(again)


def _versions(deadlock: Deadlock) -> list[tuple[int, int]]:
    return [(step.waiter.version, step.blocker.version) for step in deadlock.steps]


def deadlocks(engine: Engine) -> Steps[tuple[Deadlock, ...]]:
    """The deadlocks among all clients, as far as they look for any."""
    return tuple((yield from _found(engine, ())))


def _found(engine: Engine, start: Iterable[str], *, owners: bool = True) -> Steps[list[Deadlock]]:
    """The deadlocks through the queues ``start``; through all, where none is given."""
    [published] = yield from _read(engine, [WAITS], owners=True)
    records = map(_record_of, published.contenders)
    found = [wait for record in records if (wait := waits.Wait.decode(record)) is not None]
    actors = waits.by_contender(found)
    queues: dict[str, Snapshot] = {}
    missing = set(start) or {queue for wait in found for queue, _ in wait.waits}
    while missing:
        read = yield from _read(engine, sorted(missing), owners=owners)
        queues |= {snapshot.queue: snapshot for snapshot in read}
        missing = waits.needed(actors, read) - queues.keys()
    return list(waits.deadlocks(found, queues))


def _record_of(published: Contender) -> bytes:
    """Of a service without values, and of older releases, it is the label."""
    return published.value or (published.owner.label.encode() if published.owner else b"")


def _read(engine: Engine, queues: Iterable[str], *, owners: bool) -> Steps[tuple[Snapshot, ...]]:
    read = partial(engine.backend.snapshot, owners=owners)
    return (yield from engine.repeated(lambda: all_of(map(read, queues))))
