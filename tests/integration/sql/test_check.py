"""What the check asks of a connection, and what it does to the caller's transaction."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from sqlalchemy import (
    URL,
    Engine,
    create_engine,
    event,
    text,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from coordlock import ConfigurationError, StaleToken
from coordlock.fencing import Marks
from coordlock.fencing.sql import (
    FENCE_TABLE,
    AsyncSQLFence,
    AsyncSQLGuardingFence,
    SQLFence,
    SQLGuardingFence,
    create_fence_table,
)
from tests.integration.sql.conftest import asynchronous


def refused() -> AbstractContextManager[object]:
    return pytest.raises(ConfigurationError, match="autocommit")


def marks(engine: Engine, resource: str = "alice") -> Marks:
    return SQLGuardingFence(engine).marks(resource)


class TestAutocommit:
    """Each way to get it, seen by SQLAlchemy or not."""

    def test_of_the_engine(self, url: URL) -> None:
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.begin() as connection, refused():
            SQLFence(connection).check("alice", 33)
        with refused():
            SQLGuardingFence(engine).check("alice", 33)
        engine.dispose()

    def test_of_an_option(self, engine: Engine) -> None:
        other = engine.execution_options(isolation_level="AUTOCOMMIT")
        with other.connect() as connection, refused():
            SQLFence(connection).check("alice", 33)
        with engine.connect() as connection, refused():
            connection.execution_options(isolation_level="AUTOCOMMIT")
            SQLFence(connection).check("alice", 33)
        with engine.begin() as connection:
            SQLFence(connection).check("alice", 33)

    def test_of_a_session(self, engine: Engine) -> None:
        other = engine.execution_options(isolation_level="AUTOCOMMIT")
        with Session(other) as session, refused():
            SQLFence(session).check("alice", 33)
        with Session(engine) as session, refused():
            session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
            SQLFence(session).check("alice", 33)

    def test_of_the_driver_itself(self, url: URL) -> None:
        name = {"sqlite": "isolation_level", "postgresql": "autocommit"}[url.get_backend_name()]
        value = {"isolation_level": None, "autocommit": True}[name]
        engine = create_engine(url, connect_args={name: value})
        with engine.begin() as connection, refused():
            SQLFence(connection).check("alice", 33)
        engine.dispose()

    def test_is_told_rather_than_that_the_token_is_stale(self, url: URL, engine: Engine) -> None:
        SQLGuardingFence(engine).check("alice", 34)
        with engine.connect() as connection, refused():
            connection.execution_options(isolation_level="AUTOCOMMIT")
            SQLFence(connection).check("alice", 33)

    def test_in_asyncio(self, url: URL) -> None:
        async def main() -> None:
            engine = create_async_engine(asynchronous(url))
            other = engine.execution_options(isolation_level="AUTOCOMMIT")
            async with other.connect() as connection:
                with refused():
                    await AsyncSQLFence(connection).check("alice", 33)
            async with AsyncSession(other) as session:
                with refused():
                    await AsyncSQLFence(session).check("alice", 33)
            with refused():
                await AsyncSQLGuardingFence(other).check("alice", 33)
            async with engine.begin() as connection:
                await AsyncSQLFence(connection).check("alice", 33)
            async with AsyncSession(engine) as session:
                await AsyncSQLFence(session).check("alice", 33)
            await engine.dispose()

        asyncio.run(main())

    @pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
    def test_is_not_what_sqlite_is_in_when_transactions_are_begun_by_hand(
        self, tmp_path: Path, begin: str
    ) -> None:
        """SQLAlchemy's recipe for transactions that begin at their beginning."""
        engine = create_engine(f"sqlite:///{tmp_path}/db", connect_args={"isolation_level": None})
        create_fence_table(engine)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        with engine.begin() as connection:
            SQLFence(connection).check("alice", 33)
        with Session(engine) as session:
            SQLFence(session).check("alice", 34)
        assert marks(engine) == Marks(33)
        engine.dispose()


class TestTransaction:
    def test_a_rollback_takes_the_token_back(self, engine: Engine) -> None:
        SQLGuardingFence(engine).check("alice", 33)
        with engine.connect() as connection:
            SQLFence(connection).check("alice", 34)
            assert SQLFence(connection).marks("alice") == Marks(34)
            connection.rollback()
            SQLFence(connection).check("alice", 33)

    def test_a_block_that_fails_takes_the_token_and_its_writes_back(self, engine: Engine) -> None:
        fence = SQLGuardingFence(engine)
        with pytest.raises(IntegrityError), fence.guard("alice", 34) as connection:
            connection.execute(FENCE_TABLE.insert(), [{"resource": "bob", "shared_token": 34}])
        assert fence.marks("alice") == fence.marks("bob") == Marks()

    def test_a_check_is_one_statement_and_a_refusal_two(self, engine: Engine) -> None:
        sent: list[str] = []
        event.listen(
            engine, "before_cursor_execute", lambda _c, _k, sql, *_: sent.append(sql.split()[0])
        )
        with engine.begin() as connection:
            for token in (33, 33, 34):
                SQLFence(connection).check("alice", token)
            SQLFence(connection).check("alice", 35, shared=True)
            assert sent == ["INSERT"] * 4
            with pytest.raises(StaleToken):
                SQLFence(connection).check("alice", 34)
            assert sent[4:] == ["INSERT", "SELECT"]

    def test_the_databases_own_errors_come_as_they_are(self, url: URL) -> None:
        engine = create_engine(url)
        FENCE_TABLE.drop(engine)
        with engine.begin() as connection, pytest.raises(DBAPIError, match="coordlock_fence"):
            SQLFence(connection).check("alice", 33)
        engine.dispose()

    def test_whatever_keeps_tokens_from_being_stored_is_an_error(self, tmp_path: Path) -> None:
        engine = create_engine(f"sqlite:///{tmp_path}/db")
        create_fence_table(engine)
        with engine.begin() as connection:
            connection.execute(
                text(
                    "CREATE TRIGGER no_tokens BEFORE INSERT ON coordlock_fence "
                    "BEGIN SELECT RAISE(IGNORE); END"
                )
            )
            with pytest.raises(ConfigurationError, match="trigger"):
                SQLFence(connection).check("alice", 33)
        engine.dispose()


class TestSavepoint:
    @pytest.fixture
    def engine(self, engine: Engine) -> Engine:
        """Its transactions begin at their beginning."""
        if engine.dialect.name == "sqlite":
            event.listen(
                engine, "connect", lambda driver, _: setattr(driver, "isolation_level", None)
            )
            event.listen(engine, "begin", lambda one: one.exec_driver_sql("BEGIN"))
            engine.dispose()  # of the connections that were made before
        return engine

    def test_it_can_be_rolled_back_after_a_refusal(self, engine: Engine) -> None:
        SQLGuardingFence(engine).check("alice", 34)
        with engine.begin() as connection:
            SQLFence(connection).check("bob", 1)
            with pytest.raises(StaleToken), connection.begin_nested():
                SQLFence(connection).check("alice", 33)
        assert marks(engine, "bob") == Marks(1)

    def test_what_was_checked_in_it_is_protected_to_the_end_of_the_transaction(
        self, engine: Engine
    ) -> None:
        with engine.begin() as connection:
            with connection.begin_nested():
                SQLFence(connection).check("alice", 33)
            assert marks(engine) == Marks()  # nothing is committed

    def test_it_is_refused_where_it_could_be_a_transaction_of_its_own(self, tmp_path: Path) -> None:
        """Python's driver of SQLite begins no transaction for a savepoint that comes first."""
        engine = create_engine(f"sqlite:///{tmp_path}/db")
        create_fence_table(engine)
        wrong = pytest.raises(ConfigurationError, match="begin_nested")
        with engine.begin() as connection, connection.begin_nested(), wrong:
            SQLFence(connection).check("alice", 33)
        with Session(engine) as session, session.begin_nested(), wrong:
            SQLFence(session).check("alice", 33)
        assert marks(engine) == Marks()
        engine.dispose()

        async def main() -> None:
            engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/db")
            async with engine.begin() as connection, connection.begin_nested():
                with wrong:
                    await AsyncSQLFence(connection).check("alice", 33)
            await engine.dispose()

        asyncio.run(main())


class TestSessionsOfSeveralDatabases:
    def test_the_one_that_has_the_table_is_used(self, engine: Engine, tmp_path: Path) -> None:
        other = create_engine(f"sqlite:///{tmp_path}/other")
        with Session(other, binds={FENCE_TABLE: engine}) as session:
            SQLFence(session).check("alice", 33)
            session.commit()
        assert marks(engine) == Marks(33)
        other.dispose()


class TestOtherDatabases:
    def test_they_are_refused_by_name(self) -> None:
        engine = create_engine("sqlite://")
        with engine.begin() as connection:
            engine.dialect.name = "mysql"
            with pytest.raises(ConfigurationError, match="postgresql and sqlite, not on 'mysql'"):
                SQLFence(connection).check("alice", 33)
        engine.dispose()

    def test_an_sqlite_that_is_too_old_is_told_from_one_that_fails(self) -> None:
        engine = create_engine("sqlite://")
        with engine.begin() as connection:
            engine.dialect.insert_returning = False
            with pytest.raises(ConfigurationError, match=r"SQLite 3\.35"):
                SQLFence(connection).check("alice", 33)
        engine.dispose()
