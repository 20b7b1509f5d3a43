"""A value that operations of many clients change, each of them exactly once.

It is a `StoredRecord` with the value and, for each of the last 128 writers, the number and the
answer of its last operation. A writer makes one operation after the other, and numbers them.

When the record has moved since an attempt without an answer, the writer's entry tells whether the
operation was made. With this number, it was. With an older number, it was not. Without an entry, it
was not, if 128 versions or fewer have come since, because it takes 128 other writers to push an
entry out. After more versions nobody can tell, and the caller gets an error that says so.

An operation whose caller has given up may be made late, before the next one of its writer, which
then reads the record after it or finds another version.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from coordlock.backend import Listing
from coordlock.errors import BackendError, BackendUnavailable, WaitTimeout
from coordlock.recipes.shared.observer import wait_until
from coordlock.recipes.shared.recipe import Recipe, wait_of
from coordlock.records.stored_record import Folder, StoredRecord
from coordlock.runtime.deadline import Cancellation, DeadlineReached
from coordlock.runtime.driver import Steps, bounded
from coordlock.settings import Timeout

__all__ = ["ExactlyOnce", "value_of"]

T = TypeVar("T")

#: Of how many writers a record keeps the last operation.
_REMEMBERED: Final = 128


class _Writer:
    """Makes one operation after the other."""

    __slots__ = ("id", "number")

    def __init__(self) -> None:
        self.id: Final = urlsafe_b64encode(os.urandom(12)).decode()
        #: The number of its last operation.
        self.number = 0


@dataclass(slots=True)
class _Content:
    """What a record keeps.

    Attributes:
        value: what the recipe keeps; None where nobody has made a value.
        last: by the id of each writer, the number and the answer of its last operation. Behind
            these may be fields of newer releases.
    """

    value: Any = None
    last: dict[str, list[Any]] = field(default_factory=dict)

    def after(self, writer: _Writer, value: Any, answer: Any) -> dict[str, Any]:
        """The fields of the record when the writer's operation has made it ``value``."""
        others = [[id, *last] for id, last in self.last.items() if id != writer.id]
        last = [*others, [writer.id, writer.number, answer]][-_REMEMBERED:]
        return {"value": value, "last": last}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> _Content:
        """The content of a record with these ``fields``."""
        if not fields:
            return cls()
        last = {
            str(id): [int(number), answer, *more] for id, number, answer, *more in fields["last"]
        }
        return cls(fields["value"], last)


def value_of(fields: Mapping[str, Any]) -> Any:
    """The value of a record with these ``fields``."""
    return _Content.parse(fields).value


class ExactlyOnce(Recipe):
    """What recipes share that keep such a value."""

    _folder: ClassVar[Folder]
    #: What errors call it.
    _kind: ClassVar[str]

    @property
    def _record(self) -> StoredRecord[_Content]:
        return StoredRecord(self._access.engine, self._folder, self.name, self._parse)

    def _parse(self, fields: Mapping[str, Any]) -> _Content:
        content = _Content.parse(fields)
        if content.value is not None:
            self._check_kept(content.value)
        return content

    def _check_kept(self, value: Any) -> None:
        """Raise TypeError or ValueError for a value that this recipe never writes."""

    def _value(self) -> Steps[Any]:
        """The value; None where nobody has made one. Raises `BackendUnavailable`."""
        return (yield from self._record.get()).value

    def _value_in(self, listing: Listing) -> Any:
        """The value in what was read. Raises `BackendError` as `StoredRecord.state_in`."""
        return self._record.state_in(listing).value

    def _wait_until(
        self,
        is_wanted: Callable[[Any], bool],
        timeout: Timeout,
        in_vain: Callable[[Any, float], WaitTimeout],
        cancellation: Cancellation | None,
    ) -> Steps[None]:
        """Wait until the value is as ``is_wanted`` says: see `observer.wait_until`.

        Raises `BackendError` if the record that held another value is gone.
        """
        record, was_there = self._record, False

        def is_over(listing: Listing) -> bool:
            nonlocal was_there
            is_there = record.key in listing.values
            if was_there and not is_there:
                raise BackendError(
                    str(self._access.engine.settings),
                    f"the record of the {self._kind} {self.name!r} was deleted, or the service has "
                    "lost its data, so what this call waits for may never come: set it up again",
                )
            was_there = is_there
            return is_wanted(self._value_in(listing))

        yield from wait_until(
            self._access.engine,
            record.follow,
            is_over,
            wait_of(self._access, timeout),
            lambda listing, waited: in_vain(self._value_in(listing), waited),
            self._kind,
            self.name,
            cancellation,
        )

    def _change(self, operation: Callable[[Any], tuple[Any, T]]) -> Steps[T]:
        """Make ``operation`` once: it gives a new value, which is JSON's, and an answer.

        It may be called several times, has no other effects, and may raise. Raises
        `BackendUnavailable` when no attempt was answered within the client's ``request_timeout``:
        that says whether it may have been made.
        """
        engine = self._access.engine
        yield from engine.first_session()
        idle: list[_Writer] = engine.share(_Writer, list)  # the client's writers without operation
        try:
            writer = idle.pop()
        except IndexError:
            writer = _Writer()
        try:
            writer.number += 1
            return (yield from self._repeat_until_made(writer, operation))
        finally:
            idle.append(writer)

    def _repeat_until_made(
        self, writer: _Writer, operation: Callable[[Any], tuple[Any, T]]
    ) -> Steps[T]:
        """Attempt the writer's operation until it was made once; its answer."""
        engine, record = self._access.engine, self._record
        seconds = engine.settings.request_timeout
        deadline = engine.deadline(seconds)
        try:
            while True:
                content = yield from bounded(record.read(), deadline)
                if record.was_deleted:
                    raise BackendUnavailable(
                        str(engine.settings),
                        f"a change of {record.key!r} got no answer, and the record was deleted "
                        "since: whether the change was made is unknown",
                    )
                if record.moved:  # since an attempt without an answer: was that one made?
                    number, answer, *_ = content.last.get(writer.id, [0, None])
                    if number == writer.number:
                        made: T = answer
                        return made
                    if not number and not 0 < record.moved <= _REMEMBERED:
                        raise BackendUnavailable(
                            str(engine.settings),
                            f"a change of {record.key!r} got no answer, and more than "
                            f"{_REMEMBERED} others followed: whether it was made is unknown",
                        )
                value, answer = operation(content.value)
                if value == content.value:
                    return answer
                write = record.write(content.after(writer, value, answer))
                if (yield from bounded(write, deadline)):
                    return answer
                if not record.in_doubt:  # other clients make progress: so this one has more time
                    deadline = engine.deadline(seconds)
        except DeadlineReached as late:
            silent, outcome = engine.silent(late), "nothing was changed"
            if record.in_doubt:
                outcome = "the change may have been made, or may be yet"
            reason = f"{silent.reason}; {outcome}"
            raise BackendUnavailable(silent.service, reason) from late.__cause__
