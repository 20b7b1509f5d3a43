"""The backend contract on PostgreSQL: queues, data and observations, one statement each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, overload

from coordlock.backend import Capabilities, Departure, Queue, ServiceInfo
from coordlock.errors import BackendError, BackendUnavailable, Evicted, VersionMismatch
from coordlock.model.admission import is_blocked
from coordlock.model.claim import Mode, Permit, in_force, parse_marker
from coordlock.model.contender import Contender, Entry, Owner, Snapshot
from coordlock.model.names import escape, is_internal, unescape
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.driver import Steps, awaited, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, all_of, failed
from coordlock.settings import Option, Settings
from coordlock_postgresql import schema
from coordlock_postgresql.access import Server
from coordlock_postgresql.errors import SERVICE, client_closed
from coordlock_postgresql.options import OPTIONS, place
from coordlock_postgresql.session import PostgresqlSession, key

if TYPE_CHECKING:
    from coordlock.backend import Listing, Observation, Operation, VersionedValue, Written

__all__ = ["PostgresBackend", "PostgresqlBackend", "PostgresqlPsycopgBackend"]

T = TypeVar("T")

log = Log("coordlock")

_MAX_TOKEN: Final = 2**63 - 1
#: Seconds before another attempt to remove what a transaction keeps: doubled each time.
KEPT_DELAY_S: Final = 0.001
MAX_KEPT_DELAY_S: Final = 1.0
#: Seconds for which an eviction waits for a transaction that keeps the contender.
EVICTION_PATIENCE_S: Final = 1.0


class PostgresqlBackend(PostgresqlSession):
    """Locks in PostgreSQL 13 or later: see `coordlock_postgresql`."""

    scheme: ClassVar[str] = "postgresql"
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="cluster",
        leased=True,
        durable=True,
        ordered=True,
        fenced=True,
        sets=True,
        publishing=True,
        data=True,
        one_step="none",
    )
    options: ClassVar[Sequence[Option]] = OPTIONS
    #: The first part of the path is the database.
    default_root: ClassVar[str] = "/"
    shares_keys: ClassVar[bool] = False
    default_port: ClassVar[int] = 5432

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None, *, timers: Timers) -> Self:
        _, root = place(settings)
        listens = settings.options["listen"] != "off"
        return cls(Server(settings), root, settings.ttl, timers, listens=listens)

    @classmethod
    def setup_source(cls) -> str:
        return schema.source()

    @classmethod
    def set_up(
        cls, settings: Settings, *, max_ttl: float | None = None, restored: bool = False
    ) -> bool:
        return schema.set_up(settings, max_ttl=max_ttl, restored=restored)

    def describe(self) -> Promise[ServiceInfo]:
        from coordlock_postgresql.describe import describe

        if self._closing is not None:
            return failed(client_closed())
        return describe(self._server, self._listening if self._listens else None)

    # Queues

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        if unless_blocked and self._session.current:
            return run_in_background(self._try(self._session.current, entries))
        return self._enqueue(entries)

    def _try(self, session: str, entries: Sequence[Entry]) -> Steps[tuple[Snapshot, ...]]:
        present = yield from awaited(all_of([self.snapshot(entry.queue) for entry in entries]))
        if any(map(is_blocked, present, entries)):
            return present
        if session != self._session.current:
            raise self._session.missing()
        return (yield from awaited(self._enqueue(entries)))

    def _enqueue(self, entries: Sequence[Entry]) -> Promise[tuple[Snapshot, ...]]:
        # The server locks the queues in this order, which is one order everywhere.
        ordered = sorted(entries, key=lambda entry: entry.queue)
        given = [
            {
                "name": escape(entry.queue),
                "id": entry.id,
                "claim": entry.claim.marker,
                "owner": entry.owner.encode().decode(),
                "value": _bytes(entry.value),
                "nearest": max(entry.claim.window, 1),
            }
            for entry in ordered
        ]

        def enqueued(revision: int, parts: list[Any] | None) -> tuple[Snapshot, ...]:
            if parts is None:
                raise BackendUnavailable(
                    SERVICE, "the request came too late, or the server's clock was set"
                )
            names = [entry.queue for entry in ordered]
            read = dict(zip(names, _snapshots(names, revision, parts), strict=True))
            return tuple([read[entry.queue] for entry in entries])

        return self._in_session("enqueue", enqueued, entries=given)

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        with self._lock:
            sessions = self._sessions.copy()
        keys = [{"session": session, "id": entry.id} for session in sessions for entry in entries]
        kept: list[Any] = []

        def removed(answer: list[Any]) -> bool:
            gone, kept[:] = answer
            return len(gone) + len(kept) == len(entries)

        def repeat(_: object) -> None:
            if kept:
                log.debug("a transaction keeps %s: it is removed once that has ended", keys)
                run_in_background(self._remove_kept(keys, kept, math.inf))

        answer = self._remove(keys, [], removed)
        answer.add_done_callback(repeat)
        return answer

    def _remove_kept(self, keys: list[Any], kept: list[Any], patience: float) -> Steps[list[Any]]:
        """Remove what transactions keep as soon as these have ended; what is kept after all."""
        delay, until = KEPT_DELAY_S, self._timers.clock.now() + patience
        while kept and self._closing is None and self._timers.clock.now() < until:
            yield sleep(self._timers, delay)
            delay = min(2 * delay, MAX_KEPT_DELAY_S)
            with suppress(BackendUnavailable):
                kept = yield self._remove(keys, kept, lambda answer: answer[1])
        return kept

    def evict(self, contender: Contender) -> Promise[bool]:
        return run_in_background(self._evict([key(contender)]))

    def _evict(self, keys: list[Any]) -> Steps[bool]:
        gone, kept = yield from awaited(self._remove(keys, [], lambda answer: answer))
        # Publications and guarded writes keep it for a moment, too.
        for each in (yield from self._remove_kept(keys, kept, EVICTION_PATIENCE_S)):
            pid = each["pid"]
            advice = f" (to end it: SELECT pg_terminate_backend({pid}))" if pid else ""
            raise BackendError(
                SERVICE, f"a transaction of a program guards the contender until it ends{advice}"
            )
        return bool(gone or kept)

    def _remove(
        self, keys: list[Any], kept: list[Any], read: Callable[[list[Any]], T]
    ) -> Promise[T]:
        """Remove contenders; ``read`` gets what has left, and what transactions keep."""

        def removed(_: int, answer: list[Any]) -> T:
            for gone in answer[0]:  # others are notified
                self._watches.on_left(gone["id"], gone["token"])
            return read(answer)

        return self._ask("withdraw", removed, contenders=keys, kept=kept)

    def guard(
        self,
        connection: Any,
        contenders: Sequence[Contender],
        seconds: float,
        *,
        removes: bool,
        awaits: bool,
    ) -> Any:
        from coordlock_postgresql.guard import Statement, ask, ask_async

        statements: tuple[Statement, ...] = (
            (
                "SELECT CASE {database} WHEN concat_ws('/', system_identifier, current_database()) "
                "THEN 'here' ELSE 'elsewhere' END FROM pg_control_system()",
                {"database": self._database},
            ),
            (
                "SELECT coordlock.guard(CAST({contenders} AS json), {seconds}, {removes})",
                {
                    "contenders": json.dumps(list(map(key, contenders))),
                    "seconds": seconds,
                    "removes": removes,
                },
            ),
        )
        return (ask_async if awaits else ask)(connection, statements)

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        part: dict[str, object] = {"upto": _MAX_TOKEN}
        if upto is not None:
            part["upto"], mine = upto.order, in_force(upto.claim)
            if not conflicting:
                part["nearest"] = max(upto.claim.window, 1)
            elif not isinstance(mine, Permit):
                part["compatible"] = [mode.marker for mode in Mode if not mine.conflicts(mode)]

        def seen(revision: int, parts: list[Any]) -> Snapshot:
            [snapshot] = _snapshots([queue], revision, parts)
            if upto is None:
                self._watches.attend(snapshot.contenders)
            return snapshot

        part["places"] = [escape(queue)]
        if upto is not None and upto.session == self._session.current:
            return self._in_session("snapshot", seen, **part)
        return self._ask("snapshot", seen, **part)

    def snapshots(self, queues: Sequence[str]) -> Promise[tuple[Snapshot, ...]]:
        read = partial(_snapshots, queues)
        return self._ask("snapshot", read, upto=_MAX_TOKEN, places=list(map(escape, queues)))

    def queues(self) -> Promise[list[str]]:
        def read(_: int, found: list[str]) -> list[str]:
            names = map(unescape, found)
            return [name for name in names if name is not None and not is_internal(name)]

        return self._ask("queues", read)

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        return self._watches.watch(contender, on_departure, waiters, changes=changes)

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        def read(_: int, answer: str) -> None:
            if answer == "evicted":
                raise _evicted(contender)
            if answer == "version":
                raise VersionMismatch(contender.key, version)

        return self._in_session(
            "publish", read, contenders=[key(contender)], value=_bytes(value), version=version
        )

    # Data and observations

    def read(self, where: str, *, guard: Contender | None = None) -> Promise[Listing]:
        from coordlock.backend import Listing

        folder, name = _parts(where)
        guards = [] if guard is None else [guard]

        def read(revision: int, found: list[Any] | None) -> Listing:
            if found is None:
                raise _evicted(*guards)
            return Listing(_values(found), revision)

        return self._ask(
            "read", read, folder=folder, name=name or None, contenders=list(map(key, guards))
        )

    def names(self, folder: str, first: int | None = None, split: str = "") -> Promise[list[str]]:
        def read(_: int, names: list[str]) -> list[str]:
            return names

        return self._ask("names", read, folder=folder, nearest=first, name=split)

    def follow_news(self, key: str, news: Callable[[], None]) -> Observation[Listing]:
        return self._observers.observe(f"{self._root} key:{key}", None, news)

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[Written]:
        from coordlock.backend import Expect, Put, Written

        def written(revision: int, answer: dict[str, Any]) -> Written:
            if "evicted" in answer:
                raise _evicted(*guards)
            if "version" in answer:
                unmet = operations[answer["version"]]
                raise VersionMismatch(unmet.key, unmet.version if isinstance(unmet, Expect) else 0)
            return Written(revision, answer["time"], _values(answer["values"]))

        given = []
        for each in operations:
            folder, name = _parts(each.key)
            given.append(
                {
                    "verb": type(each).__name__.lower(),
                    "folder": folder,
                    "name": name,
                    "version": each.version if isinstance(each, Expect) else None,
                    "value": _bytes(each.data) if isinstance(each, Put) else None,
                }
            )
        return self._ask("write", written, contenders=list(map(key, guards)), operations=given)

    def service_time(self) -> Promise[float | None]:
        return self._ask("clock", lambda _, seconds: float(seconds))

    @overload
    def follow(self, place: Queue, news: Callable[[], None]) -> Observation[Snapshot]: ...
    @overload
    def follow(self, place: str, news: Callable[[], None]) -> Observation[Listing]: ...
    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        read: Callable[[], Promise[Any]]
        if isinstance(place, Queue):
            name, read = f"queue:{escape(place.name)}", partial(self.snapshot, place.name)
        else:
            kind = "folder" if place.endswith("/") else "key"
            name, read = f"{kind}:{place}", partial(self.read, place)
        return self._observers.observe(f"{self._root} {name}", read, news)


class PostgresBackend(PostgresqlBackend):
    """The same, as many URLs are written."""

    scheme: ClassVar[str] = "postgres"


class PostgresqlPsycopgBackend(PostgresqlBackend):
    """The same, as SQLAlchemy's URLs are written."""

    scheme: ClassVar[str] = "postgresql+psycopg"


def _parts(path: str) -> tuple[str, str]:
    """The folder of a key, or the folder that it is, with its slash; and the name in it."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/", name


def _bytes(value: bytes) -> str:
    """``value`` as PostgreSQL reads it."""
    return f"\\x{value.hex()}"


def _values(found: list[Any]) -> dict[str, VersionedValue]:
    from coordlock.backend import VersionedValue

    return {key: VersionedValue(bytes.fromhex(value), version) for key, value, version in found}


def _evicted(contender: Contender, *_: Contender) -> Evicted:
    return Evicted(contender.key.rpartition("/")[0])


def _snapshots(queues: Sequence[str], revision: int, parts: list[Any]) -> tuple[Snapshot, ...]:
    snapshots = []
    for queue, (omitted, listed) in zip(queues, parts, strict=True):
        contenders = tuple([_contender(queue, *each) for each in listed])
        snapshots.append(Snapshot(queue, contenders, revision, omitted))
    return tuple(snapshots)


def _contender(
    queue: str, id: str, token: int, claim: str, session: str, owner: str, value: str, version: int
) -> Contender:
    published = bytes.fromhex(value)
    return Contender(
        id=id,
        key=f"{queue}/{id}",
        claim=parse_marker(claim, published),
        order=token,
        token=token,
        session=session,
        owner=Owner.decode(owner.encode()),
        value=published,
        version=version,
    )
