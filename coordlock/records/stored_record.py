"""A record in the service that many clients change, each change exactly once.

A client reads the record, decides by what it says, and writes it under the condition that it still
has the version that was read. Where the write was not made, or its answer was lost, the client
reads again and decides anew. Therefore no change is made twice, however late requests arrive:

* Of all attempts at one version, the service makes at most one. Once the version has moved, it
  makes none of the others.
* Each attempt follows a read. If the version has moved since an attempt without an answer, that
  attempt was made before the read or never will be. The record shows which: by who wrote it, by the
  token in it, or because the change is in it. If the version has not moved, the next attempt
  excludes the one before.

A deletion starts a new life: the versions of the next record begin at 1 again, so a late write
could match one of them. Therefore each record names its life, a random id, and a key of that id
stands beside it from the record's creation to its deletion. Every write expects this key. So no
write that was meant for one life is made in another. A creation expects no life, and may come late:
then it makes the record anew, with this one change.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from coordlock.backend import Delete, Expect, Listing, Observation, Operation, Put, VersionedValue
from coordlock.errors import BackendError, BackendUnavailable, VersionMismatch
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.model.contender import Contender
from coordlock.model.names import escape
from coordlock.model.record import NewerFormat, decode, encode
from coordlock.runtime.clock import sleep
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise

__all__ = ["MALFORMED", "Folder", "StoredRecord"]

T = TypeVar("T")

#: What parsing raises for a record that coordlock did not write.
MALFORMED: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
#: Seconds after an attempt without an answer.
_UNANSWERED_PAUSE_S: Final = 0.1
#: Where the keys beside the records are, below the root, by the random ids of their lives.
_RECORD_IDS: Final = "@record-ids"


class Folder(StrEnum):
    """Where the records of each kind are, below the root. No queue has such a name."""

    BARRIERS = "@barriers"
    COUNTERS = "@counters"
    GATES = "@gates"
    JOBS = "@jobs"
    LATCHES = "@latches"
    RELEASE_REQUESTS = "@release-requests"


class StoredRecord(Generic[T]):
    """One record, for one change at a time."""

    def __init__(
        self,
        engine: Engine,
        folder: Folder,
        name: str,
        parse: Callable[[Mapping[str, Any]], T],
        *,
        guard: Contender | None = None,
        replaces: bool = False,
    ) -> None:
        """``parse`` makes the state of the fields: of none where there is no record.

        ``guard`` must be in its queue at each read and write. With ``replaces``, what another
        program wrote counts as no record, and is overwritten; otherwise it is refused.
        """
        self._engine: Final = engine
        engine.backend.require("data")
        self._service: Final = engine.backend
        self._parse: Final = parse
        self._guard: Final = guard
        self._replaces: Final = replaces
        self.key: Final = f"{engine.data_root}/{folder}/{escape(name)}"
        #: What was read last: its fields, and its version, 0 for no record.
        self._fields: Mapping[str, Any] = {}
        self._version = 0
        #: The version that an attempt expected that may have been made, or may be yet, and the life
        #: of the record then.
        self._unanswered: int | None = None
        self._unanswered_life: str | None = None
        #: Why the latest write has no answer.
        self._failure: BackendUnavailable | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether an attempt may have been made, or may be yet."""
        return self._unanswered is not None

    @property
    def moved(self) -> int:
        """By how many versions the record has moved since an attempt that had no answer."""
        return 0 if self._unanswered is None else self._version - self._unanswered

    @property
    def was_deleted(self) -> bool:
        """Whether the record that an attempt without an answer was to change has been deleted."""
        before = None if self._unanswered is None else self._unanswered_life
        return before is not None and before != self._life

    @property
    def _life(self) -> str | None:
        """The life of the record that was read last; None for no record, and for older ones."""
        life = self._fields.get("record_id")
        return life if isinstance(life, str) else None

    def _key_of(self, life: str) -> str:
        return f"{self._engine.data_root}/{_RECORD_IDS}/{escape(life)}"

    def read(self) -> Steps[T]:
        """Its state, asked for until there is an answer. Raises `BackendError`, as `state_in`."""
        try:
            return self._take((yield from retried(self._request, self._engine.timers)))
        except DeadlineReached as late:
            raise late from late.__cause__ or self._failure

    def get(self) -> Steps[T]:
        """Its state, which a caller asks for. Raises `BackendUnavailable`, and as `state_in`."""
        return self._take((yield from self._engine.ask(self._request)))

    def _request(self) -> Promise[Listing]:
        return self._service.read(self.key, guard=self._guard)

    def _take(self, listing: Listing) -> T:
        found = listing.values.get(self.key)
        self._version = 0 if found is None else found.version
        self._fields, state = self._understood(found)
        return state

    def write(
        self,
        fields: Mapping[str, object],
        guards: Sequence[Contender] = (),
        also: Sequence[Operation] = (),
    ) -> Steps[bool]:
        """Write ``fields`` over what was read last, while all of ``guards`` are in their queues.

        And do ``also``, which is of other keys, in the same transaction. False means that it was
        not made, or that this is unknown: read again, and decide anew. Writing at another version
        than before says that the attempt before was not made. Raises `Evicted` for a guard,
        `VersionMismatch` for a key in ``also``, and `BackendError`: then nothing was written.
        """
        before = self._unanswered if self.moved == 0 else None
        expected = self._unanswered = self._version
        life = self._unanswered_life = self._life
        operations: list[Operation]
        if life is None:  # a new one for each attempt, or a late one would bring an old life back
            life = urlsafe_b64encode(os.urandom(12)).decode()
            operations = [Expect(self._key_of(life), 0), Put(self._key_of(life), b"")]
        else:
            operations = [Expect(self._key_of(life), 1)]
        fields = {**fields, "record_id": life}
        operations += Expect(self.key, expected), Put(self.key, encode(fields, self._fields))
        operations += also
        try:
            yield from self._send(operations, guards if self._guard is None else [self._guard])
        except VersionMismatch as mismatch:
            self._unanswered = before
            if mismatch.key not in (self.key, self._key_of(life)):
                raise
            return False
        except BackendUnavailable:
            return False
        self._unanswered = None
        self._fields = {**self._fields, **fields}
        self._version += 1
        return True

    def delete(self, check: Callable[[T], Steps[None]]) -> Steps[bool]:
        """Delete the record, unless ``check`` raises for its state; whether there was one.

        It deletes only the state that was checked, and only one life, however often it has to ask.
        """
        asked: str | None = None
        while True:
            state = yield from self.read()
            if asked is not None and asked != self._life:
                return True  # by an attempt of this call whose answer was lost, or by another call
            if not self._version:
                return False
            yield from check(state)
            operations: list[Operation] = [Expect(self.key, self._version), Delete(self.key)]
            if (life := self._life) is not None:
                operations += Expect(self._key_of(life), 1), Delete(self._key_of(life))
            try:
                yield from self._send(operations)
            except VersionMismatch:
                continue
            except BackendUnavailable:
                asked = life
                continue
            return True

    def _send(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Steps[None]:
        """Write; where no answer comes, wait a little before that is raised."""
        try:
            try:
                yield self._service.write(operations, guards)
            except BackendUnavailable as error:
                self._failure = error
                yield sleep(self._engine.timers, _UNANSWERED_PAUSE_S)
                raise
            self._failure = None
        except DeadlineReached as late:
            raise late from self._failure

    def follow(self, news: Callable[[], None]) -> Observation[Listing]:
        """Observe it: `state_in` gives the state in each listing."""
        return self._service.follow(self.key, news)

    def state_in(self, listing: Listing) -> T:
        """Its state in ``listing``.

        Raises `BackendError` for a record of a newer format, and for what another program wrote.
        """
        return self._understood(listing.values.get(self.key))[1]

    def _understood(self, found: VersionedValue | None) -> tuple[Mapping[str, Any], T]:
        try:
            fields = {} if found is None else decode(found.data)
            return fields, self._parse(fields)
        except NewerFormat as newer:
            problem = str(newer)
        except MALFORMED:
            if self._replaces:
                return {}, self._parse({})
            problem = "is not as coordlock writes it"
        raise BackendError(self._engine.backend.scheme, f"the key {self.key!r} {problem}")
