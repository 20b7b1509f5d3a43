"""A small value that belongs to a lock, as the VMS lock manager's value block.

A mark at the release alone would not do: an old one would hide that a later holder died. So before
the body runs, a grant that may write notes that the value is open, and its release closes it. Who
finds it open knows that the last writer has not ended well, and gets no value.

The open mark also says for how long the next holder is to wait after such an end, where the writer
wants that: what it had sent may still be on its way. This is the lock-delay of Chubby and Consul.
The first that finds such a mark adds when that was, so that the delay goes by whether or not
anybody waits: else those who ask once, or have less patience, would begin it anew for ever.

The record is one key of the service, written only in transactions that the grant's own contender
guards. Its version says whether a write whose answer was lost was made.
"""

from __future__ import annotations

import base64
import json
import math
import time
from dataclasses import dataclass, replace
from typing import Final

from coordlock.backend import Expect, Put, Stored, Transactions
from coordlock.errors import (
    AcquireCancelled,
    AcquireTimeout,
    AcquireUnavailable,
    BackendUnavailable,
    Unsupported,
    VersionMismatch,
)
from coordlock.kernel.engine import Engine
from coordlock.kernel.report import PATIENCE
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.model.names import escape
from coordlock.runtime.clock import sleep
from coordlock.runtime.deadline import Cancelled, DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.settings.settings import LONGEST_LOCK_DELAY

__all__ = ["LONGEST", "WRITERS", "KeptValue", "service_of"]

log = Log("coordlock")

#: The modes whose holders write it: no two of them are held together.
WRITERS: Final = frozenset({Mode.PW, Mode.EX})
#: The longest value, in bytes.
LONGEST: Final = 65_536
#: Seconds between two attempts to write.
_PAUSE: Final = 0.1


def service_of(engine: Engine) -> Transactions:
    """The service that keeps values. Raises `Unsupported` where it can't."""
    if isinstance(engine.backend, Transactions):
        return engine.backend
    raise Unsupported(f"the {engine.backend.scheme} backend keeps no data, and so no value")


class KeptValue:
    """The value of one lock under one grant of it."""

    def __init__(self, engine: Engine, ticket: Ticket, lock_delay: float = 0.0) -> None:
        """``lock_delay`` is for how many seconds the next holder waits if this one ends badly."""
        self._engine = engine
        self._ticket = ticket
        self._lock_delay = lock_delay
        self._service = service_of(engine)
        entry = ticket.entries[0]
        self._key = f"{engine.data_root}/@values/{escape(entry.queue)}"
        self._token = ticket.contenders[0].token or 0
        #: How often the record was written.
        self._version = 0
        self._is_open = False
        #: Whether this grant may write it.
        self.is_writable: Final = entry.claim in WRITERS
        #: None where there is none, or the last writer has not closed it.
        self.value: bytes | None = None
        #: For how many seconds to wait before `open`, because the last writer has not closed it.
        #: 0 where that is over; None where there is no delay.
        self.delay: float | None = None

    def begin(self, started: float, once: bool) -> Steps[None]:
        """Read the value, wait where the last writer has left a delay behind, and `open` it.

        It is the last step of an acquire, which has ``started`` at that time and asks ``once`` or
        waits: raises what that does.
        """
        name, clock = self._ticket.name, self._engine.clock
        asked = clock.now()
        try:
            yield from self.read()
            if self.delay:
                if once:
                    raise AcquireTimeout(name, 0.0)
                log.info("lock %r: waits for its lock-delay, %g s", name, self.delay)
                yield self._ticket.unless_lost(sleep(self._engine.timers, self.delay))
                asked = clock.now()
            yield from self.open()
        except Cancelled as cancelled:
            raise AcquireCancelled(name, str(cancelled)) from cancelled.__cause__
        except DeadlineReached as late:
            silent, waited = self._engine.silent(late), clock.now() - started
            its_turn_was_late = self.delay or clock.now() - asked < PATIENCE
            if not once and late.__cause__ is None and its_turn_was_late:
                raise AcquireTimeout(name, waited) from None
            raise AcquireUnavailable(silent.service, silent.reason, name, waited) from silent

    def read(self) -> Steps[None]:
        """Read the value."""
        record = _Record.decode((yield from self._fetch()))
        self.value = record.value
        # A mode that shares with a writer finds the value open while that is at work.
        mode = self._ticket.entries[0].claim
        if record.delay and isinstance(mode, Mode) and all(map(mode.conflicts, WRITERS)):
            self.delay = yield from self._left_of(record)

    def _left_of(self, record: _Record) -> Steps[float | None]:
        """How much is left of the delay in ``record``, which says from now on when it was found.

        None where there is none any more. Clocks that differ, or that are set forward meanwhile,
        shorten it by as much.
        """
        while record.delay and not record.found <= (now := time.time()):  # nor is NaN
            try:
                yield from self._attempt(replace(record, found=now).encode())
            except VersionMismatch:
                pass  # another reader was faster, with this or with the end of the delay
            except BackendUnavailable:
                yield sleep(self._engine.timers, _PAUSE)
            record = _Record.decode((yield from self._fetch()))
        return max(0.0, record.found + record.delay - time.time()) if record.delay else None

    def open(self) -> Steps[None]:
        """Note that the value is open, where this grant may write it.

        And where it may not, that its delay is over, lest each reader waits for it again.
        """
        if self.is_writable:
            yield from self._write(_Record(self._token, is_open=True, delay=self._lock_delay))
            self._is_open = True
        elif self.delay is not None:  # no writer shares the lock with it
            yield from self._write(_Record(self._token, is_open=True))

    def close(self) -> Steps[None]:
        """Write the value, where `open` has opened it."""
        if self._is_open:
            yield from self._write(_Record(self._token, self.value))
            self._is_open = False

    def _fetch(self) -> Steps[Stored | None]:
        me = self._ticket.contenders[0]
        found = yield from retried(lambda: self._service.fetch(me, self._key), self._engine.timers)
        self._version = 0 if found is None else found.version
        return found

    def _write(self, wanted: _Record) -> Steps[None]:
        record = wanted.encode()
        while True:
            expected = self._version
            try:
                yield from self._attempt(record)
                self._version += 1
                return
            except (BackendUnavailable, VersionMismatch) as error:
                found = yield from self._fetch()
                if found == Stored(record, expected + 1):
                    return  # it was made, and the answer lost
                # Else it was not, or may be yet, and then finds another version.
                if isinstance(error, BackendUnavailable):
                    yield sleep(self._engine.timers, _PAUSE)

    def _attempt(self, record: bytes) -> Steps[None]:
        """Write it over the version that was seen last. Raises `VersionMismatch` and more."""
        me, expected = self._ticket.contenders[0], Expect(self._key, self._version)
        yield self._service.commit(me, [expected, Put(self._key, record)])


@dataclass(frozen=True, slots=True)
class _Record:
    """What is kept: whose writing it is, the value where that is closed, or the delay if not.

    ``found`` is when the delay was first found, in seconds since 1970 by that machine's clock;
    infinite where it has not been.
    """

    token: int
    value: bytes | None = None
    is_open: bool = False
    delay: float = 0.0
    found: float = math.inf

    def encode(self) -> bytes:
        value = None if self.value is None else base64.b64encode(self.value).decode()
        fields: dict[str, object] = {"open": self.is_open, "token": self.token, "value": value}
        if self.delay:
            fields["delay"] = self.delay
        if self.found < math.inf:
            fields["found"] = self.found
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, found: Stored | None) -> _Record:
        """What was ``found``; one that is open where that is nothing, or none of coordlock's."""
        try:
            fields = json.loads(found.data) if found is not None else {}
            if fields.get("open") is not False:
                delay = min(max(0.0, float(fields.get("delay", 0.0))), LONGEST_LOCK_DELAY)
                since = float(fields.get("found", math.inf))
                return cls(fields.get("token", 0), is_open=True, delay=delay, found=since)
            value = fields["value"]
            return cls(0, None if value is None else base64.b64decode(value, validate=True))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return cls(0, is_open=True)
