"""The table: creating it, by metadata and by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Engine, MetaData, event, inspect, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine

from coordlock import StaleToken
from coordlock.fencing import Marks
from coordlock.fencing.sql import (
    FENCE_TABLE,
    SQLFence,
    SQLGuardingFence,
    create_fence_table,
    fence_ddl,
    fence_table,
)
from tests.integration.sql.conftest import asynchronous


def test_it_can_have_another_name_and_schema(engine: Engine, tmp_path: Path) -> None:
    table = fence_table(MetaData(), "fences", schema="other")
    if engine.dialect.name == "sqlite":
        create_schema = f"ATTACH '{tmp_path}/other' AS other"
    else:
        create_schema = "CREATE SCHEMA other"
    with engine.connect() as connection:  # and roll back
        connection.execute(text(create_schema))
        create_fence_table(connection, table)
        create_fence_table(connection, table)
        SQLFence(connection, table).check("alice", 33)
        with pytest.raises(StaleToken):
            SQLFence(connection, table).check("alice", 32)
        assert SQLFence(connection).marks("alice") == Marks()


@pytest.mark.parametrize("column", ["exclusive_token", "shared_token"])
def test_it_refuses_what_can_be_no_token(engine: Engine, column: str) -> None:
    row = {"resource": "alice", "exclusive_token": 0, "shared_token": 0, column: -1}
    with engine.connect() as connection, pytest.raises(IntegrityError):
        connection.execute(FENCE_TABLE.insert(), row)


@pytest.mark.parametrize("isolation", [None, "SERIALIZABLE"])
def test_any_number_may_create_the_table_at_once(empty: Engine, isolation: str | None) -> None:
    at_level = empty.execution_options(isolation_level=isolation) if isolation else empty
    together = Barrier(4)

    def work(_: int) -> None:
        together.wait()
        create_fence_table(at_level)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            list(pool.map(work, range(4)))
            SQLGuardingFence(empty).check("alice", 33)
            FENCE_TABLE.drop(empty)


def test_a_table_that_exists_needs_no_right_to_create_it(engine: Engine) -> None:
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _k, sql, *_: sent.append(sql))
    create_fence_table(engine)
    assert sent
    assert not [sql for sql in sent if "CREATE" in sql]


def test_the_text_makes_the_same_table(empty: Engine) -> None:
    def made(create: Callable[[Engine], object]) -> str:
        create(empty)
        found = inspect(empty)
        facts = [
            found.get_columns(FENCE_TABLE.name),
            found.get_pk_constraint(FENCE_TABLE.name),
            found.get_check_constraints(FENCE_TABLE.name),
        ]
        FENCE_TABLE.drop(empty)
        return str(facts)

    def by_hand(engine: Engine) -> None:
        with engine.begin() as connection:
            connection.execute(text(fence_ddl(engine.dialect.name)))

    by_helper = made(create_fence_table)
    assert made(by_hand) == by_helper
    assert made(FENCE_TABLE.metadata.create_all) == by_helper


def test_in_asyncio_it_is_run_like_create_all(empty: Engine) -> None:
    async def main() -> None:
        engine = create_async_engine(asynchronous(empty.url))
        async with engine.begin() as connection:
            await connection.run_sync(create_fence_table)
        await engine.dispose()

    asyncio.run(main())
    assert SQLGuardingFence(empty).marks("alice") == Marks()


def test_a_naming_convention_is_kept(empty: Engine) -> None:
    convention = {"ck": "ck_%(table_name)s_%(constraint_name)s", "pk": "pk_%(table_name)s"}
    table = fence_table(MetaData(naming_convention=convention))
    create_fence_table(empty, table)
    names = {one["name"] for one in inspect(empty).get_check_constraints(table.name)}
    assert names == {
        "ck_coordlock_fence_exclusive_token_not_negative",
        "ck_coordlock_fence_shared_token_not_negative",
    }
    assert "CONSTRAINT pk_coordlock_fence PRIMARY KEY" in fence_ddl(table=table)


def test_pruning_forgets_what_is_gone_and_nothing_that_is_checked_meanwhile(empty: Engine) -> None:
    create_fence_table(empty)
    fence = SQLGuardingFence(empty)
    for resource, token in (("a", 1), ("b", 2), ("c", 3)):
        fence.check(resource, token)
    with empty.begin() as connection:
        within = SQLFence(connection)

        def is_gone(resource: str, marks: Marks) -> bool:
            if resource == "b":
                within.check("b", 9)
            return marks.exclusive < 3

        assert within.prune(is_gone) == 1
    assert [fence.marks(one) for one in "abc"] == [Marks(), Marks(9), Marks(3)]
    assert fence.prune(lambda *_: True) == 2
