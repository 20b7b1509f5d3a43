"""Django: commands on several hosts, transactions inside of locks, the fence, and its own tests."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import unittest
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import IntegrityError, connections, transaction
from django.test import Client, TestCase, override_settings
from django.urls import path
from sqlalchemy import URL, create_engine, text

import coordlock
from coordlock.fencing import Marks, Presented
from coordlock.testing.fence_contract import FenceContract, Protected
from coordlock.testing.waiting import eventually
from testbed.servers.postgres import Postgres
from tests.unit.test_misuse import LAZY

BOUND = 120.0

# This process's Django: the databases are the tests' own.
settings.configure(
    COORDLOCK={"url": "memory://tests", "timeout": 60},
    DATABASES={},
    INSTALLED_APPS=["coordlock.integrations.django"],
    LOGGING_CONFIG=None,
)
django.setup()

from coordlock.integrations.django import (  # noqa: E402 - it needs the settings
    DjangoFence,
    get_client,
    locked_atomic,
)
from coordlock.integrations.django.models import FenceMark  # noqa: E402


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """A SQLite database with the table of fences; its alias."""
    with added({"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "db"}) as alias:
        yield alias


@pytest.fixture
def postgresql_database(postgresql: Postgres, root: str) -> Iterator[str]:
    """A database of PostgreSQL, which has the locks, too; its alias."""
    with (
        postgresql.schema() as url,
        added(in_postgresql(url)) as alias,
        override_settings(COORDLOCK={"url": postgresql.url_for(root), "timeout": 60}),
    ):
        yield alias
        get_client().close()


def in_postgresql(url: URL) -> dict[str, Any]:
    """The settings of a database."""
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.database,
        "USER": url.username,
        "PASSWORD": url.password,
        "HOST": url.host,
        "PORT": url.port,
        "OPTIONS": dict(url.query),
    }


@contextlib.contextmanager
def added(configuration: dict[str, Any]) -> Iterator[str]:
    """One more database."""
    alias = f"t{uuid.uuid4().hex[:12]}"
    connections.settings |= connections.configure_settings(
        {"default": {}, alias: configuration | {"TIME_ZONE": None}}
    )
    try:
        call_command("migrate", database=alias, verbosity=0)
        yield alias
    finally:
        connections[alias].close()
        del connections.settings[alias]


# Transactions


def write(alias: str, resource: str) -> None:
    FenceMark.objects.using(alias).create(resource=resource)


def written(alias: str) -> list[str]:
    return sorted(FenceMark.objects.using(alias).values_list("resource", flat=True))


def test_the_commit_comes_before_the_release(database: str) -> None:
    with locked_atomic("q", using=database) as grant:
        assert transaction.get_connection(database).in_atomic_block
        assert grant.state is coordlock.GrantState.HELD
        write(database, "x")
    assert written(database) == ["x"]
    assert get_client().admin.contenders("q") == ()


def test_it_decorates_functions(database: str) -> None:
    @locked_atomic("q", using=database)
    def book(resource: str) -> None:
        assert len(get_client().admin.contenders("q")) == 1
        write(database, resource)

    book("x")
    book("y")
    assert written(database) == ["x", "y"]


def test_a_lock_that_was_lost_rolls_the_transaction_back(database: str) -> None:
    client = get_client()

    def lose() -> None:
        with locked_atomic(client.lock("q"), using=database) as grant:
            write(database, "x")
            client.admin.evict_all("q")
            assert grant.lost.wait(BOUND)

    with pytest.raises(coordlock.LockLost):
        lose()
    assert written(database) == []


def test_an_open_transaction_is_refused_before_the_lock_is_acquired(database: str) -> None:
    with transaction.atomic(using=database):
        with pytest.raises(RuntimeError, match=r"@transaction\.non_atomic_requests"):
            locked_atomic("q", using=database).__enter__()
        assert get_client().admin.contenders("q") == ()


def test_autocommit_that_is_off_is_refused(database: str) -> None:
    transaction.set_autocommit(False, using=database)
    with pytest.raises(RuntimeError, match="leave autocommit on"):
        locked_atomic("q", using=database).__enter__()


@pytest.mark.postgres
def test_lock_and_data_end_in_one_commit_in_the_database_that_has_the_locks(
    postgresql_database: str,
) -> None:
    at_commit: list[object] = []
    admin = get_client().admin
    with locked_atomic("q", using=postgresql_database):
        with pytest.raises(coordlock.errors.BackendError, match="a transaction of a program"):
            admin.evict_all("q")
        write(postgresql_database, "x")
        transaction.on_commit(
            lambda: at_commit.append(admin.contenders("q")), using=postgresql_database
        )
    assert at_commit == [()]
    assert written(postgresql_database) == ["x"]
    with pytest.raises(IntegrityError), locked_atomic("q", using=postgresql_database):
        write(postgresql_database, "x")
    eventually(lambda: not admin.contenders("q"), within=BOUND)


@pytest.mark.postgres
def test_a_lost_lock_does_not_pass_for_one_of_another_database(
    postgresql: Postgres, postgresql_database: str
) -> None:
    @contextlib.contextmanager
    def lost() -> Iterator[coordlock.Grant]:
        with get_client().lock("q") as grant, psycopg.connect(uri, autocommit=True) as admin:
            admin.execute("DELETE FROM coordlock.contender WHERE token = %s", (grant.token,))
            yield grant

    uri = postgresql.uri()
    repeatable = {"isolation_level": psycopg.IsolationLevel.REPEATABLE_READ}
    with (
        postgresql.schema() as url,
        added({**in_postgresql(url), "OPTIONS": {**url.query, **repeatable}}) as alias,
        pytest.raises((ValueError, coordlock.LockLost)) as raised,
        locked_atomic(lost(), using=alias),  # type: ignore[arg-type]  # no lock, but gives a grant
    ):
        pytest.fail("the block ran without the lock")
    assert "lost" in str(raised.value)


@pytest.mark.postgres
def test_a_connection_of_django_can_be_guarded_within_a_transaction(
    postgresql_database: str,
) -> None:
    own = connections[postgresql_database]
    with get_client().lock("q") as grant:
        with pytest.raises(ValueError, match="begin a transaction"):
            grant.guard(own)
        with transaction.atomic(using=postgresql_database):
            grant.guard(own)
            grant.release_with(own)
            assert get_client().admin.contenders("q")


@pytest.mark.postgres
def test_a_database_without_the_locks_is_committed_before_the_release(
    postgresql: Postgres, postgresql_database: str
) -> None:
    at_commit: list[int] = []
    engine = create_engine(postgresql.url, isolation_level="AUTOCOMMIT")
    name = f"d{uuid.uuid4().hex[:12]}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        with added(in_postgresql(postgresql.url.set(database=name))) as alias:
            with locked_atomic("q", using=alias):
                write(alias, "x")
                transaction.on_commit(
                    lambda: at_commit.append(len(get_client().admin.contenders("q"))), using=alias
                )
            assert written(alias) == ["x"]
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()
    assert at_commit == [1]


@pytest.mark.parametrize(
    "alias",
    ["database", pytest.param("postgresql_database", marks=pytest.mark.postgres)],
)
def test_it_works_in_a_test_case_of_django(request: pytest.FixtureRequest, alias: str) -> None:
    database: str = request.getfixturevalue(alias)

    class Case(TestCase):  # type: ignore[misc]  # Django has no types
        databases = {database}  # noqa: RUF012 - as Django's users write it

        def runTest(self) -> None:  # noqa: N802 - unittest's name
            for resource in ("x", "y"):
                with locked_atomic("q", using=database):
                    write(database, resource)

    result = unittest.TestResult()
    unittest.TestSuite([Case()]).run(result)
    assert result.wasSuccessful(), result.errors
    assert written(database) == []


def test_a_fence_refuses_a_past_holder_in_the_transaction(database: str) -> None:
    client = get_client()
    with client.lock("q") as past:
        token = past.token
    with locked_atomic("q", using=database, fenced=True):
        write(database, "x")
    with transaction.atomic(using=database), pytest.raises(coordlock.StaleToken):
        DjangoFence(database).check("q", token)


def test_a_fence_needs_a_transaction(database: str) -> None:
    with pytest.raises(coordlock.ConfigurationError, match="inside of locked_atomic"):
        DjangoFence(database).check("q", 1)


class InDjango(Protected):
    """Integers in files, written in the transaction that checks."""

    def __init__(self, alias: str, directory: Path) -> None:
        self.alias, self.directory = alias, directory

    @contextlib.contextmanager
    def fence(self) -> Iterator[DjangoFence]:
        try:
            with transaction.atomic(using=self.alias):
                yield DjangoFence(self.alias)
        finally:
            connections[self.alias].close()  # the suite's threads end without that

    def _file(self, resource: str) -> Path:
        return self.directory / resource.encode().hex()[:200]

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        with self.fence() as fence:
            fence.check(resource, token, shared)
            file = self._file(resource)
            return int(file.read_text()) if file.exists() else 0

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        with self.fence() as fence:
            fence.check(resource, token, shared)
            self._file(resource).write_text(str(value))

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        with self.fence() as fence:
            fence.check(resource, token, shared)

    def marks(self, resource: str) -> Marks:
        with self.fence() as fence:
            return fence.marks(resource)

    def forget(self, resource: str) -> None:
        with self.fence() as fence:
            fence.forget(resource)


class TestDjangoFence(FenceContract):
    races = 20

    @pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
    def protected(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Protected]:
        configuration: dict[str, Any] = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": tmp_path / "db",
            # Whoever waits for SQLite's write lock asks again and again, in no order.
            "OPTIONS": {"timeout": 60},
        }
        with contextlib.ExitStack() as stack:
            if request.param == "postgres":
                server: Postgres = request.getfixturevalue("postgres")
                url = stack.enter_context(server.schema())
                configuration = in_postgresql(url)
            alias = stack.enter_context(added(configuration))
            yield InDjango(alias, tmp_path)


# A project, in processes

PROJECT = {
    "manage.py": """
        import os
        from django.core.management import execute_from_command_line

        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        execute_from_command_line()
    """,
    "settings.py": """
        import json, os

        COORDLOCK = json.loads(os.environ["SHOP_COORDLOCK"])
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db"}}
        INSTALLED_APPS = ["coordlock.integrations.django", "shop"]
        SECRET_KEY = "of the tests"
    """,
    "shop/__init__.py": "",
    "shop/models.py": """
        from coordlock.integrations.django import get_client

        client = get_client()  # as modules are imported, before Django's tests begin
    """,
    "shop/migrations/__init__.py": "",
    "shop/migrations/0001_initial.py": """
        import pathlib, time
        from django.db import migrations

        def work(apps, schema_editor):
            with open("ledger", "a") as ledger:
                ledger.write("begin ")
            while not pathlib.Path("go-on").exists():
                time.sleep(0.01)
            with open("ledger", "a") as ledger:
                ledger.write("end ")

        class Migration(migrations.Migration):
            operations = [migrations.RunPython(work)]
    """,
    "shop/tests.py": """
        from django.test import SimpleTestCase
        from coordlock.integrations.django import get_client
        from shop.models import client

        class Tests(SimpleTestCase):
            def test_production_is_not_locked(self):
                assert client is get_client()
                assert client.settings.scheme == "memory", client
                with client.lock("migrate", timeout=0):
                    pass
    """,
}


class Shop:
    """A project, whose commands run in processes."""

    def __init__(self, directory: Path, coordlock: str) -> None:
        for name, source in PROJECT.items():
            file = directory / "project" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(source))
        self.directory = directory / "project"
        self.started: list[subprocess.Popen[str]] = []
        self.coordlock = coordlock

    def start(self, *command: str, coordlock: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *command],
            cwd=self.directory,
            env={**os.environ, "SHOP_COORDLOCK": coordlock or self.coordlock},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def ledger(self) -> str:
        file = self.directory / "ledger"
        return file.read_text() if file.exists() else ""

    def go_on(self) -> None:
        (self.directory / "go-on").touch()


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"local://{tmp_path}/locks") as client:
        yield client


@pytest.fixture
def shop(tmp_path: Path, locks: coordlock.Client) -> Iterator[Shop]:
    shop = Shop(tmp_path, f'{{"url": "local://{tmp_path}/locks", "timeout": 60}}')
    yield shop
    for process in shop.started:
        process.kill()
        process.communicate()


def output(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=BOUND)[0]


def test_one_host_migrates_while_others_wait_and_another_when_that_one_is_killed(
    shop: Shop, locks: coordlock.Client
) -> None:
    hosts = [shop.start("locked", "migrate", "migrate", "--noinput") for _ in range(3)]
    eventually(lambda: len(locks.admin.contenders("migrate")) == 3, within=BOUND)
    eventually(shop.ledger, within=BOUND)
    owner = locks.admin.contenders("migrate")[0].owner
    assert owner is not None
    assert "manage.py migrate" in str(owner)
    [first] = [host for host in hosts if host.pid == owner.pid]
    first.kill()
    eventually(lambda: shop.ledger() == "begin begin ", within=BOUND)
    shop.go_on()
    told = [output(host) for host in hosts if host is not first]
    assert [host.returncode for host in hosts if host is not first] == [0, 0], told
    assert shop.ledger() == "begin begin end "
    assert sorted("No migrations to apply" in one for one in told) == [False, True]


def test_a_busy_lock_has_the_status_of_the_command_line(
    shop: Shop, locks: coordlock.Client
) -> None:
    with locks.lock("migrate"):
        late = shop.start("locked", "--timeout", "0", "migrate", "migrate")
        assert "lock 'migrate'" in output(late)
    assert late.returncode == 75


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("null", 'it is not set: write COORDLOCK = {"url":'),
        ("5", 'it is no URL and no dict: write COORDLOCK = {"url":'),
        ('{"ttl": 20}', "neither 'url' nor 'backend' is given, but ttl"),
        ('{"url": "local://", "tll": 20}', "has no option 'tll'"),
    ],
)
def test_settings_that_name_no_backend_are_refused_by_every_command(
    shop: Shop, given: str, told: str
) -> None:
    (shop.directory / "shop/models.py").write_text("")
    checked = shop.start("migrate", coordlock=given)
    said = output(checked)
    assert checked.returncode == 1
    assert "settings.COORDLOCK: " in said
    assert told in said


def test_the_tests_of_a_project_lock_what_their_settings_name(
    shop: Shop, locks: coordlock.Client
) -> None:
    with locks.lock("migrate"):
        tests = shop.start("test", "shop", coordlock='"memory://tests"')
        assert "OK" in output(tests)
    assert tests.returncode == 0


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (coordlock.AcquireTimeout("one", 5.0), 423, "1"),
        (coordlock.errors.WaitUnavailable("etcd", "no answer", "one", 5.0), 503, "5"),
        (coordlock.BackendUnavailable("etcd", "no answer"), 503, "5"),
        (coordlock.LockLost("one", 1, "it expired"), 503, "5"),
        (KeyError("one"), 500, None),
    ],
)
def test_a_view_without_its_lock_is_answered_as_what_it_is(
    error: Exception, status: int, retry_after: str | None
) -> None:
    def view(request: object) -> None:
        raise error

    with override_settings(
        ROOT_URLCONF=(path("", view),),
        ALLOWED_HOSTS=["*"],
        MIDDLEWARE=["coordlock.integrations.django.LockMiddleware"],
    ):
        answer = Client(raise_request_exception=False).get("/")
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, retry_after)


@pytest.mark.parametrize("function", LAZY)
def test_a_function_whose_body_would_run_after_the_transaction_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match=r"makes a (coroutine|generator), whose body .*: \w+"):
        locked_atomic("q")(function)
