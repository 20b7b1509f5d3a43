"""How a client reaches PostgreSQL, and what is refused, with what to do about it."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_postgresql.access import check
from coordlock_postgresql.schema import set_up, source
from psycopg import sql

import coordlock
from coordlock.backend.config import configure
from coordlock.errors import AuthenticationFailed, BackendError, ConfigurationError
from coordlock.testing.waiting import eventually
from testbed.servers.certificates import Certificates
from testbed.servers.ports import free_port
from testbed.servers.postgres import Postgres, PostgresServer
from tests.integration.postgresql.conftest import Admin, excludes, url_in

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("no_leaks")]


@contextmanager
def role(server: Postgres, *defaults: str, may_lock: bool = True) -> Iterator[str]:
    """The URL of a role with these settings."""
    name = f"r{free_port()}"
    called = sql.Identifier(name)
    with server.administrator() as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 's3cret'").format(called))
        for default in defaults:
            admin.execute(sql.SQL("ALTER ROLE {} SET {}").format(called, sql.SQL(default)))
        if may_lock:
            admin.execute(sql.SQL("GRANT USAGE ON SCHEMA coordlock TO {}").format(called))
        yield server.url_for().replace(f"{server.url.username}:", f"{name}:s3cret", 1)
        admin.execute(sql.SQL("DROP OWNED BY {}").format(called))
        admin.execute(sql.SQL("DROP ROLE {}").format(called))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql+psycopg"])
def test_a_url_that_programs_have_already_is_taken(
    postgresql: Postgres, root: str, scheme: str
) -> None:
    url = postgresql.url_for(root).replace("postgresql:", f"{scheme}:")
    excludes(f"{url}?sslmode=prefer&application_name=app&target_session_attrs=read-write")


def test_a_root_is_below_the_database(postgresql: Postgres) -> None:
    with (
        coordlock.connect(postgresql.url_for()) as usual,
        coordlock.connect(postgresql.url_for("/coordlock")) as named,
        usual.lock("b"),
    ):
        assert named.lock("b").try_acquire() is None


def test_a_host_that_is_away_is_passed_over(postgresql: Postgres, root: str) -> None:
    url = postgresql.url_for(root)
    excludes(url.replace("@", f"@127.0.0.1:{free_port()},"))


def test_a_password_comes_from_a_file(postgresql: Postgres, root: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    passwords = tmp_path / "pgpass"
    passwords.write_text("*:*:*:*:s3cret\n")
    passwords.chmod(0o600)
    with role(postgresql) as url:
        without = url.replace(":s3cret", "") + root
        excludes(f"{without}?password_file={tmp_path}/secret")
        excludes(f"{without}?passfile={passwords}")


def test_tls_checks_the_servers_certificate(
    tmp_path: Path, certificates: Certificates, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresServer(tmp_path / "server") as server:
        server.set_up()
        owner = server.data.stat()
        for source, name in (
            (certificates.server, "server.crt"),
            (certificates.server_key, "server.key"),
        ):
            copy = server.data / name
            shutil.copy(source, copy)
            os.chown(copy, owner.st_uid, owner.st_gid)
            copy.chmod(0o600)
        server.set("ssl", "on")
        url = server.url_for(root, sslmode="verify-full", sslrootcert=certificates.ca)
        excludes(url)
        with coordlock.connect(url), server.administrator() as admin:
            query = (
                "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                "WHERE application_name = 'coordlock'"
            )
            assert admin.execute(query).fetchall() == [(True,)]
        monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
        with pytest.raises(AuthenticationFailed, match="does not match host name"):
            coordlock.connect(url.replace("127.0.0.1", "db1.example"))
        with pytest.raises(AuthenticationFailed, match="certificate verify failed"):
            coordlock.connect(url.replace(certificates.ca.name, certificates.client.name))


@pytest.mark.parametrize(
    "default",
    [
        "default_transaction_isolation = serializable",
        "default_transaction_isolation = 'repeatable read'",
        "default_transaction_read_only = on",
        "synchronous_commit = off",
        "search_path = pg_temp",
        "client_encoding = LATIN1",
        "standard_conforming_strings = off",
    ],
)
def test_the_defaults_of_a_role_change_nothing(
    postgresql: Postgres, root: str, default: str
) -> None:
    with role(postgresql, default) as url:
        excludes(url + root)


def test_a_role_needs_one_right(postgresql: Postgres, root: str) -> None:
    with role(postgresql, may_lock=False) as url:
        with pytest.raises(AuthenticationFailed, match="GRANT USAGE ON SCHEMA coordlock") as caught:
            coordlock.connect(url + root)
        assert "s3cret" not in str(caught.value) + repr(caught.value)


def test_to_make_the_schema_a_role_needs_one_right(postgresql: Postgres, database: str) -> None:
    with postgresql.administrator(database) as admin, role(postgresql, may_lock=False) as url:
        url = url.replace("/postgres", f"/{database}")
        settings = configure(url)
        with pytest.raises(AuthenticationFailed, match="permission denied for database") as caught:
            set_up(settings)
        assert "GRANT USAGE" not in str(caught.value)
        admin.execute(f"GRANT CREATE ON DATABASE {database} TO {settings.username}".encode())
        assert set_up(settings)
        excludes(url)
        admin.execute(f"DROP OWNED BY {settings.username} CASCADE".encode())


def test_setup_upgrades_an_older_schema_and_keeps_its_locks(
    postgresql: Postgres, database: str
) -> None:
    url = url_in(postgresql, database)
    settings = configure(url)
    assert set_up(settings)
    older = "CREATE OR REPLACE FUNCTION coordlock.schema_version() RETURNS int LANGUAGE sql AS "
    with coordlock.connect(url) as client, postgresql.administrator(database) as admin:
        held = client.lock("a").acquire()
        admin.execute(f"{older} 'SELECT 0'".encode())
        admin.execute("DROP FUNCTION coordlock.clock")
        assert set_up(settings)
        assert not set_up(settings)
        held.check()
        with coordlock.connect(url) as other:
            assert other.lock("a").try_acquire() is None
            held.release()
            with other.lock("a").acquire(timeout=10) as later:
                assert later.token > held.token
        excludes(url)


def test_doctor_names_a_sequence_whose_tokens_may_not_grow(
    postgresql: Postgres, database: str
) -> None:
    url = url_in(postgresql, database)
    set_up(configure(url))
    with coordlock.connect(url) as client, postgresql.administrator(database) as admin:
        assert "coordlock.token" not in str(client.admin.describe().warnings)
        for change in ("CACHE 20", "CACHE 1 CYCLE", "NO CYCLE MAXVALUE 549755813888"):
            admin.execute(f"ALTER SEQUENCE coordlock.token {change}".encode())
            assert "coordlock.token was altered" in str(client.admin.describe().warnings)


def test_a_missing_schema_is_named_with_the_command_that_makes_it(
    postgresql: Postgres, database: str
) -> None:
    url = url_in(postgresql, database)
    with pytest.raises(BackendError, match=r"no schema coordlock: run `coordlock setup"):
        coordlock.connect(url)
    with postgresql.administrator(database) as admin:
        admin.execute(source().encode())
    excludes(url)


def test_several_programs_make_the_schema_at_once(postgresql: Postgres, database: str) -> None:
    url = url_in(postgresql, database)
    settings = configure(url)
    with postgresql.administrator(database) as admin:
        admin.execute("CREATE SCHEMA coordlock")  # as an administrator may have done
        admin.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'").format(
                sql.Identifier(database)
            )
        )
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: set_up(settings), range(4)))
    assert sorted(made) == [False, False, False, True]
    excludes(url)


@pytest.mark.parametrize(("version", "advice"), [(0, "run `coordlock setup"), (9, "update")])
def test_a_schema_of_another_version_is_refused(
    postgresql: Postgres, database: str, version: int, advice: str
) -> None:
    with postgresql.administrator(database) as admin:
        text = source().replace("AS 'SELECT 1'", f"AS 'SELECT {version}'")
        admin.execute(text.encode())
    with pytest.raises(BackendError, match=f"has version {version}.* needs 1: {advice}"):
        coordlock.connect(url_in(postgresql, database))


@pytest.mark.parametrize(
    ("version", "is_standby", "problem"),
    [(120017, False, "PostgreSQL 12: coordlock needs 13"), (150001, True, "is a standby")],
)
def test_an_old_server_and_a_standby_are_refused(
    version: int, is_standby: bool, problem: str
) -> None:
    connection: Any = SimpleNamespace(
        info=SimpleNamespace(server_version=version), execute=lambda query: [[is_standby]]
    )
    with pytest.raises(BackendError, match=problem):
        check(connection)


def test_a_schema_that_was_altered_is_named_with_what_to_do(
    postgresql: Postgres, database: str
) -> None:
    url = url_in(postgresql, database)
    set_up(configure(url))
    with postgresql.administrator(database) as admin:
        admin.execute("DROP FUNCTION coordlock.open")
        with pytest.raises(BackendError, match=r"DROP SCHEMA coordlock CASCADE.*coordlock setup"):
            coordlock.connect(url)
        admin.execute("DROP SCHEMA coordlock CASCADE")
    assert set_up(configure(url))
    excludes(url)


def test_a_pause_that_is_shorter_than_a_living_session_is_refused(
    postgresql: Postgres, database: str
) -> None:
    url = url_in(postgresql, database, ttl="80s")
    settings = configure(url)
    set_up(settings, max_ttl=90)
    with (
        coordlock.connect(url),
        pytest.raises(ConfigurationError, match="70s is shorter than the ttl=80s"),
    ):
        set_up(settings, max_ttl=70)
    set_up(settings, max_ttl=70)
    with pytest.raises(BackendError, match="ttl=80 is longer than the 70 s"):
        coordlock.connect(url)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_in_another_encoding_keeps_names_and_keys(
    postgresql: Postgres, database: str, admin: Admin, encoding: str
) -> None:
    admin.execute(f"DROP DATABASE {database}".encode())
    admin.execute(
        f"CREATE DATABASE {database} TEMPLATE template0 ENCODING '{encoding}' "
        "LC_COLLATE 'C' LC_CTYPE 'C'".encode()
    )
    url = postgresql.url_for("/\xdc", label="\xf6").replace("/postgres", f"/{database}")
    set_up(configure(url))
    with (
        coordlock.connect(url) as client,
        client.lock("\xe4").acquire() as grant,
        client.value("/\xfc").observe() as observer,
    ):
        assert observer.next(timeout=30) is None
        client.value("/\xfc").set(b"1")
        seen = observer.next(timeout=30)
        assert seen is not None
        assert seen.data == b"1"
        grant.transaction().put("/app/\xfc", b"1").commit()
        kept = grant.read("/app/\xfc")
        assert kept is not None
        assert kept.data == b"1"
        [contender] = client.admin.contenders("\xe4")
        assert contender.owner is not None
        assert contender.owner.label == "\xf6"


def test_a_session_that_begins_while_a_backup_is_declared_restored_has_ended(
    postgresql: Postgres, database: str
) -> None:
    settings = configure(url_in(postgresql, database))
    set_up(settings)
    with (
        postgresql.administrator(database) as admin,
        postgresql.administrator(database) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        with admin.transaction():
            admin.execute(
                "SELECT coordlock.open(jsonb_populate_record(NULL::coordlock.arguments, "
                """'{"session": "x-1", "ttl": "10 s", "former": []}'))"""
            )
            declared = pool.submit(set_up, settings, restored=True)
            waits = "SELECT count(*) FROM pg_locks WHERE relation = 'coordlock.epoch'::regclass "
            eventually(
                lambda: (
                    declared.done()
                    or other.execute(f"{waits} AND NOT granted".encode()).fetchone() == (1,)
                )
            )
        declared.result()
        found = other.execute("SELECT DISTINCT timeline FROM coordlock.session").fetchall()
        assert found == [("restored",)]


def test_a_missing_database_is_named(postgresql: Postgres) -> None:
    with pytest.raises(BackendError, match='"nowhere" does not exist'):
        coordlock.connect(postgresql.url_for().replace("/postgres", "/nowhere"))


@pytest.mark.parametrize("listen", ["db1", "db1:", "db1:port", "db1:5432,", "on"])
def test_a_place_to_listen_needs_a_host_and_a_port(listen: str) -> None:
    with pytest.raises(ConfigurationError, match="not off, or host:port"):
        coordlock.connect(f"postgresql://db/app?listen={listen}")


def test_a_server_of_another_kind_is_named() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as mysql:

        def greet() -> None:
            with suppress(OSError):  # until it is closed
                while True:
                    client, _ = mysql.accept()
                    with client:
                        client.sendall(b"J\x00\x00\x00\x0a8.0.33\x00" + client.recv(8))

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"postgresql://u:s3cret@127.0.0.1:{mysql.getsockname()[1]}/d?connect_timeout=2s"
        with pytest.raises(BackendError, match="is this a PostgreSQL") as caught:
            coordlock.connect(url)
        mysql.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "s3cret" not in str(caught.value) + repr(caught.value)


def test_a_value_may_have_a_megabyte(postgresql: Postgres, root: str) -> None:
    data = bytes(range(256)) * 4096
    with coordlock.connect(postgresql.url_for(root)) as client, client.lock("a") as grant:
        grant.transaction().put("/app/large", data).commit()
        assert (kept := grant.read("/app/large")) is not None
        assert kept.data == data


def test_nothing_says_a_password(
    postgresql: Postgres, root: str, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with role(postgresql) as url, coordlock.connect(url + root) as client:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s",
            (configure(url).username,),
        )
        client.lock("a").acquire(timeout=20).release()
        assert "s3cret" not in repr(client) + repr(vars(client))
    assert "s3cret" not in caplog.text
