"""What can name a resource, whatever the fence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import create_engine

from coordlock import ConfigurationError
from coordlock.fencing import Fence, MemoryFence
from coordlock.fencing.files import FileFence
from coordlock.fencing.redis import RedisFence
from coordlock.fencing.sql import SQLFence, SQLGuardingFence, create_fence_table


@pytest.fixture(params=["memory", "files", "redis", "sql"])
def fence(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fence]:
    match request.param:
        case "memory":
            yield MemoryFence()
        case "files":
            yield FileFence(tmp_path)
        case "redis":
            yield RedisFence(redis.Redis(port=1))  # nothing is sent
        case "sql":
            engine = create_engine("sqlite://")
            create_fence_table(engine)
            yield SQLGuardingFence(engine)
            engine.dispose()


@pytest.mark.parametrize("resource", [None, 5, b"alice", ["alice"]], ids=repr)
def test_only_text_names_a_resource(fence: Fence, resource: Any) -> None:
    with pytest.raises(TypeError, match="str"):
        fence.check(resource, 33)


@pytest.mark.parametrize("resource", ["a\0b", "\ud800"], ids=ascii)
def test_what_cannot_be_stored_everywhere_names_none(fence: Fence, resource: str) -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        fence.check(resource, 33)


def test_an_engine_is_no_transaction() -> None:
    engine: Any = create_engine("sqlite://")
    with pytest.raises(ConfigurationError, match=r"SQLGuardingFence\(engine\)"):
        SQLFence(engine)
