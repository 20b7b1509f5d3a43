"""Requests to the holders of a lock that they release it.

The requests to the holders of a lock are one record beside its queue, with a reason for each
contender that was asked. A holder that wants to know follows the record; the others cost nothing.
Requests to contenders that have left are dropped when the next one is written, so a lock has one
small record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordlock.backend import Listing, Observation
from coordlock.errors import BackendError
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.records.stored_record import Folder, StoredRecord
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise

__all__ = ["Requests", "ask", "asked_in", "check_reason"]

log = Log("coordlock")

#: The longest reason, in characters.
_LONGEST_REASON: Final = 1000


#: The reasons, by the places of the contenders that were asked.
Asked = dict[str, str]


def ask(engine: Engine, queue: str, requests: Asked, there: set[str]) -> Steps[None]:
    """Make the ``requests`` in ``queue``, in which the contenders ``there`` are.

    Raises `BackendUnavailable`.
    """
    yield from engine.bounded(_write(_record(engine, queue), there, requests))


def check_reason(reason: object) -> None:
    """Raise TypeError unless it is a str, and ValueError if it is too long."""
    if not isinstance(reason, str):
        raise TypeError(f"reason must be a text, not {reason!r}")
    if len(reason) > _LONGEST_REASON:
        raise ValueError(f"reason has {len(reason)} characters; the limit is {_LONGEST_REASON}")


def _write(record: StoredRecord[Asked], there: set[str], requests: Asked) -> Steps[None]:
    """Add ``requests`` to the record, and drop those to contenders that are not ``there``."""
    while True:
        written = yield from record.read()
        wanted = {place: reason for place, reason in written.items() if place in there} | requests
        if wanted == written:
            return  # perhaps by an attempt of this call whose answer was lost
        by_reason: dict[str, list[str]] = {}  # each once: a semaphore may have a thousand holders
        for place, reason in wanted.items():
            by_reason.setdefault(reason, []).append(place)
        if (yield from record.write({"requests": by_reason})):
            return


def _record(engine: Engine, queue: str) -> StoredRecord[Asked]:
    """The record of ``queue``."""
    return StoredRecord(engine, Folder.RELEASE_REQUESTS, queue, asked_in, replaces=True)


def asked_in(fields: Mapping[str, Any]) -> Asked:
    """The requests in a record with these ``fields``."""
    requests = fields["requests"] if fields else {}
    return {str(place): str(reason) for reason, places in requests.items() for place in places}


class Requests:
    """The requests to the contenders of one grant, followed from the first use to its end."""

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        engine.backend.require("data")
        self._ticket: Final = ticket
        self._places: Final = {contender.place for contender in ticket.contenders}
        #: Kept with the reason of the first request, or with None at the grant's end.
        self.asked: Final[Promise[str | None]] = Promise()
        self._observed: list[tuple[StoredRecord[Asked], Observation[Listing]]] = []
        if not (engine.closed or engine.inherited or ticket.end.done()):
            for entry in ticket.entries:
                record = _record(engine, entry.queue)
                self._observed.append((record, record.follow(self._look)))
        ticket.end.add_done_callback(lambda _: self._stop())
        self._look()  # the first news may have come before

    def reason(self) -> str | None:
        """The reason of the first request; None before it."""
        return self.asked.result() if self.asked.done() else None

    def _look(self) -> None:
        for record, observation in list(self._observed):
            if (state := observation.view.state) is None:
                continue
            try:
                requests = record.state_in(state)
            except BackendError as error:  # of a newer format
                log.warning("requests to release a lock cannot be read: %s", error)
                continue
            for place in self._places.intersection(requests):
                reason = requests[place]
                if self.asked.resolve(reason) and self._ticket.recording is not None:
                    self._ticket.recording.release_requested(reason)

    def _stop(self) -> None:
        for _, observation in self._observed:
            observation.cancel()
        self.asked.resolve(None)
