"""A record that operations of many clients change, each of them exactly once.

It is one key of data: a value, and for each of the last 128 writers the number and the answer of
its last operation. A writer makes one operation after the other, and numbers them. Nobody deletes
the record, so its version only grows. Why no operation is made twice, and none is taken for made
that was not, whatever becomes of requests and answers:

* An attempt expects the version at which the record was read. So of all attempts of an operation
  at one version, those that arrive late too, at most one is made. Once the version has moved, the
  others are void for good.
* Before the first attempt at another version, the record was read at that version. If an earlier
  attempt was made, its writer is listed there with this number; or 128 other writers have pushed it
  out, and then the version has moved by more than 128. So where the writer is listed with an older
  number, or not listed after 128 versions or fewer, none was made, nor will be. Otherwise nobody
  can tell, and the caller hears that.
* An operation that its caller has given up may be made late, before the next one of its writer or
  never: that one has read the record after it, or else finds another version.
"""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

from coordlock.backend import Expect, Listing, Observation, Put, Stored, data
from coordlock.errors import BackendError, BackendUnavailable, VersionMismatch
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.model.names import escape
from coordlock.runtime.clock import sleep
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps

__all__ = ["Record", "value_of"]

T = TypeVar("T")

#: Of how many writers a record keeps the last operation.
_REMEMBERED: Final = 128
#: Seconds between two attempts, where the first had no answer.
_PAUSE: Final = 0.1


class _Writer:
    """One that makes an operation after the other."""

    __slots__ = ("id", "number")

    def __init__(self) -> None:
        self.id: Final = urlsafe_b64encode(os.urandom(12)).decode()
        #: That of its last operation.
        self.number = 0


@dataclass(slots=True)
class _Content:
    """What a record keeps: the value, and by writer the number and the answer of its operation."""

    value: Any = None
    last: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def after(self, writer: _Writer, value: Any, answer: Any) -> bytes:
        """The record when the writer's operation has made it ``value``."""
        last = {id: one for id, one in self.last.items() if id != writer.id}
        last[writer.id] = writer.number, answer
        listed = [[id, *one] for id, one in last.items()][-_REMEMBERED:]
        return json.dumps({"value": value, "last": listed}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, stored: Stored) -> _Content:
        """What is ``stored``. Raises ValueError, TypeError or KeyError for no record."""
        fields: Any = json.loads(stored.data)
        last = {str(id): (int(number), answer) for id, number, answer in fields["last"]}
        return cls(fields["value"], last)


def value_of(stored: Stored) -> Any:
    """The value of the record that is ``stored``. Raises as `_Content.decode`."""
    return _Content.decode(stored).value


class Record:
    """One record, as a client works with it."""

    def __init__(self, engine: Engine, folder: str, name: str) -> None:
        """``folder`` is of all records of a kind, and begins with ``@``."""
        self._engine: Final = engine
        self._service: Final = data.of(engine.backend)
        self.key: Final = f"{engine.data_root}/{folder}/{escape(name)}"

    def read(self) -> Steps[Any]:
        """Its value; None where nobody has made one. Raises `BackendUnavailable`."""
        return self.value_in((yield from self._engine.ask(lambda: self._service.read(self.key))))

    def follow(self, news: Callable[[], None]) -> Observation[Listing]:
        """Observe it: `value_in` tells what its states are."""
        return self._service.follow(self.key, news)

    def value_in(self, listing: Listing) -> Any:
        """Its value in what was read. Raises `BackendError` where another program has written."""
        return self._content(listing)[1].value

    def change(self, operation: Callable[[Any], tuple[Any, T]]) -> Steps[T]:
        """Make ``operation`` once: it gives a new value, which is JSON's, and an answer.

        It may be called several times, has no other effects, and may raise. Raises
        `BackendUnavailable` when no attempt was answered within the client's ``request_timeout``:
        that says whether it may have been made.
        """
        engine = self._engine
        engine.check()
        if not engine.was_open:
            yield from engine.session()
        idle: list[_Writer] = engine.share(_Writer, list)
        try:
            writer = idle.pop()
        except IndexError:
            writer = _Writer()
        try:
            writer.number += 1
            return (yield from self._change(writer, operation))
        finally:
            idle.append(writer)

    def _change(self, writer: _Writer, operation: Callable[[Any], tuple[Any, T]]) -> Steps[T]:
        engine, service = self._engine, self._service
        #: What an attempt has expected that was not answered.
        unanswered: int | None = None
        yield engine.deadline(engine.settings.request_timeout)
        try:
            while True:
                listing = yield from retried(lambda: service.read(self.key), engine.timers)
                version, content = self._content(listing)
                if unanswered not in (None, version):
                    number, answer = content.last.get(writer.id, (0, None))
                    if number == writer.number:
                        made: T = answer
                        return made
                    if not number and not 0 < version - unanswered <= _REMEMBERED:
                        self._lose_track()
                    unanswered = None
                wanted, given = operation(content.value)
                if wanted == content.value:
                    return given
                before, unanswered = unanswered, version
                written = Put(self.key, content.after(writer, wanted, given))
                try:
                    yield service.write([Expect(self.key, version), written])
                    return given
                except VersionMismatch:
                    unanswered = before
                    if before is None:  # another client has got on, so this one may take its time
                        yield engine.deadline(engine.settings.request_timeout)
                except BackendUnavailable:
                    yield sleep(engine.timers, _PAUSE)
        except DeadlineReached as late:
            silent, outcome = engine.silent(late), "nothing was changed"
            if unanswered is not None:
                outcome = "the change may have been made, or may be yet"
            reason = f"{silent.reason}; {outcome}"
            raise BackendUnavailable(silent.service, reason) from late.__cause__

    def _lose_track(self) -> NoReturn:
        raise BackendUnavailable(
            str(self._engine.settings),
            f"no answer came to a change of {self.key!r}, and more than {_REMEMBERED} others have "
            "followed since: whether it was made cannot be found out any more",
        )

    def _content(self, listing: Listing) -> tuple[int, _Content]:
        """The version and what is kept; 0 and nothing where there is no record."""
        found = listing.values.get(self.key)
        if found is None:
            return 0, _Content()
        try:
            return found.version, _Content.decode(found)
        except (ValueError, TypeError, KeyError):
            what = f"the key {self.key!r} is not as coordlock writes it"
            raise BackendError(str(self._engine.settings), what) from None
