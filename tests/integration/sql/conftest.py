"""Databases for the tests of SQL fences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine

from coordlock.fencing.sql import create_fence_table


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A database of one of the kinds."""
    with ExitStack() as stack:
        url = URL.create("sqlite", database=f"{tmp_path}/db")
        if request.param == "postgres":
            url = stack.enter_context(request.getfixturevalue("postgres").schema())
        engine = create_engine(url)
        stack.callback(engine.dispose)
        yield engine


@pytest.fixture
def engine(empty: Engine) -> Engine:
    """The same with the table."""
    create_fence_table(empty)
    return empty


@pytest.fixture
def url(engine: Engine) -> URL:
    return engine.url


def asynchronous(url: URL) -> URL:
    return url.set(drivername="sqlite+aiosqlite") if url.drivername == "sqlite" else url
