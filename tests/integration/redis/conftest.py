"""Servers of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.servers.redis import RedisCluster, RedisServer


@pytest.fixture
def only(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def replica(tmp_path: Path, only: RedisServer) -> Iterator[RedisServer]:
    """A replica of ``only``."""
    with RedisServer(tmp_path / "replica") as server:
        server.follow(only)
        yield server


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Tests move slots back, or use a root of their own."""
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
