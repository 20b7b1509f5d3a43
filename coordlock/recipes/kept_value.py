"""A small value that belongs to a lock, as the VMS lock manager's value block.

A mark at the release alone would not do: an old one would hide that a later holder died. So before
the body runs, a grant that may write notes that the value is open, and its release closes it. Who
finds it open knows that the last writer has not ended well, and gets no value.

The record is one key of the service, written only in transactions that the grant's own contender
guards. Its version says whether a write whose answer was lost was made.
"""

from __future__ import annotations

import base64
import json
from typing import Final

from coordlock.backend import Expect, Put, Stored, Transactions
from coordlock.errors import BackendUnavailable, Unsupported, VersionMismatch
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.model.names import escape
from coordlock.runtime.clock import sleep
from coordlock.runtime.driver import Steps

__all__ = ["LONGEST", "WRITERS", "KeptValue", "service_of"]

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

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        self._engine = engine
        self._ticket = ticket
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

    def open(self) -> Steps[None]:
        """Read the value; where this grant may write it, note that it is open."""
        found = yield from self._fetch()
        self.value = _closed_value(found)
        if self.is_writable:
            yield from self._write(_record(self._token, is_open=True))
            self._is_open = True

    def close(self) -> Steps[None]:
        """Write the value, where `open` has opened it."""
        if self._is_open:
            yield from self._write(_record(self._token, self.value))
            self._is_open = False

    def _fetch(self) -> Steps[Stored | None]:
        me = self._ticket.contenders[0]
        found = yield from retried(lambda: self._service.fetch(me, self._key), self._engine.timers)
        self._version = 0 if found is None else found.version
        return found

    def _write(self, record: bytes) -> Steps[None]:
        me = self._ticket.contenders[0]
        while True:
            expected = self._version
            try:
                yield self._service.commit(
                    me, [Expect(self._key, expected), Put(self._key, record)]
                )
                self._version += 1
                return
            except (BackendUnavailable, VersionMismatch) as error:
                found = yield from self._fetch()
                if found == Stored(record, expected + 1):
                    return  # it was made, and the answer lost
                # Else it was not, or may be yet, and then finds another version.
                if isinstance(error, BackendUnavailable):
                    yield sleep(self._engine.timers, _PAUSE)


def _record(token: int, value: bytes | None = None, *, is_open: bool = False) -> bytes:
    text = None if value is None else base64.b64encode(value).decode()
    return json.dumps({"open": is_open, "token": token, "value": text}).encode()


def _closed_value(found: Stored | None) -> bytes | None:
    """The value in a record; None where it is open, has none, or is none of coordlock's."""
    try:
        fields = json.loads(found.data) if found is not None else {}
        if fields.get("open") is not False or fields["value"] is None:
            return None
        return base64.b64decode(fields["value"], validate=True)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
