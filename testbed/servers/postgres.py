"""PostgreSQL servers."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
from coordlock_postgresql.schema import set_up
from sqlalchemy import URL, create_engine, make_url, text

from coordlock.backend.config import configure
from coordlock.testing.waiting import eventually
from testbed.servers.endpoint import Endpoint
from testbed.servers.ports import free_port
from testbed.servers.process import ServerFailed, ServerProcess

__all__ = [
    "ExternalPostgres",
    "PgBouncer",
    "Postgres",
    "PostgresServer",
    "PostgresStandby",
    "pgbouncer_is_installed",
    "postgres_is_installed",
]


#: The directory of another release's programs, which bring their libraries along.
_RELEASE: Final = os.environ.get("COORDLOCK_TEST_POSTGRES_BIN")


def _programs() -> Path | None:
    """The directory of the programs: another release's, Debian's newest, or the one on the path."""
    if _RELEASE:
        return Path(_RELEASE)
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    if found := sorted(versions, key=lambda path: float(path.parts[-3])):
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def postgres_is_installed() -> bool:
    """Whether the server's programs are where Debian keeps them, or on the path."""
    return _programs() is not None


def pgbouncer_is_installed() -> bool:
    """Whether the pooler is where Debian keeps it, or on the path."""
    return _pgbouncer() is not None


def _pgbouncer() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Postgres(ABC):
    """What tests ask of a PostgreSQL, whoever started it."""

    @property
    @abstractmethod
    def url(self) -> URL:
        """Where it is, for SQLAlchemy: the driver is psycopg, for sync and asyncio."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it is, for coordlock; the path of each URL begins with the database."""
        return Endpoint(
            "postgresql", (f"{self.host}:{self.port}",), self.url.username, self.url.password
        )

    def url_for(self, root: str = "", **options: object) -> str:
        """The URL for ``coordlock.connect``, once `set_up` was called."""
        return self.endpoint.url(f"/{self.url.database}{root}", **options)

    @property
    def host(self) -> str:
        """The host."""
        return self.url.host or ""

    @property
    def port(self) -> int:
        """The port."""
        return self.url.port or 5432

    def uri(self, database: str | None = None, *, user: str | None = None) -> str:
        """Where it is, or a database of it, for libpq."""
        url = self.url.set(drivername="postgresql", database=database, username=user)
        return url.render_as_string(hide_password=False)

    def administrator(self, database: str | None = None) -> psycopg.Connection[Any]:
        """A connection that commits each statement."""
        return psycopg.connect(self.uri(database), connect_timeout=30, autocommit=True)

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
        replicates: write what a `PostgresStandby` needs, and a `PostgresqlObserver`.
        max_connections: how many clients it serves, of which three are administrators.
        environment: what is put into its environment.
    """

    USER: Final = "coord"

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = False,
        replicates: bool = False,
        max_connections: int = 100,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory)
        self._durable = durable
        self._replicates = replicates
        self._max_connections = max_connections
        self._environment = environment or {}
        self._shelter: tempfile.TemporaryDirectory[str] | None = None

    def choose_ports(self) -> None:
        self._port = free_port()

    @property
    def url(self) -> URL:
        return URL.create(
            "postgresql+psycopg", self.USER, None, "127.0.0.1", self._port, "postgres"
        )

    def command(self) -> list[str]:
        if not (self.data / "PG_VERSION").exists():
            if os.geteuid() == 0:
                user = _unprivileged_user()
                self._shelter = tempfile.TemporaryDirectory(prefix="coordlock-postgres-")
                os.chown(self._shelter.name, user.pw_uid, user.pw_gid)
                self.data = Path(self._shelter.name) / "data"
            self._create_data()
        options = [f"-c{name}={value}" for name, value in self._settings().items()]
        environment = [f"{name}={value}" for name, value in self._environment.items()]
        program = _program("postgres")
        return [*_as_user(), "env", *environment, *program, "-D", str(self.data), *options]

    def _settings(self) -> dict[str, object]:
        return {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": "",
            "max_connections": self._max_connections,
            "shared_buffers": "32MB",
            # The order of commits, as the server saw it.
            "track_commit_timestamp": "on",
            "fsync": "on" if self._durable else "off",
            "full_page_writes": "on" if self._durable else "off",
            "wal_level": "logical" if self._replicates else "minimal",
            "max_wal_senders": 4 if self._replicates else 0,
            "autovacuum": "off",
        }

    def _create_data(self) -> None:
        """Make ``data``, where `USER` may do everything, without a password."""
        # -N: no fsync. Locale C needs no locale packages and no look at the system's collations.
        _run(
            "initdb",
            "-N",
            "-A",
            "trust",
            "-U",
            self.USER,
            "-E",
            "UTF8",
            "--locale=C",
            "-D",
            self.data,
        )

    def set(self, name: str, value: str) -> None:
        """Change a setting, until it is changed again."""
        with self.administrator() as admin:
            admin.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            admin.execute("SELECT pg_reload_conf()")
            eventually(lambda: admin.execute(f"SHOW {name}".encode()).fetchone() == (value,))

    def answers(self) -> bool:
        try:
            with self.administrator() as connection:
                # It is this server that answers, and not another one that had taken the port.
                return connection.execute("SHOW data_directory").fetchone() == (str(self.data),)
        except psycopg.Error:
            return False

    def pause(self) -> None:
        """Freeze the server with the processes of its connections."""
        super().pause()
        for pid in self._children():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._children():
            os.kill(pid, signal.SIGCONT)
        super().resume()

    def kill(self) -> None:
        """End the server and the processes of its connections without warning. Idempotent."""
        children = self._children() if self.is_running else []
        super().kill()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A server does not start while another has its memory.
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))

    def _children(self) -> list[int]:
        # The forked processes have sessions of their own.
        threads = Path(f"/proc/{self.pid}/task")
        return [int(pid) for each in threads.glob("*/children") for pid in each.read_text().split()]

    def stop(self) -> None:
        """End the server in order, its connections too. Idempotent."""
        children = self._children() if self.is_running else []
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._end(signal.SIGINT)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._shelter:
            self._shelter.cleanup()


class PostgresStandby(PostgresServer):
    """A standby of ``primary``, which runs already. It lags only after `lag`.

    Clients of the primary wait for it once its `NAME` is in ``synchronous_standby_names``.
    """

    NAME: Final = "standby"

    def __init__(self, directory: Path, primary: PostgresServer) -> None:
        super().__init__(directory, replicates=True)
        self.primary = primary

    def _create_data(self) -> None:
        """Copy the primary's, while it runs. Not by pg_basebackup, which not all releases bring."""
        source = f"host=127.0.0.1 port={self.primary.port} user={self.USER}"
        with self.primary.administrator() as admin:
            is_old = admin.info.server_version < 150000
            start, stop = (
                ("pg_start_backup('standby', true, false)", "pg_stop_backup(false, false)")
                if is_old
                else ("pg_backup_start('standby', true)", "pg_backup_stop(false)")
            )
            admin.execute(f"SELECT {start}".encode())
            ignored = shutil.ignore_patterns("postmaster.*", "pg_replslot", "pgsql_tmp*")
            shutil.copytree(
                self.primary.data, self.data, ignore=ignored, copy_function=_copy_if_there
            )
            [(label,)] = admin.execute(f"SELECT labelfile FROM {stop}".encode()).fetchall()
        (self.data / "pg_replslot").mkdir()
        (self.data / "backup_label").write_text(label)
        (self.data / "standby.signal").touch()
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{source} application_name={self.NAME}'\n")
        owner = self.data.parent.stat()
        for path in (self.data, *self.data.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)

    def lag(self) -> None:
        """Receive no more of what the primary writes."""
        self.set("primary_conninfo", "")
        with self.administrator() as admin:
            gone = "SELECT count(*) FROM pg_stat_wal_receiver"
            eventually(lambda: admin.execute(gone).fetchone() == (0,))

    def catch_up(self) -> None:
        """Have all that the primary has written."""
        with self.primary.administrator() as admin:
            [(written,)] = admin.execute("SELECT pg_current_wal_insert_lsn()").fetchall()
        with self.administrator() as admin:
            eventually(
                lambda: (
                    admin.execute(
                        "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)
                    ).fetchone()
                    == (True,)
                )
            )

    def promote(self) -> None:
        """Be a primary. The checkpoint that would name the new timeline comes later."""
        with self.administrator() as admin:
            assert admin.execute("SELECT pg_promote()").fetchone() == (True,)


class PgBouncer(Postgres, ServerProcess):
    """A pooler before ``server``.

    Args:
        mode: session, transaction or statement.
    """

    def __init__(self, directory: Path, server: Postgres, mode: str) -> None:
        super().__init__(directory)
        self._server = server
        self._mode = mode

    def choose_ports(self) -> None:
        self._port = free_port()

    @property
    def url(self) -> URL:
        return self._server.url.set(host="127.0.0.1", port=self._port)

    def command(self) -> list[str]:
        # Readable by the unprivileged user, and dead with the process.
        users = self.directory / "users"
        users.write_text(f'"{self._server.url.username}" ""\n')
        file = self.directory / "pgbouncer.ini"
        file.write_text(
            f"[databases]\n* = host={self._server.url.host} port={self._server.url.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\n"
            f"unix_socket_dir =\nauth_type = trust\nauth_file = {users}\n"
            f"pool_mode = {self._mode}\ndefault_pool_size = 10\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        program = _pgbouncer()
        assert program is not None
        # It reads its files before it changes the user.
        user = ["-u", _unprivileged_user().pw_name] if os.geteuid() == 0 else []
        return [program, *user, str(file)]

    def answers(self) -> bool:
        try:
            with self.administrator() as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.Error:
            return False


def _copy_if_there(source: str, target: str) -> None:
    """Copy a file, which the server may have removed meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _program(name: str) -> list[str]:
    if (programs := _programs()) is None or not (program := programs / name).exists():
        raise ServerFailed(f"PostgreSQL's {name} is not installed")
    libraries = [f"LD_LIBRARY_PATH={programs.parent / 'lib'}"] if _RELEASE else []
    return ["env", *libraries, str(program)]


def _run(program: str, *arguments: object) -> None:
    made = subprocess.run(
        [*_as_user(), *_program(program), *map(str, arguments)],
        cwd="/",
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if made.returncode:
        raise ServerFailed(f"{program} failed:\n{made.stdout}{made.stderr}")


def _as_user() -> list[str]:
    """What begins a command line, for root: PostgreSQL refuses it."""
    if os.geteuid() != 0:
        return []
    user = _unprivileged_user()
    # The signal at the parent's death is asked for again: a change of user cancels it.
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, "--pdeathsig", "KILL", "--"]


def _unprivileged_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerFailed(
        "PostgreSQL refuses to run as root, and there is neither postgres nor nobody"
    )
