"""The backend contract on PostgreSQL: queues, data and observations, one statement each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, overload

from psycopg.types.json import Json

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
from coordlock_postgresql.session import PostgresqlSession, keys

if TYPE_CHECKING:
    from coordlock.backend import Listing, Observation, Operation, Written

__all__ = ["PostgresBackend", "PostgresqlBackend", "PostgresqlPsycopgBackend"]

T = TypeVar("T")

log = Log("coordlock")

_MAX_TOKEN: Final = 2**63 - 1
#: Seconds before another attempt to remove what a transaction keeps: doubled each time.
KEPT_DELAY_S: Final = 0.001
MAX_KEPT_DELAY_S: Final = 1.0
#: After this number of enqueues a client lets the server remove queues without contenders.
ENQUEUES_A_TIDY: Final = 100


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
        if not (session := self._session.current):
            return failed(self._session.missing())
        if unless_blocked:
            return run_in_background(self._try(session, entries))
        return self._enqueue(session, entries)

    def _try(self, session: str, entries: Sequence[Entry]) -> Steps[tuple[Snapshot, ...]]:
        present = yield from awaited(all_of([self.snapshot(entry.queue) for entry in entries]))
        if any(map(is_blocked, present, entries)):
            return present
        return (yield from awaited(self._enqueue(session, entries)))

    def _enqueue(self, session: str, entries: Sequence[Entry]) -> Promise[tuple[Snapshot, ...]]:
        def enqueued(answer: dict[str, Any]) -> tuple[Snapshot, ...]:
            if "lost" in answer:
                raise self._loss()
            if "quiet" in answer:
                raise BackendUnavailable(
                    SERVICE,
                    "another server answers, after a failover or from a backup: nothing is granted "
                    f"for {answer['quiet']:.1f} s more, until earlier grants have expired",
                )
            parts = zip(entries, answer["parts"], strict=True)
            return tuple([self._snapshot(entry.queue, part) for entry, part in parts])

        statement = "CALL coordlock.enqueue(%s, %s, %s, %s, %s, %s, %s, %s)"
        arguments = (
            self._root,
            session,
            [escape(entry.queue) for entry in entries],
            [entry.id for entry in entries],
            [entry.claim.marker for entry in entries],
            [entry.owner.encode().decode() for entry in entries],
            [entry.value for entry in entries],
            [max(entry.claim.window, 1) for entry in entries],
        )
        answer = self._in_session(statement, arguments, enqueued)
        if next(self._enqueued) % ENQUEUES_A_TIDY == 0:  # names that are used once, for weeks
            self._ask("CALL coordlock.tidy(%s)", (self._root,), lambda _: None)
        return answer

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        with self._lock:
            sessions = self._sessions.copy()
        ids = [entry.id for entry in entries]
        kept: list[Any] = []

        def removed(answer: list[Any]) -> bool:
            gone, kept[:] = answer
            return len(gone) + len(kept) == len(ids)

        def again(_: Promise[bool]) -> None:
            if kept:
                log.debug("a transaction keeps %s: it is removed once that has ended", ids)
                run_in_background(self._remove_later(sessions, ids, kept))

        answer = self._remove(sessions, ids, None, (), removed)
        answer.add_done_callback(again)
        return answer

    def _remove_later(self, sessions: list[str], ids: list[str], kept: list[Any]) -> Steps[None]:
        """Remove what a transaction of the program keeps, by a guard, once that has ended."""
        delay = KEPT_DELAY_S
        while kept and self._closing is None:
            yield sleep(self._timers, delay)
            delay = min(2 * delay, MAX_KEPT_DELAY_S)
            with suppress(BackendUnavailable):
                kept = yield self._remove(sessions, ids, None, kept, lambda answer: answer[1])

    def evict(self, contender: Contender) -> Promise[bool]:
        return run_in_background(self._evict(contender))

    def _evict(self, contender: Contender) -> Steps[bool]:
        session, id = contender.session, contender.id
        removing = self._remove([session], [id], contender.order, (), lambda answer: answer)
        gone, kept = yield from awaited(removing)
        if kept:
            statement = "SELECT coordlock.keeper(%s, %s)"
            pid = yield self._ask(statement, (session, id), lambda pid: pid)
            advice = f" (to end it: SELECT pg_terminate_backend({pid}))" if pid else ""
            raise BackendError(
                SERVICE, f"a transaction of a program guards the contender until it ends{advice}"
            )
        return bool(gone)

    def _remove(
        self,
        sessions: list[str],
        ids: list[str],
        token: int | None,
        kept: Sequence[Any],
        read: Callable[[list[Any]], T],
    ) -> Promise[T]:
        gone: list[Any] = []

        def removed(answer: list[Any]) -> T:
            gone[:] = answer[0]
            return read(answer)

        def report(_: Promise[T]) -> None:
            # Others are notified, and this client's own waiters learn it here.
            for id, left in gone:
                self._watches.on_left(id, left, next(self._revisions))

        statement = "CALL coordlock.withdraw(%s, %s, %s, %s, %s, %s)"
        before = Json(kept) if kept else None
        arguments = (self._root, self._channel, sessions, ids, token, before)
        answer = self._ask(statement, arguments, removed)
        answer.add_done_callback(report)
        return answer

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

        sessions, ids, tokens = keys(contenders)
        statements: tuple[Statement, ...] = (
            (
                "SELECT CASE {database} WHEN concat_ws('/', system_identifier, current_database()) "
                "THEN 'here' ELSE 'elsewhere' END FROM pg_control_system()",
                {"database": self._database},
            ),
            (
                "SELECT coordlock.guard({sessions}, {ids}, {tokens}, {seconds}, {removes})",
                {
                    "sessions": sessions,
                    "ids": ids,
                    "tokens": tokens,
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
        token, window, compatible = _MAX_TOKEN, None, None
        if upto is not None:
            token, mine = upto.order, in_force(upto.claim)
            if not conflicting:
                window = max(upto.claim.window, 1)
            elif not isinstance(mine, Permit):
                compatible = [mode.marker for mode in Mode if not mine.conflicts(mode)]
        arguments = (self._root, escape(queue), token, window, compatible)
        statement = "SELECT coordlock.snapshot(%s, %s, %s, %s, %s)"

        def seen(part: list[Any] | None) -> Snapshot:
            snapshot = self._snapshot(queue, part)
            if upto is None:
                self._watches.attend(snapshot.contenders)
            return snapshot

        return self._ask(statement, arguments, seen)

    def _snapshot(self, queue: str, part: list[Any] | None) -> Snapshot:
        omitted, listed = part or (0, ())
        contenders = tuple([_contender(queue, *each) for each in listed])
        return Snapshot(queue, contenders, next(self._revisions), omitted)

    def queues(self) -> Promise[list[str]]:
        def read(found: list[str]) -> list[str]:
            names = map(unescape, found)
            return [name for name in names if name is not None and not is_internal(name)]

        return self._ask("SELECT coordlock.queues(%s)", (self._root,), read)

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        return self._watches.watch(contender, revision, on_departure, waiters, changes=changes)

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        def read(answer: dict[str, Any]) -> None:
            if "evicted" in answer:
                raise Evicted(contender.key.rpartition("/")[0])
            if "version" in answer:
                raise VersionMismatch(contender.key, version)

        statement = "CALL coordlock.publish(%s, %s, %s, %s, %s, %s)"
        mine = (contender.session, contender.id, contender.order)
        return self._ask(statement, (self._root, *mine, value, version), read)

    # Data and observations

    def read(self, where: str, *, guard: Contender | None = None) -> Promise[Listing]:
        from coordlock.backend import Listing, VersionedValue

        folder, _, name = where.rpartition("/")

        def read(answer: list[Any]) -> Listing:
            revision, found = answer
            if found is None:
                raise Evicted(guard.key.rpartition("/")[0] if guard is not None else "")
            values = {
                f"{folder}/{name}": VersionedValue(bytes.fromhex(value), version)
                for name, value, version in found
            }
            return Listing(values, _number(revision))

        guards = keys([] if guard is None else [guard])
        statement = "CALL coordlock.read(%s, %s, %s, %s, %s, %s)"
        return self._ask(statement, (self._root, f"{folder}/", name or None, *guards), read)

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[Written]:
        from coordlock.backend import Expect, Put, VersionedValue, Written

        def written(found: list[Any]) -> Written:
            revision, answer = found
            if "evicted" in answer:
                raise Evicted(guards[0].key.rpartition("/")[0])
            if "version" in answer:
                unmet = operations[answer["version"]]
                raise VersionMismatch(unmet.key, unmet.version if isinstance(unmet, Expect) else 0)
            values = {
                key: VersionedValue(bytes.fromhex(value), version)
                for key, value, version in answer["values"]
            }
            return Written(_number(revision), answer["time"], values)

        paths = [operation.key.rpartition("/") for operation in operations]
        arguments = (
            self._root,
            *keys(guards),
            [type(operation).__name__.lower() for operation in operations],
            [f"{folder}/" for folder, _, _ in paths],
            [name for _, _, name in paths],
            [each.version if isinstance(each, Expect) else None for each in operations],
            [each.data if isinstance(each, Put) else None for each in operations],
        )
        statement = (
            "CALL coordlock.write(%s, %s::text[], %s::text[], %s::bigint[], %s::text[], "
            "%s::text[], %s::text[], %s::bigint[], %s::bytea[])"
        )
        return self._ask(statement, arguments, written)

    def service_time(self) -> Promise[float | None]:
        statement = "SELECT extract(epoch FROM pg_catalog.clock_timestamp())"
        return self._ask(statement, (), float)

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
        return self._observers.observe(name, read, news)


class PostgresBackend(PostgresqlBackend):
    """The same, as many URLs are written."""

    scheme: ClassVar[str] = "postgres"


class PostgresqlPsycopgBackend(PostgresqlBackend):
    """The same, as SQLAlchemy's URLs are written."""

    scheme: ClassVar[str] = "postgresql+psycopg"


def _number(revision: str) -> int:
    """The timeline, and 64 bits of the place in its log."""
    timeline, high, low = (int(part, 16) for part in revision.split("/"))
    return timeline << 64 | high << 32 | low


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
