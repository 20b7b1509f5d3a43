"""Asking whoever holds a lock to release it.

The request is a note beside the queue: one key of data for each lock, with a reason for each holder
that was asked. A holder that wants to know follows the key; nothing is sent for others. Notes to
contenders that have left are dropped when the next one is written, so a lock has one small key.
"""

from __future__ import annotations

import json
from typing import Any, Final

from coordlock.backend import Data, Expect, Listing, Observation, Put, data
from coordlock.errors import BackendUnavailable, VersionMismatch
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.locks.loss_signal import AsyncSignal, GrantEnd, Signal
from coordlock.locks.queue_view import QueueMember, queue_view
from coordlock.model.contender import are_same
from coordlock.model.names import escape
from coordlock.runtime.clock import sleep
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise

__all__ = ["AskedSignal", "AsyncAskedSignal", "Notes", "ask", "check_reason"]

#: The longest reason, in characters.
_LONGEST: Final = 1000
#: Seconds between two attempts to write.
_PAUSE: Final = 0.1


def ask(
    engine: Engine, queue: str, reason: str, chosen: QueueMember | None
) -> Steps[tuple[QueueMember, ...]]:
    """Ask the holders of ``queue``, or the one that was ``chosen``; those that were asked.

    Raises ValueError for a reason that is too long, `Unsupported` and `BackendUnavailable`.
    """
    check_reason(reason)
    service = data.of(engine.backend)
    members = yield from queue_view(engine, queue)
    asked = tuple(one for one in members if _is_meant(one, chosen))
    if asked:
        there = {one.contender.id for one in members}
        notes = dict.fromkeys((one.contender.id for one in asked), reason)
        yield from engine.bounded(_write(engine, service, _key(engine, queue), there, notes))
    return asked


def check_reason(reason: object) -> None:
    """Raise TypeError for what is no text, and ValueError for one that is too long."""
    if not isinstance(reason, str):
        raise TypeError(f"reason must be a text, not {reason!r}")
    if len(reason) > _LONGEST:
        raise ValueError(f"reason has {len(reason)} characters, of at most {_LONGEST}")


def _is_meant(member: QueueMember, chosen: QueueMember | None) -> bool:
    return member.holding if chosen is None else are_same(member.contender, chosen.contender)


def _write(
    engine: Engine, service: Data, key: str, there: set[str], notes: dict[str, str]
) -> Steps[None]:
    """Add ``notes`` to what is written, less that to those that are not ``there``."""
    while True:
        listing = yield from retried(lambda: service.read(key), engine.timers)
        written = _notes(listing, key)
        wanted = {id: text for id, text in written.items() if id in there} | notes
        if wanted == written:
            return  # also when an answer was lost: another write of the same does no harm
        found = listing.values.get(key)
        expect = Expect(key, 0 if found is None else found.version)
        try:
            yield service.write([expect, Put(key, _encoded(wanted))])
            return
        except VersionMismatch:
            continue
        except BackendUnavailable:
            yield sleep(engine.timers, _PAUSE)


def _key(engine: Engine, queue: str) -> str:
    return f"{engine.data_root}/@asked/{escape(queue)}"


def _encoded(notes: dict[str, str]) -> bytes:
    """``notes`` with each reason once: a semaphore may have a thousand holders."""
    asked: dict[str, list[str]] = {}
    for id, reason in notes.items():
        asked.setdefault(reason, []).append(id)
    return json.dumps(asked).encode()


def _notes(listing: Listing, key: str) -> dict[str, str]:
    """The reasons by the ids of contenders; none where something else has written there."""
    found = listing.values.get(key)
    try:
        asked: Any = {} if found is None else json.loads(found.data)
        return {str(id): str(reason) for reason, ids in asked.items() for id in ids}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


class Notes:
    """Those to the contenders of one grant, from the first use to its end."""

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        service = data.of(engine.backend)
        self._ids: Final = {one.id for one in ticket.contenders}
        #: Kept with the reason of the first note, or with None at the grant's end.
        self.asked: Final[Promise[str | None]] = Promise()
        self.end: Final = GrantEnd(self.asked)
        self._observations: list[Observation[Listing]] = []
        if not (engine.closed or engine.inherited or ticket.end.done()):
            for entry in ticket.entries:
                key = _key(engine, entry.queue)
                self._observations.append(service.follow(key, self._look))
        ticket.end.add_done_callback(lambda _: self._stop())
        self._look()  # the first news may have come before

    @property
    def reason(self) -> str | None:
        """Why it was asked; None while it was not."""
        return self.asked.result() if self.asked.done() else None

    def _look(self) -> None:
        for observation in list(self._observations):
            if (state := observation.view.state) is not None:
                for key in state.values:
                    for id, reason in _notes(state, key).items():
                        if id in self._ids:
                            self.asked.resolve(reason)

    def _stop(self) -> None:
        for observation in self._observations:
            observation.cancel()
        self.asked.resolve(None)


class AskedSignal(Signal):
    """Set when another client has asked that the grant be released."""


class AsyncAskedSignal(AsyncSignal):
    """Set when another client has asked that the grant be released."""
