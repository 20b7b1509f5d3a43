"""PostgreSQL servers."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from coordlock_postgresql.schema import set_up
from sqlalchemy import URL, create_engine, make_url, text

from coordlock.backend.config import configure
from testbed.servers.endpoint import Endpoint, Service
from testbed.servers.ports import free_port
from testbed.servers.process import ServerFailed, ServerProcess

__all__ = ["ExternalPostgres", "Postgres", "PostgresServer", "postgres_is_installed"]


def _programs() -> Path | None:
    """The directory of the server's programs: Debian's newest, or the one on the path."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    if found := sorted(versions, key=lambda path: float(path.parts[-3])):
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def postgres_is_installed() -> bool:
    """Whether the server's programs are where Debian keeps them, or on the path."""
    return _programs() is not None


class Postgres(Service):
    """What tests ask of a PostgreSQL, whoever started it."""

    @property
    @abstractmethod
    def url(self) -> URL:  # type: ignore[override]
        """Where it is, for SQLAlchemy: the driver is psycopg, for sync and asyncio."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it is, for coordlock; the path of each URL begins with the database."""
        host = f"{self.url.host}:{self.url.port or 5432}"
        return Endpoint("postgresql", (host,), self.url.username, self.url.password)

    def url_for(self, root: str = "", **options: object) -> str:
        """The URL for ``coordlock.connect``, once `set_up` was called."""
        return super().url_for(f"/{self.url.database}{root}", **options)

    def set_up(self) -> None:
        """Make coordlock's schema."""
        set_up(configure(self.url_for()))

    @contextmanager
    def schema(self) -> Iterator[URL]:
        """The URL of an empty schema, which is dropped at the end."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        engine = create_engine(self.url)
        try:
            with engine.begin() as connection:
                connection.execute(text(f"CREATE SCHEMA {name}"))
            yield self.url.update_query_dict({"options": f"-csearch_path={name}"})
            with engine.begin() as connection:
                connection.execute(text("SET LOCAL lock_timeout = '10s'"))
                connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
        finally:
            engine.dispose()


class ExternalPostgres(Postgres):
    """A PostgreSQL that somebody else runs, with ``track_commit_timestamp`` on."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")

    @property
    def url(self) -> URL:
        return self._url


class PostgresServer(Postgres, ServerProcess):
    """One server, on TCP only.

    PostgreSQL refuses to run as root. For root it runs as an unprivileged user, with its data in a
    directory of its own that is removed at the end, because that user cannot enter ``directory``.

    Args:
        directory: for its data and log.
        durable: wait for the disk at each commit, as real servers do. Else a crash of the machine
            loses the data; a killed server loses nothing either way.
    """

    USER: Final = "coord"

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        super().__init__(directory)
        self._durable = durable
        self._user = _unprivileged_user() if os.geteuid() == 0 else None
        self._shelter: tempfile.TemporaryDirectory[str] | None = None

    def choose_ports(self) -> None:
        self._port = free_port()

    @property
    def url(self) -> URL:
        return URL.create(
            "postgresql+psycopg", self.USER, None, "127.0.0.1", self._port, "postgres"
        )

    def command(self) -> list[str]:
        programs = _programs()
        if programs is None:
            raise ServerFailed("PostgreSQL is not installed")
        if not (self.data / "PG_VERSION").exists():
            self._create_cluster(programs / "initdb")
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": "",
            "max_connections": 100,
            "shared_buffers": "32MB",
            # The order of commits, as the server saw it.
            "track_commit_timestamp": "on",
            "fsync": "on" if self._durable else "off",
            "full_page_writes": "on" if self._durable else "off",
            "wal_level": "minimal",
            "max_wal_senders": 0,
            "autovacuum": "off",
        }
        options = [f"-c{name}={value}" for name, value in settings.items()]
        return [*self._as_user(), str(programs / "postgres"), "-D", str(self.data), *options]

    def _create_cluster(self, initdb: Path) -> None:
        """Make ``data``, where `USER` may do everything, without a password."""
        if self._user:
            self._shelter = tempfile.TemporaryDirectory(prefix="coordlock-postgres-")
            os.chown(self._shelter.name, self._user.pw_uid, self._user.pw_gid)
            self.data = Path(self._shelter.name) / "data"
        # -N: no fsync. Locale C needs no locale packages and no look at the system's collations.
        options = ["-N", "-A", "trust", "-U", self.USER, "-E", "UTF8", "--locale=C"]
        command = [*self._as_user(), str(initdb), "-D", str(self.data), *options]
        made = subprocess.run(
            command, cwd="/", check=False, capture_output=True, text=True, timeout=60
        )
        if made.returncode:
            raise ServerFailed(f"initdb failed:\n{made.stdout}{made.stderr}")

    def _as_user(self) -> list[str]:
        if self._user is None:
            return []
        # The signal at the parent's death is asked for again: a change of user cancels it.
        ids = [f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]
        return ["setpriv", *ids, "--pdeathsig", "KILL", "--"]

    def answers(self) -> bool:
        try:
            with psycopg.connect(
                host="127.0.0.1",
                port=self._port,
                user=self.USER,
                dbname="postgres",
                connect_timeout=1,
            ) as connection:
                # It is this server that answers, and not another one that had taken the port.
                return connection.execute("SHOW data_directory").fetchone() == (str(self.data),)
        except psycopg.Error:
            return False

    def stop(self) -> None:
        """End the server in order, its connections too. Idempotent."""
        self._end(signal.SIGINT)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._shelter:
            self._shelter.cleanup()


def _unprivileged_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerFailed(
        "PostgreSQL refuses to run as root, and there is neither postgres nor nobody"
    )
