"""The Redis fence passes the suite of fences, sync and async, with either protocol of Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from coordlock.fencing import Presented
from coordlock.fencing.redis import AsyncRedisFence, RedisFence, hash_tag
from coordlock.testing.fence_contract import FenceContract, Protected
from coordlock.testing.portal import Portal
from testbed.servers.redis import Redis

PROTOCOLS = [
    pytest.param({"protocol": 2, "decode_responses": False}, id="resp2-bytes"),
    pytest.param({"protocol": 3, "decode_responses": True}, id="resp3-text"),
]


class InRedis(Protected):
    def __init__(self, fence: Any, prefix: str) -> None:
        super().__init__(fence)
        self.prefix = prefix

    def key(self, resource: str) -> str:
        return f"{self.prefix}value:{hash_tag(resource)}"

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        value = self.fence.execute(resource, token, "GET", self.key(resource), shared=shared)
        return int(value or 0)

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        self.fence.execute(resource, token, "SET", self.key(resource), value, shared=shared)


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
            yield InRedis(RedisFence(client, prefix=prefix), prefix)


@pytest.mark.parametrize("options", PROTOCOLS)
class TestAsyncRedisFence(FenceContract):
    fence = AsyncRedisFence

    @pytest.fixture
    def protected(self, redis: Redis, prefix: str, options: dict[str, Any]) -> Iterator[Protected]:
        client = redis.async_client(**options)
        with closing(Portal()) as portal:
            yield InRedis(portal.front(AsyncRedisFence(client, prefix=prefix)), prefix)
            portal.wait(client.aclose())
