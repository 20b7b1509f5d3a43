"""PostgreSQL's own record: all that it has committed to its log, by logical decoding."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import psycopg
from coordlock_faults.events import ContenderAppeared, ContenderDisappeared
from coordlock_faults.journal import Journal

from coordlock.model.claim import parse_marker
from coordlock.model.names import unescape
from coordlock.testing.waiting import eventually
from testbed.servers.postgres import PostgresServer
from testbed.truth import observer
from testbed.truth.claims import at_first
from testbed.truth.observer import Observer, TruthIncomplete

__all__ = ["CONTENDERS", "PostgresqlObserver", "key_of", "lock_of"]

#: Queues of the recipes' own locks, which no client logs: all but where workers wait for items.
_UNSEEN: Final = "^@(?!take-|work-)"
#: The queue and id of all contenders below a root.
CONTENDERS: Final = f"""
    SELECT q.name, c.id FROM coordlock.contender c JOIN coordlock.queue q ON q.id = c.queue
    WHERE q.root = %s AND q.name !~ '{_UNSEEN}'
"""
_SLOT: Final = "truth"
_LOOK_S: Final = 0.05
#: A column as the plugin ``test_decoding`` shows it.
_COLUMN: Final = re.compile(r"(\w+)\[[^\]]+\]:('(?:[^']|'')*'|\S+)")


class PostgresqlObserver(Observer):
    """A replication slot of one server, which is read again from where that was acknowledged.

    The log has the transactions in the order of their commits, and the server keeps it for the slot
    over restarts.
    """

    def __init__(self, server: PostgresServer, root: str, journal: Journal) -> None:
        super().__init__(root, journal)
        self._server: Final = server
        self._seen = 0
        #: The names of queues by their numbers, and the keys of contenders by queue and token.
        self._queues: Final[dict[str, str]] = {}
        self._there: Final[dict[tuple[str, str], str]] = {}
        self._failure: Exception | None = None
        self._lock: Final = threading.Lock()
        self._closed: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._follow, name="postgresql-truth")

    def start(self) -> None:
        with self._server.administrator() as admin:
            slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            admin.execute(slots)
            # A queue may have the name of one that is gone, and be another.
            admin.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", (_SLOT,)
            )
        self._thread.start()

    def seen(self) -> int:
        return self._seen

    def agreed(self) -> int:
        different: set[str] = set()

        def agrees() -> bool:
            nonlocal different
            with self._server.administrator() as admin:
                found = self._contenders()
                self._take(admin)
            different = found ^ set(self._there.values())
            return not different

        try:
            eventually(agrees, within=observer.AGREEMENT)
        except TimeoutError:
            raise TruthIncomplete(f"PostgreSQL and its log differ: {different}") from self._failure
        return self._seen

    def _contenders(self) -> set[str]:
        with self._server.administrator() as admin:
            return {key_of(*row) for row in admin.execute(CONTENDERS.encode(), (self._root,))}

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            if self._thread.ident is not None:
                self._thread.join()
            with suppress(psycopg.Error), self._server.administrator() as admin:
                admin.execute("SELECT pg_drop_replication_slot(%s)", (_SLOT,))

    def _follow(self) -> None:
        while not self._closed.wait(_LOOK_S):
            try:
                with self._server.administrator() as admin:
                    while not self._closed.wait(_LOOK_S):
                        self._take(admin)
            except psycopg.Error:
                continue  # it is killed, paused, or starts
            except Exception as error:
                self._failure = error
                raise

    def _take(self, admin: psycopg.Connection[Any]) -> None:
        """Log what has been committed since the last time."""
        with self._lock:
            admin.execute("SET statement_timeout = '5s'")
            query = "SELECT lsn - '0/0', data FROM pg_logical_slot_peek_changes(%s, NULL, NULL)"
            changes: list[str] = []
            for lsn, data in admin.execute(query, (_SLOT,)).fetchall():
                if not data.startswith("COMMIT"):
                    changes.append(data)
                elif (revision := int(lsn)) > self._seen:
                    for change in changes:
                        self._log(change, revision)
                    self._seen = revision
                    changes.clear()
                else:
                    changes.clear()
            if self._seen:
                # Not before all is in the journal.
                admin.execute(
                    "SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s)",
                    (_SLOT, self._seen),
                )

    def _log(self, change: str, revision: int) -> None:
        table, _, rest = change.partition(": ")
        verb, _, columns = rest.partition(": ")
        row = dict(_columns(columns))
        match table.removeprefix("table coordlock."), verb:
            case "queue", "INSERT" if row["root"] == self._root and not re.match(
                _UNSEEN, row["name"]
            ):
                self._queues[row["id"]] = row["name"]
            case "contender", "INSERT" if queue := self._queues.get(row["queue"]):
                key = key_of(queue, row["id"])
                self._there[row["queue"], row["token"]] = key
                claim = at_first(parse_marker(row["claim"], b""))
                lock, token, session = lock_of(queue), int(row["token"]), row["session"]
                self._journal.log(ContenderAppeared, lock, key, token, claim, session, revision)
            case "contender", "DELETE":
                if key := self._there.pop((row["queue"], row["token"]), ""):
                    self._journal.log(ContenderDisappeared, key, revision)


def lock_of(queue: str) -> str:
    """The lock of a queue."""
    return unescape(queue) or queue


def key_of(queue: str, id: str) -> str:
    """The key of a contender."""
    return f"{lock_of(queue)}/{id}"


def _columns(text: str) -> Iterator[tuple[str, str]]:
    for name, value in _COLUMN.findall(text):
        yield name, value[1:-1].replace("''", "'") if value.startswith("'") else value
