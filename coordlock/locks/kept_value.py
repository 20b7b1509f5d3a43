"""A small value that belongs to a lock, as the VMS lock manager's value block.

A value that was only written at each release could be stale: it would not show that a later holder
died. So a grant that may write marks the value as open before its body runs, and its release closes
it. A holder that finds it open knows that the last writer has not ended well, and gets no value.

The open mark also carries the lock-delay of Chubby and Consul: for how long the next holder waits
after such an end, because requests of the last one may still be on their way. The first client that
finds the mark adds the time. So the delay passes whether or not anybody waits for it; otherwise
clients that try once, or have little patience, would each begin it anew.

The grant's own contender guards each read and write of the record.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from coordlock.errors import AcquireTimeout, WaitCancelled, WaitUnavailable
from coordlock.kernel.engine import Engine
from coordlock.kernel.report import PATIENCE
from coordlock.kernel.stored_record import Folder, StoredRecord
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.runtime.clock import sleep
from coordlock.runtime.deadline import Cancelled, DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.settings import LONGEST_LOCK_DELAY

__all__ = ["LONGEST", "WRITERS", "KeptValue", "has_delay", "shown"]

log = Log("coordlock")

#: The modes whose holders write it: no two of them are held together.
WRITERS: Final = frozenset({Mode.PW, Mode.EX})
#: The longest value, in bytes.
LONGEST: Final = 65_536


class KeptValue:
    """The value of one lock under one grant of it."""

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        self._engine = engine
        self._ticket = ticket
        entry, me = ticket.entries[0], ticket.contenders[0]
        self._token = me.token or 0
        self._record = StoredRecord(
            engine, Folder.VALUES, entry.queue, _Fields.parse, guard=me, replaces=True
        )
        self._is_open = False
        #: Whether this grant may write it.
        self.is_writable: Final = entry.claim in WRITERS
        #: None where there is none, or the last writer did not close it.
        self.value: bytes | None = None
        #: Seconds to wait before `open`, because the last writer did not close it. 0 once they are
        #: over; None for no delay.
        self.delay: float | None = None

    def begin(self, started: float, once: bool, lock_delay: float) -> Steps[None]:
        """Read the value, wait where the last writer has left a delay behind, and `open` it.

        It is the last step of an acquire, which has ``started`` at that time and asks ``once`` or
        waits: raises what that does. ``lock_delay`` is for how many seconds the next holder waits
        if this one ends badly.
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
            yield from self.open(lock_delay)
        except Cancelled as cancelled:
            raise WaitCancelled(name, str(cancelled)) from cancelled.__cause__
        except DeadlineReached as late:
            silent, waited = self._engine.silent(late), clock.now() - started
            # Else the service is silent.
            was_busy = self.delay or clock.now() - asked < PATIENCE
            if not once and late.__cause__ is None and was_busy:
                raise AcquireTimeout(name, waited) from None
            raise WaitUnavailable(silent.service, silent.reason, name, waited) from silent

    def read(self) -> Steps[None]:
        """Read the value."""
        found = yield from self._record.read()
        self.value = found.value
        # A mode that shares with a writer finds the value open while that is at work.
        mode = self._ticket.entries[0].claim
        if found.delay and isinstance(mode, Mode) and all(map(mode.conflicts, WRITERS)):
            self.delay = yield from self._left_of(found)

    def _left_of(self, found: _Fields) -> Steps[float | None]:
        """Note when the delay was found, unless that is known; how much is left of it.

        None where there is no delay any more. Clocks that differ, or that are set forward
        meanwhile, shorten it by as much.
        """
        while found.delay and not found.found <= (now := time.time()):  # nor is NaN
            # False also when another reader was faster, with this or with the end of the delay.
            yield from self._record.write(replace(found, found=now).encode())
            found = yield from self._record.read()
        return max(0.0, found.found + found.delay - time.time()) if found.delay else None

    def open(self, lock_delay: float) -> Steps[None]:
        """Mark the value as open, where this grant may write it.

        Where it may not, note that the delay is over, so that no other reader waits for it again.
        """
        if self.is_writable:
            yield from self._write(_Fields(self._token, is_open=True, delay=lock_delay))
            self._is_open = True
        elif self.delay is not None:  # no writer shares the lock with it
            yield from self._write(_Fields(self._token, is_open=True))

    def close(self) -> Steps[None]:
        """Write the value, where `open` has opened it."""
        if self._is_open:
            yield from self._write(_Fields(self._token, self.value))
            self._is_open = False

    def _write(self, wanted: _Fields) -> Steps[None]:
        while not (yield from self._record.write(wanted.encode())):
            if (yield from self._record.read()) == wanted:
                return  # it was made: nobody else writes this token


def shown(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What people see of a record with these ``fields``: whether it is open, and its size."""
    found = _Fields.parse(fields)
    return {
        "open": found.is_open,
        "bytes": None if found.value is None else len(found.value),
    }


def has_delay(fields: Mapping[str, Any]) -> bool:
    """Whether a record with these ``fields`` tells the next holder to wait."""
    return _Fields.parse(fields).delay > 0


@dataclass(frozen=True, slots=True)
class _Fields:
    """What the record says: whose writing it is, the value where that is closed, or the delay.

    ``found`` is when the delay was first found, in seconds since 1970 by that machine's clock;
    infinite where it has not been.
    """

    token: int
    value: bytes | None = None
    is_open: bool = False
    delay: float = 0.0
    found: float = math.inf

    def encode(self) -> dict[str, object]:
        return {
            "token": self.token,
            "open": self.is_open,
            "value": None if self.value is None else base64.b64encode(self.value).decode(),
            "delay": self.delay,
            "found": None if self.found == math.inf else self.found,
        }

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> _Fields:
        """What the record says; it is open where there is none."""
        token = fields.get("token", 0)
        if fields.get("open") is False:
            value = fields["value"]
            return cls(token, None if value is None else base64.b64decode(value, validate=True))
        delay = min(max(0.0, float(fields.get("delay", 0.0))), LONGEST_LOCK_DELAY)
        found = fields.get("found")
        return cls(token, None, True, delay, math.inf if found is None else float(found))
