"""Data in one session: reads, and writes that guards may protect.

A write is a multi, which checks the nodes of its guards before anything else. So no write of a
holder comes after its contender has gone, and none that came before is lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Any, Final

from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Exists,
    GetChildren2,
    GetData,
    SetData,
    Sync,
)
from kazoo.protocol.serialization import Delete as DeleteNode

from coordlock.backend import Listing, Operation, Put, Read, VersionedValue, Written
from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    Evicted,
    SessionLost,
    VersionMismatch,
)
from coordlock.model.contender import Contender
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import SERVICE, BadVersion, NodeExists, NoNode, NotEmpty
from coordlock_zookeeper.multis import KnownNodes, NodeOperation, above, failure, plan
from coordlock_zookeeper.requests import Answer, Requests

__all__ = ["Data", "stored"]

#: How often nodes are looked up before the creations and deletions of others win.
_ATTEMPTS: Final = 8


class Data:
    """Reads and writes in one session. ``acl`` is of the nodes that they make."""

    def __init__(self, requests: Requests, acl: Sequence[Any]) -> None:
        self._requests: Final = requests
        self._ask: Final = requests.ask
        self.acl: Final = acl

    def read(self, key: str, *guards: Contender) -> Steps[Listing]:
        """See `Backend.read`. One round trip.

        A server may lag behind others, so a `sync` goes before, by which it catches up with the
        leader. But a leader that was stopped, and replaced without knowing it yet, answers that as
        well: until it finds out, its clients may read the past. So a holder's reading ends with a
        multi that checks ``guards``. It needs a majority, which a leader that was replaced lacks.
        It comes last, so what exists then existed at the reading.
        """
        synced, asked = self._ask(Sync, "/"), self._ask(GetData, key, None)
        proven = run_in_background(self.write((), guards)) if guards else synced
        yield synced
        listing = yield from _listing(key, asked)
        yield proven
        return listing

    def names(self, folder: str, first: int | None, split: str) -> Steps[list[str]]:
        """See `Backend.names`. One round trip; the service lists all."""
        synced, asked = self._ask(Sync, "/"), self._ask(GetChildren2, folder[:-1], None)
        yield synced
        found, _ = yield asked
        names = sorted(found[0] if found else ())
        middle = bisect_left(names, split)
        return [*names[:middle][:first], *names[middle:][:first]]

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender]) -> Steps[Written]:
        """See `Backend.write`.

        One round trip where the keys exist. Sent again only after the server has said that nothing
        was done. What is to be read is asked for after the multi, or after a `sync`: the server
        answers in order.
        """
        known = KnownNodes()
        for _ in range(_ATTEMPTS):
            multi = plan([guard.key for guard in guards], operations, known)
            read = [operation.key for operation in operations if isinstance(operation, Read)]
            if multi or not read:
                sent = self._requests.transact(list(map(self._made, multi)))
            else:
                sent = self._ask(Sync, "/")
            asked = [self._ask(GetData, key, None) for key in read]
            results, zxid = yield sent
            if not multi or (failed := failure(results)) is None:
                values: dict[str, VersionedValue] = {}
                for key, answer in zip(read, asked, strict=True):
                    values |= (yield from _listing(key, answer)).values
                return Written(int(zxid), values=values)
            number, error = failed
            path, expected = multi[number].path, multi[number].expected
            if number < len(guards) and isinstance(error, NoNode):
                raise Evicted(guards[number].key.rpartition("/")[0])
            if isinstance(error, (SessionLost, BackendUnavailable)):
                raise error  # the leader looks at the session once more
            if not isinstance(error, (NoNode, NodeExists, BadVersion, NotEmpty)):
                raise type(error)(SERVICE, f"{path}: {error.reason}")
            if expected is None or multi[number].kind != "check":
                parents = {*known.parents, path} if isinstance(error, NotEmpty) else known.parents
                # The multi failed at the leader, and the answer came from this server: so it knows
                # as much.
                known = yield from self._look_up(operations, parents)
                if expected is None or path in known.absent or path in known.keyless:
                    continue
            raise VersionMismatch(expected.key, expected.version)
        raise BackendError(
            SERVICE, "nothing was written: other programs keep making and deleting these keys"
        )

    def time(self, key: str) -> Steps[float | None]:
        """See `Backend.service_time`. One round trip: it writes ``key``, and the answer says when.

        The leader has set that time, by its own clock.
        """
        for _ in range(_ATTEMPTS):
            stat, _ = yield self._ask(SetData, key, b"", -1)
            if stat is not None:
                return float(stat.mtime) / 1000
            yield from self.write([Put(key, b"")], [])
        return None

    def _made(self, operation: NodeOperation) -> Any:
        made, path = self._requests.made, operation.path
        match operation.kind:
            case "check":
                return made(CheckVersion, path, operation.version)
            case "create":
                return made(Create, path, operation.data, self.acl, 0)
            case "set":
                return made(SetData, path, operation.data, operation.version)
            case "delete":
                return made(DeleteNode, path, operation.version)

    def _look_up(
        self, operations: Sequence[Operation], parents: Collection[str]
    ) -> Steps[KnownNodes]:
        """What is known of the nodes that ``operations`` concern, ancestors included."""
        keys = {operation.key for operation in operations}
        stats = yield from self._ask_all(Exists, keys | above(keys))
        empty = [key for key in keys if getattr(stats[key], "dataLength", None) == 0]
        read = yield from self._ask_all(GetData, empty)
        return KnownNodes(
            absent={path for path, stat in stats.items() if stat is None},
            keyless={
                path: found[1].version
                for path, found in read.items()
                if isinstance(found, tuple) and found[0] is None
            },
            parents=parents,
        )

    def _ask_all(self, kind: Any, paths: Collection[str]) -> Steps[dict[str, Any]]:
        """The answers by paths, with the error where the client may not read a node.

        Servers from 3.9.3 on do not even tell whether it exists. It is taken for a key.
        """
        answers = {path: self._ask(kind, path, None) for path in paths}
        found: dict[str, Any] = {}
        for path, answer in answers.items():
            try:
                found[path], _ = yield answer
            except AuthenticationFailed as error:
                found[path] = error
        return found


def stored(data: bytes | None, stat: Any) -> VersionedValue | None:
    """What a node holds; None if it is no key."""
    return None if data is None else VersionedValue(data, stat.version % 2**32 + 1)


def _listing(key: str, asked: Promise[Answer]) -> Steps[Listing]:
    found, zxid = yield asked
    value = None if found is None else stored(*found)
    return Listing({} if value is None else {key: value}, zxid)
