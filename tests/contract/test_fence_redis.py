"""The Redis fence passes the suite of fences, sync and async, with either protocol of Redis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordlock.fencing import Marks, Presented
from coordlock.fencing.redis import AsyncRedisFence, RedisFence, hash_tag
from coordlock.testing.fence_contract import FenceContract, Protected
from coordlock.testing.portal import Portal
from testbed.servers.redis import Redis

PROTOCOLS = [
    pytest.param({"protocol": 2, "decode_responses": False}, id="resp2-bytes"),
    pytest.param({"protocol": 3, "decode_responses": True}, id="resp3-text"),
]


class InRedis(Protected):
    def __init__(self, client: Any, prefix: str) -> None:
        self.fence = RedisFence(client, prefix=prefix)
        self.prefix = prefix

    def key(self, resource: str) -> str:
        return f"{self.prefix}value:{hash_tag(resource)}"

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        value = self.fence.execute(resource, token, "GET", self.key(resource), shared=shared)
        return int(value or 0)

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        self.fence.execute(resource, token, "SET", self.key(resource), value, shared=shared)

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        self.fence.check(resource, token, shared)

    def marks(self, resource: str) -> Marks:
        return self.fence.marks(resource)

    def forget(self, resource: str) -> None:
        self.fence.forget(resource)


class InRedisAsync(Protected):
    def __init__(self, portal: Portal, client: Any, prefix: str) -> None:
        self.fence = AsyncRedisFence(client, prefix=prefix)
        self.portal = portal
        self.prefix = prefix

    def key(self, resource: str) -> str:
        return f"{self.prefix}value:{hash_tag(resource)}"

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        reading = self.fence.execute(resource, token, "GET", self.key(resource), shared=shared)
        return int(self.portal.wait(reading) or 0)

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        key = self.key(resource)
        self.portal.wait(self.fence.execute(resource, token, "SET", key, value, shared=shared))

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        self.portal.wait(self.fence.check(resource, token, shared))

    def marks(self, resource: str) -> Marks:
        return self.portal.wait(self.fence.marks(resource))

    def forget(self, resource: str) -> None:
        self.portal.wait(self.fence.forget(resource))


@pytest.fixture
def prefix(redis: Redis) -> Iterator[str]:
    with redis.keyspace() as prefix:
        yield prefix


@pytest.mark.parametrize("options", PROTOCOLS)
class TestRedisFence(FenceContract):
    fence = RedisFence

    @pytest.fixture
    def protected(self, redis: Redis, prefix: str, options: dict[str, Any]) -> Iterator[Protected]:
        with redis.client(**options) as client:
            yield InRedis(client, prefix)


@pytest.mark.parametrize("options", PROTOCOLS)
class TestAsyncRedisFence(FenceContract):
    fence = AsyncRedisFence

    @pytest.fixture
    def protected(self, redis: Redis, prefix: str, options: dict[str, Any]) -> Iterator[Protected]:
        portal = Portal()
        client = redis.async_client(**options)
        yield InRedisAsync(portal, client, prefix)
        portal.wait(client.aclose())
        portal.close()
