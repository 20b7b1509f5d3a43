"""What fences cost: a guarded operation beside the same one without a guard."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import sqlalchemy as sa
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import rpc
from coordlock_etcd.backend import EtcdBackend
from coordlock_etcd.transport import Connection
from kazoo.client import KazooClient

import coordlock
from bench.field import in_turns
from bench.figures import Spread, ratios
from bench.progress import doing
from bench.table import Plot, Table
from coordlock.fencing import AsyncMemoryFence, MemoryFence
from coordlock.fencing.files import FileFence
from coordlock.fencing.http import FencingMiddleware, fenced
from coordlock.fencing.redis import RedisFence
from coordlock.fencing.sql import SQLFence, create_fence_table
from testbed.servers.etcd import EtcdServer
from testbed.servers.http import asgi_server
from testbed.servers.postgres import PostgresServer
from testbed.servers.redis import RedisServer
from testbed.servers.zookeeper import ZooKeeperServer

TOKEN: Final = 2**40
Call = Callable[[], object]


@dataclass(frozen=True)
class Pair:
    """One operation without a guard and with it."""

    what: str
    plain: Call
    guarded: Call
    calls: int = 50


@contextmanager
def sql(url: sa.URL | str, name: str) -> Iterator[Pair]:
    """A transaction with one UPDATE, and the same with a check before it."""
    engine = sa.create_engine(url)
    create_fence_table(engine)
    update = sa.text("UPDATE account SET balance = balance - 1 WHERE id = 1")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT)"))
        connection.execute(sa.text("INSERT INTO account VALUES (1, 0)"))

    def plain() -> None:
        with engine.begin() as connection:
            connection.execute(update)

    def guarded() -> None:
        with engine.begin() as connection:
            SQLFence(connection).check("alice", TOKEN)
            connection.execute(update)

    yield Pair(f"{name}: a transaction with one UPDATE", plain, guarded)
    engine.dispose()


@contextmanager
def sqlite(directory: Path) -> Iterator[Pair]:
    with sql(f"sqlite:///{directory / 'bank.db'}", "SQLite") as pair:
        yield pair


@contextmanager
def postgresql(directory: Path) -> Iterator[Pair]:
    with (
        PostgresServer(directory, durable=True) as server,
        server.schema() as url,
        sql(url, "PostgreSQL") as pair,
    ):
        yield pair


@contextmanager
def redis(directory: Path) -> Iterator[Pair]:
    with RedisServer(directory) as server, server.client() as client:
        fence = RedisFence(client)
        yield Pair(
            "Redis: SET",
            lambda: client.set("{alice}:balance", 70),
            lambda: fence.execute("alice", TOKEN, "SET", "{alice}:balance", 70),
            calls=200,
        )


@contextmanager
def etcd(directory: Path) -> Iterator[Pair]:
    with EtcdServer(directory) as server, coordlock.connect(server.url) as client:
        backend = client._engine.backend
        assert isinstance(backend, EtcdBackend)
        connection: Connection = backend._connection
        put = pb.TxnRequest(
            success=[pb.RequestOp(request_put=pb.PutRequest(key=b"/plain", value=b"on"))]
        )
        with client.lock("alice") as grant:
            yield Pair(
                "etcd: a transaction with one put",
                lambda: connection.call(rpc.TXN, put, lambda reply: reply).result(),
                lambda: grant.transaction().put("/guarded", b"on").commit(),
            )


@contextmanager
def zookeeper(directory: Path) -> Iterator[Pair]:
    with ZooKeeperServer(directory) as server:
        plain = KazooClient(hosts=",".join(server.endpoint.hosts))
        plain.start()
        plain.create("/plain")
        with coordlock.connect(client=plain) as client, client.lock("alice") as grant:
            grant.transaction().put("/guarded", b"on").commit()
            yield Pair(
                "ZooKeeper: a write to one znode",
                lambda: plain.set("/plain", b"on"),
                lambda: grant.transaction().put("/guarded", b"on").commit(),
            )
        plain.stop()
        plain.close()


@contextmanager
def files(directory: Path) -> Iterator[Pair]:
    fence, file = FileFence(directory / "fences"), directory / "report"

    def plain() -> None:
        """Replace a file, so that a crash leaves the old one or the new one."""
        new = file.with_suffix(".new")
        with new.open("wb") as opened:
            opened.write(b"all is well\n")
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)

    def guarded() -> None:
        with fence.guard("report", TOKEN):
            plain()

    yield Pair("files: a file replaced, with fsync", plain, guarded, calls=100)


@contextmanager
def memory(_: Path) -> Iterator[Pair]:
    fence, lock, values = MemoryFence(), threading.Lock(), {"alice": 0}

    def plain() -> None:
        with lock:
            values["alice"] = 70

    def guarded() -> None:
        with fence.guard("alice", TOKEN):
            values["alice"] = 70

    yield Pair("memory: an assignment under a mutex", plain, guarded, calls=1000)


@contextmanager
def http(_: Path) -> Iterator[Pair]:
    async def accept(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    guarding = FencingMiddleware(accept, AsyncMemoryFence())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (accept if scope["path"] == "/plain" else guarding)(scope, receive, send)

    with asgi_server(app, lifespan="off") as url, httpx.Client(base_url=url) as client:
        session = fenced(client, TOKEN)
        yield Pair(
            "HTTP: a PUT that uvicorn answers",
            lambda: client.put("/plain"),
            lambda: session.put("/guarded"),
        )


def _measured(pair: Pair, rounds: int) -> Spread:
    """How many times as long as without a guard it takes, in turns."""
    seconds: dict[Call, list[float]] = {pair.plain: [], pair.guarded: []}
    for number, way in in_turns(list(seconds), rounds):
        began = time.perf_counter()
        for _ in range(pair.calls):
            way()
        if number:
            seconds[way].append(time.perf_counter() - began)
    return ratios(seconds[pair.guarded], seconds[pair.plain])


def measure(rounds: int) -> Iterator[Table]:
    """All pairs, each with servers of its own."""
    table = Table(
        "A guarded operation beside the same one without a guard",
        ("operation", "guarded / unguarded"),
        notes=[f"{rounds} rounds in turns"],
        plot=Plot("guarded / unguarded", "operation", log=True),
    )
    yield table
    for make in (postgresql, sqlite, redis, etcd, zookeeper, files, http, memory):
        doing(f"{make.__name__}, {rounds} rounds")
        with (
            tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory,
            make(Path(directory)) as pair,
        ):
            table.add(pair.what, _measured(pair, rounds))
