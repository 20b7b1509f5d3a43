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

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from coordlock.errors import ClientClosed, CoordlockError, DeadlockDetected, SessionLost
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.model import waits
from coordlock.model.claim import Mode
from coordlock.model.contender import Announcement, Snapshot
from coordlock.model.names import internal
from coordlock.model.waits import Deadlock
from coordlock.runtime.caller import Caller, described
from coordlock.runtime.clock import sleep
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import all_of
from coordlock.runtime.recorder import RECORDER

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
    due: float  #: when its record is to be published
    record: Ticket | None = None
    is_over: bool = False


class DeadlockDetector:
    """Looks for deadlocks through the waits of one client, while there are any."""

    def __init__(self, engine: Engine, delay: float) -> None:
        """A wait takes part once it lasts for ``delay`` seconds."""
        self._engine = engine
        self._delay = delay
        self._lock = threading.RLock()
        self._waits: dict[_Wait, None] = {}
        self._is_at_work = False
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
        due = self._engine.clock.now() + self._delay
        wait = _Wait(ticket, caller, give_up or ticket.give_up, due)
        with self._lock:
            if not self._is_at_work:
                begin = partial(self._engine.aside, self._start)
                self._engine.timers.call_at(due, begin)
                self._is_at_work = True
            self._waits[wait] = None
        return partial(self._end, wait)

    def _end(self, wait: _Wait) -> None:
        with self._lock:
            wait.is_over = True  # no record is made any more
        if wait.record is not None:
            wait.record.withdraw()
        self._waits.pop(wait, None)  # last: if a signal interrupts this, `_under_way` repeats it

    def _start(self) -> None:
        run_in_background(self._work(), self._engine.aside)

    def _work(self) -> Steps[None]:
        next_look = pause = 0.0
        while under_way := self._under_way():
            now = self._engine.clock.now()
            new = [wait for wait in under_way if wait.record is None and wait.due <= now]
            if new:
                next_look, pause = now, self._delay / 2
            # One after the other, so that a crowd's records are no burst.
            for wait in new:
                yield from self._tried(self._publish(wait))
            if now >= next_look:
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                next_look = now + pause
                yield from self._tried(self._look(under_way))
            yield sleep(self._engine.timers, self._delay)

    def _tried(self, steps: Steps[None]) -> Steps[None]:
        """Take ``steps``. If they fail, say so: that must not end the detection for good."""
        try:
            yield from steps
        except (SessionLost, ClientClosed):
            pass  # as the waits, which say so
        except CoordlockError as error:
            # Once for each reason: where the client lacks a right, it lacks it at every wait.
            say = log.debug if type(error) in self._warned_of else log.warning
            self._warned_of.add(type(error))
            say("deadlocks of this client's waits may go undetected: %s", error)
        except Exception:  # a fault of ours
            log.exception("looking for deadlocks failed")

    def _under_way(self) -> list[_Wait]:
        for wait in list(self._waits):
            if wait.is_over or wait.ticket.is_leaving or wait.ticket.end.done():
                self._end(wait)
        with self._lock:
            self._is_at_work = bool(self._waits)
            return list(self._waits)

    def _publish(self, wait: _Wait) -> Steps[None]:
        record = self._what_it_waits_for(wait)
        if len(record.waits) + len(record.holds) < 2:
            self._end(wait)
        with self._lock:
            if wait.is_over:
                return
            # In the session of the wait: what is lost with the one is lost with the other.
            wait.record = published = self._engine.ticket(
                wait.ticket.session, {WAITS: Mode.NL}, announcement=Announcement(record.encode())
            )
        try:
            yield from published.enqueue()
        except BaseException:  # try again later: the reason may pass
            wait.due = self._engine.clock.now() + _LONGEST_PAUSE_S
            wait.record = None
            published.withdraw()
            raise

    def _look(self, under_way: Iterable[_Wait]) -> Steps[None]:
        """Let the victims among those ``under_way`` give up. Two readings show each deadlock."""
        published = [wait for wait in under_way if wait.record is not None]
        mine = {contender.place: wait for wait in published for contender in wait.ticket.contenders}
        queues = {entry.queue for wait in published for entry in wait.ticket.entries}
        # Most looks find no cycle, and to know that they need not read who the owners are. A
        # reading without those may lack tokens and versions, so it can't be one of the two.
        if not queues or not (yield from _found(self._engine, queues, owners=False)):
            return
        found = yield from _found(self._engine, queues)
        again = list(map(_seen, (yield from _found(self._engine, queues))))
        for deadlock in found:
            wait = mine.get(deadlock.victim)
            if wait is None or wait.is_over or _seen(deadlock) not in again:
                continue
            name, steps = deadlock.steps[0].name, tuple(map(str, deadlock.steps))
            if wait.give_up(DeadlockDetected(name, steps)):
                log.warning("lock %r: deadlock: %s", wait.ticket.name, deadlock)
                if RECORDER.listeners:
                    from coordlock.model.events import DeadlockFound  # only listeners need it

                    whose = self._engine.number, self._engine.backend.scheme
                    RECORDER.record(DeadlockFound(*whose, wait.ticket.name, str(deadlock)))
                self._end(wait)

    def _what_it_waits_for(self, wait: _Wait) -> waits.Wait:
        ticket, held = wait.ticket, self._engine.held_by(wait.caller)
        pairs = zip(ticket.entries, ticket.contenders, strict=True)
        places = tuple((entry.queue, contender.place) for entry, contender in pairs)
        holds = frozenset(contender.place for other in held for contender in other.contenders)
        return waits.Wait(described(wait.caller, None), places, holds)


def _seen(deadlock: Deadlock) -> tuple[Deadlock, list[int]]:
    """What stays the same while none in the cycle leaves or publishes anything."""
    pairs = [(step.waiter, step.blocker) for step in deadlock.steps]
    return deadlock, [contender.version for pair in pairs for contender in pair]


def deadlocks(engine: Engine) -> Steps[tuple[Deadlock, ...]]:
    """The deadlocks among all clients, as far as they look for any."""
    return tuple((yield from _found(engine, ())))


def _found(engine: Engine, start: Iterable[str], *, owners: bool = True) -> Steps[list[Deadlock]]:
    """The deadlocks through the queues ``start``; through all, where none is given."""
    [published] = yield from _read(engine, [WAITS], owners=True)
    records = (contender.value or b"" for contender in published.contenders)
    found = [wait for record in records if (wait := waits.Wait.decode(record)) is not None]
    actors = waits.by_contender(found)
    queues: dict[str, Snapshot] = {}
    missing = set(start) or {queue for wait in found for queue, _ in wait.waits}
    while missing:
        read = yield from _read(engine, sorted(missing), owners=owners)
        queues |= {snapshot.queue: snapshot for snapshot in read}
        missing = waits.needed(actors, read) - queues.keys()
    return list(waits.deadlocks(found, queues))


def _read(engine: Engine, queues: Iterable[str], *, owners: bool) -> Steps[tuple[Snapshot, ...]]:
    read = partial(engine.backend.snapshot, owners=owners)
    return (yield from engine.repeated(lambda: all_of(map(read, queues))))
