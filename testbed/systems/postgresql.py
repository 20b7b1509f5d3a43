"""PostgreSQL under the nemesis: one server, and a primary with a standby that is promoted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import psycopg
from coordlock_faults.journal import Journal
from psycopg.types.json import Jsonb

from testbed.servers.endpoint import Endpoint
from testbed.servers.postgres import PostgresServer, PostgresStandby
from testbed.servers.process import ServerProcess
from testbed.systems.system import System, Uncertain
from testbed.truth.observer import Observer
from testbed.truth.postgresql import CONTENDERS, PostgresqlObserver, key_of, lock_of

__all__ = ["PostgresqlStandbySystem", "PostgresqlSystem"]

#: Seconds for which nothing is granted after a failover, as short as runs can wait: more than the
#: time-to-live of their sessions.
_PAUSE: Final = 4


class _Node(PostgresStandby):
    """A server, or what follows ``primary`` from the next time on that it has no data."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, self)

    def _create_data(self) -> None:
        if self.primary is self:
            PostgresServer._create_data(self)
        else:
            self.primary.wait_until_answers()
            super()._create_data()

    def is_primary(self) -> bool | None:
        """None where it does not answer."""
        try:
            with self.administrator() as admin:
                return admin.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
        except psycopg.Error:
            return None


class PostgresqlSystem(System):
    """One server, whose port has a relay."""

    name = "postgresql"
    size: ClassVar[int] = 1
    nodes: dict[str, ServerProcess]

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        names = [f"n{number}" for number in range(1, self.size + 1)]
        self.servers: Final = {name: _Node(directory / name) for name in names}
        self.nodes = dict(self.servers)

    def _endpoint(self, *ports: int) -> Endpoint:
        return Endpoint(
            "postgresql", tuple(f"127.0.0.1:{port}" for port in ports), PostgresServer.USER
        )

    def url(self, root: str, **options: object) -> str:
        return self._endpoint(*self._ports.values()).url(f"/postgres{root}", **options)

    def direct_url(self, root: str, **options: object) -> str:
        ports = (node.port for node in self.servers.values())
        return self._endpoint(*ports).url(f"/postgres{root}", **options)

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self.servers[name].port}"

    def _configure(self) -> None:
        # Relays of a start that failed, because a port was taken, stay until the end, unused.
        for name, node in self.servers.items():
            self._ports[name] = self.network.link(name, node.port)
            node.primary = self.servers["n1"]

    def versions(self) -> dict[str, str]:
        with self.servers[self.leader() or "n1"].administrator() as admin:
            return {"postgresql": str(admin.info.server_version)}

    def truth(self, root: str, journal: Journal) -> Observer | None:
        return PostgresqlObserver(self.servers["n1"], root, journal)

    def leader(self) -> str | None:
        return next((name for name, node in self.servers.items() if node.is_primary()), None)

    def is_well(self) -> bool:
        return all(node.is_running and node.answers() for node in self.servers.values())

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.servers["n1"].set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for node in self.servers.values():
            node.__exit__()

    # The operator.

    def queues(self, root: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for queue, id in self._ask(CONTENDERS, root):
            found.setdefault(lock_of(queue), []).append(key_of(queue, id))
        return found

    def remove(self, keys: Collection[str]) -> None:
        """As `coordlock evict` does, which notifies those who wait."""
        ids = [key.rpartition("/")[2] for key in keys]
        for session, id, token in self._ask(
            "SELECT session, id, token FROM coordlock.contender WHERE id = ANY (%s)", ids
        ):
            contender = {"session": session, "id": id, "token": token}
            call = "CALL coordlock.request('withdraw', %s)"
            self._ask(call, Jsonb({"caller": "", "contenders": [contender]}))

    def remove_queue(self, queue: str, keys: Collection[str]) -> bool:
        self.remove(keys)
        return True

    def _ask(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        try:
            with self.servers[self.leader() or "n1"].administrator() as admin:
                admin.execute("SET statement_timeout = '5s'")
                return admin.execute(query.encode(), arguments).fetchall()
        except psycopg.Error as error:
            raise Uncertain(str(error)) from error


class PostgresqlStandbySystem(PostgresqlSystem):
    """A primary and an asynchronous standby, n1 and n2 at first. Each port has a relay.

    A failover loses what the standby lacks, and every grant. Nothing is granted for four seconds.
    """

    name = "postgresql-standby"
    size = 2
    keeps_data = False

    def __enter__(self) -> Self:
        super().__enter__()
        with self.servers["n1"].administrator() as admin:
            admin.execute(f"UPDATE coordlock.epoch SET pause = '{_PAUSE} s'".encode())
        return self

    def direct_url(self, root: str, **options: object) -> str:
        return super().direct_url(root, **{"ttl": f"{_PAUSE}s", **options})

    def _configure(self) -> None:
        super()._configure()
        self.servers["n2"].primary = self.servers["n1"]

    def truth(self, root: str, journal: Journal) -> None:
        return None

    def is_well(self) -> bool:
        """Also whether the standby has all that the primary had written when this was called."""
        leader = self.leader()
        if leader is None or not super().is_well():
            return False
        [standby] = (node for name, node in self.servers.items() if name != leader)
        try:
            with self.servers[leader].administrator() as admin:
                [[written]] = admin.execute("SELECT pg_current_wal_flush_lsn()")
            with standby.administrator() as admin:
                query = "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= %s::pg_lsn"
                deadline = time.monotonic() + 1
                while time.monotonic() < deadline:
                    if admin.execute(query, (written,)).fetchone() == (True,):
                        return True
                    time.sleep(0.02)
        except psycopg.Error:
            pass
        return False

    def fail_over(self, lag: float) -> None:
        """Kill the primary, and promote the standby, which has not received for ``lag`` seconds."""
        leader = self.leader()
        assert leader is not None
        [standby] = (node for name, node in self.servers.items() if name != leader)
        if lag:
            standby.lag()
            time.sleep(lag)
        self.kill_node(leader)
        standby.promote()
        # What is left of the old one is overwritten, as operators do it.
        self.servers[leader].primary = standby
        shutil.rmtree(self.servers[leader].data)
