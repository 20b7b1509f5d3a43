"""What tests of PostgreSQL share: connections, a database of their own, and a proxy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

import coordlock
from coordlock.testing.postgres_frames import PostgresFrames
from coordlock.testing.proxy import FaultProxy
from testbed.servers.endpoint import Endpoint
from testbed.servers.ports import free_port
from testbed.servers.postgres import Postgres

Admin = psycopg.Connection[Any]


def url_in(server: Postgres, database: str, **options: object) -> str:
    return server.url_for("", **options).replace("/postgres", f"/{database}")


def through(proxy: FaultProxy, server: Postgres, root: str, **options: object) -> str:
    own = server.endpoint
    hosts = (f"127.0.0.1:{proxy.port}",)
    path = f"/{server.url.database}{root}"
    return Endpoint("postgresql", hosts, own.username, own.password).url(path, **options)


def excludes(url: str) -> None:
    """Two clients exclude each other, and hand over."""
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        grant = one.lock("a").acquire(timeout=10)
        assert two.lock("a").try_acquire() is None
        waiter = threading.Thread(target=lambda: grant.release())
        waiter.start()
        with two.lock("a").acquire(timeout=10) as later:
            assert later.token > grant.token
        waiter.join()


@pytest.fixture
def admin(postgresql: Postgres) -> Iterator[Admin]:
    with postgresql.administrator() as admin:
        yield admin


@pytest.fixture
def database(admin: Admin) -> Iterator[str]:
    """A database of the test's own, without the schema."""
    name = f"d{free_port()}"
    admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield name
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def proxy(postgresql: Postgres) -> Iterator[FaultProxy]:
    with FaultProxy(postgresql.host, postgresql.port, PostgresFrames) as proxy:
        yield proxy
