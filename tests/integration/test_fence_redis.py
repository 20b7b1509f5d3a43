"""The Redis fence on real servers: the script, its replies, lost answers, races, a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
import redis.asyncio as async_redis_py
from hypothesis import given
from hypothesis import strategies as st
from redis.backoff import ConstantBackoff
from redis.crc import key_slot
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.retry import Retry

from coordlock import StaleToken
from coordlock.fencing import MAX_TOKEN, FencingToken, Marks
from coordlock.fencing.redis import AsyncRedisFence, RedisFence, hash_tag
from coordlock.testing.connection import Connection
from coordlock.testing.portal import Portal
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.redis import Redis, RedisCluster, RedisServer


@pytest.fixture
def prefix(redis: Redis) -> Iterator[str]:
    with redis.keyspace() as prefix:
        yield prefix


@pytest.fixture
def client(redis: Redis) -> Iterator[redis_py.Redis]:
    with redis.client() as client:
        yield client


@pytest.fixture
def fence(client: redis_py.Redis, prefix: str) -> RedisFence:
    return RedisFence(client, prefix=prefix)


# The rule

tokens = st.builds(
    FencingToken,
    st.integers(1, 4)
    | st.integers(2**53 - 1, 2**53 + 2)
    | st.integers(MAX_TOKEN - 2, MAX_TOKEN)
    | st.integers(1, MAX_TOKEN),
    st.booleans(),
)


@given(st.lists(tokens, max_size=12))
def test_the_script_does_exactly_what_the_rule_says(
    redis: Redis, history: list[FencingToken]
) -> None:
    resource, marks, applied = uuid.uuid4().hex, Marks(), 0
    with redis.client() as client:
        fence = RedisFence(client, prefix="t-rule:")
        for token in history:
            try:
                reply: object = fence.execute(resource, token, "INCR", f"t-rule:{resource}")
            except StaleToken as error:
                reply = vars(error)
            try:
                marks = marks.raised(resource, token)
                applied += 1
                expected: object = applied
            except StaleToken as error:
                expected = vars(error)
            assert reply == expected
            assert fence.marks(resource) == marks
        fence.forget(resource)
        assert client.delete(f"t-rule:{resource}") == bool(applied)


# Commands and replies


@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_are_those_that_scripts_get_with_either_protocol(
    redis: Redis, prefix: str, protocol: int
) -> None:
    with redis.client(protocol=protocol) as client:
        fence = RedisFence(client, prefix=prefix)
        replies = fence.execute_all(
            "alice",
            1,
            [
                ("SET", prefix + "n", 7),
                ("GET", prefix + "missing"),
                ("MGET", prefix + "missing", prefix + "n", prefix + "missing"),
                ("HSET", prefix + "h", "f", "1", "g", b"\x00\xff"),
                ("HGETALL", prefix + "h"),
                ("ZADD", prefix + "z", 1.5, "m"),
                ("ZSCORE", prefix + "z", "m"),
                ("ZRANGE", prefix + "z", 0, -1, "WITHSCORES"),
                ("INCRBYFLOAT", prefix + "n", "0.5"),
                ("SMEMBERS", prefix + "missing"),
                ("EXISTS", prefix + "n"),
                ("GEOPOS", prefix + "z", "nobody"),
            ],
        )
    assert replies == [
        b"OK",
        None,
        [None, b"7", None],
        2,
        [b"f", b"1", b"g", b"\x00\xff"],
        1,
        b"1.5",
        [b"m", b"1.5"],
        b"7.5",
        [],
        1,
        [None],
    ]


def test_clients_with_different_encodings_mean_the_same_resource(
    redis: Redis, prefix: str, fence: RedisFence
) -> None:
    fence.check("été", 34)
    for encoding in ("latin-1", "utf-16"):
        with redis.client(encoding=encoding) as client, pytest.raises(StaleToken):
            RedisFence(client, prefix=prefix).check("été", 33)


def test_commands_before_one_that_fails_stay_applied(
    client: redis_py.Redis, fence: RedisFence, prefix: str
) -> None:
    commands = [
        ("SET", prefix + "x", "text"),
        ("INCR", prefix + "x"),
        ("SET", prefix + "y", 1),
    ]
    with pytest.raises(ResponseError, match="not an integer"):
        fence.execute_all("alice", 34, commands)
    assert client.mget(prefix + "x", prefix + "y") == [b"text", None]
    assert fence.marks("alice") == Marks(34)


def test_a_mark_that_does_not_change_is_not_written(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server, server.client() as client:
        fence = RedisFence(client)

        def writes() -> int:
            return int(client.info("persistence")["rdb_changes_since_last_save"])

        fence.check("alice", 34)
        fence.check("alice", 36, shared=True)
        before = writes()
        fence.check("alice", 36, shared=True)
        fence.check("alice", 35, shared=True)
        assert writes() == before
        fence.check("alice", 37)
        assert writes() == before + 1


# Servers that forget, and answers that are lost


def test_scripts_are_sent_again_to_a_server_that_forgot_them(tmp_path: Path) -> None:
    portal = Portal()
    with RedisServer(tmp_path, persistent=True) as server, server.client() as client:
        asynchronous = server.async_client()
        fence, twin = RedisFence(client), AsyncRedisFence(asynchronous)

        def both_work(token: int) -> None:
            fence.execute("alice", token, "SET", "x", token)
            with pytest.raises(StaleToken):
                fence.check("alice", token - 1)
            assert portal.wait(twin.execute("alice", token, "GET", "x")) == b"%d" % token

        both_work(34)
        client.script_flush()
        both_work(35)
        client.script_flush()
        assert portal.wait(twin.execute("alice", 35, "GET", "x")) == b"35"
        client.close()
        portal.wait(asynchronous.aclose())
        server.restart()
        assert fence.marks("alice") == Marks(35)
        with pytest.raises(StaleToken):
            fence.check("alice", 34)
        both_work(36)
        portal.wait(asynchronous.aclose())
    portal.close()


class TestLostAnswers:
    """What happens to an INCR whose answer is lost, as the module's documentation tells it."""

    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[RedisServer]:
        with RedisServer(tmp_path) as server:
            yield server

    def test_by_default_redis_py_sends_again_and_the_command_is_run_twice(
        self, server: RedisServer
    ) -> None:
        with (
            FaultProxy("127.0.0.1", server.port) as proxy,
            redis_py.Redis(port=proxy.port) as client,
        ):
            fence = RedisFence(client)
            fence.check("alice", 34)
            proxy.on_bytes(b"INCR", Connection.lose_reply)
            assert fence.execute("alice", 34, "INCR", "x") == 2

    def test_what_is_sent_again_too_late_is_refused(self, server: RedisServer) -> None:
        with (
            FaultProxy("127.0.0.1", server.port) as proxy,
            redis_py.Redis(port=proxy.port, retry=Retry(ConstantBackoff(0.02), 1000)) as client,
            server.client() as other,
            ThreadPoolExecutor(1) as pool,
        ):
            fence = RedisFence(client)
            fence.check("alice", 33)
            proxy.on_bytes(b"INCR", Connection.lose_reply)
            proxy.refuse()
            call = pool.submit(fence.execute, "alice", 33, "INCR", "x")
            eventually(lambda: other.get("x") == b"1")
            RedisFence(other).check("alice", 34)
            proxy.heal()
            with pytest.raises(StaleToken):
                call.result(60)
            assert other.get("x") == b"1"


# Processes that race

# Redis Cluster


@pytest.mark.redis
def test_on_a_cluster_keys_with_the_tag_are_where_the_marks_are(tmp_path: Path) -> None:
    portal = Portal()
    names = ["alice", "bob", "carl", "{a}b", "}", "%", "été 🔒"]
    with RedisCluster(tmp_path) as cluster:
        client = redis_py.RedisCluster.from_url(cluster.url)
        fence = RedisFence(client)

        async def use_the_twin() -> None:
            client = async_redis_py.RedisCluster.from_url(cluster.url)
            fence = AsyncRedisFence(client)
            for name in names:
                balance = hash_tag(name) + ":balance"
                assert await fence.execute(name, 34, "INCR", balance) == 2
                with pytest.raises(StaleToken):
                    await fence.check(name, 33)
                assert await fence.marks(name) == Marks(34)
            await client.aclose()

        for name in names:
            assert fence.execute(name, 34, "INCR", hash_tag(name) + ":balance") == 1
            with pytest.raises(StaleToken):
                fence.execute(name, 33, "INCR", hash_tag(name) + ":balance")
        assert len({key_slot(hash_tag(name).encode()) * 3 // 16384 for name in names}) == 3
        portal.wait(use_the_twin())
        with pytest.raises(RedisClusterException, match="same key slot"):
            fence.execute("alice", 34, "SET", "x", 1)
        assert client.get("x") is None
        fence.forget("alice")
        assert fence.marks("alice") == Marks()
        client.close()
    portal.close()


def test_while_a_slot_moves_a_command_gets_its_key_or_no_answer(tmp_path: Path) -> None:
    """The marks have moved to the new node already, and the data has not."""
    with RedisCluster(tmp_path, 2) as cluster:
        client = redis_py.RedisCluster.from_url(cluster.url)
        fence = RedisFence(client)
        fence.execute("alice", 33, "SET", "{alice}:balance", 100)
        slot = key_slot(b"alice")
        members: list[Any] = [member.client() for member in cluster.members]
        members.sort(key=lambda one: -one.execute_command("CLUSTER COUNTKEYSINSLOT", slot))
        (source, target), ids = members, [one.execute_command("CLUSTER MYID") for one in members]
        port = target.connection_pool.connection_kwargs["port"]

        def move(key: str) -> None:
            source.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", key)

        target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
        move("coordlock:fence:{alice}")
        with pytest.raises(RedisError):
            fence.execute("alice", 34, "GET", "{alice}:balance")
        with pytest.raises(RedisError):
            fence.execute("alice", 34, "SET", "{alice}:balance", 999)
        move("{alice}:balance")
        for one in members[::-1]:
            one.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])
        assert fence.execute("alice", 34, "GET", "{alice}:balance") == b"100"
        for one in [client, *members]:
            one.close()
