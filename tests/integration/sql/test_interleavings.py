"""Two or three transactions, step by step, at each isolation level.

The transaction of token 33 is called t33. ``overtaken`` is what the database says to a transaction
that began before another one's commit, where it cannot do better: the caller repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, select, text
from sqlalchemy.exc import OperationalError

from coordlock import StaleToken
from coordlock.fencing import Marks
from coordlock.fencing.sql import SQLGuardingFence
from coordlock.testing.waiting import eventually
from testbed.servers.postgres import Postgres
from tests.integration.sql.account import (
    FENCE,
    ISOLATION_LEVELS,
    balance,
    connect,
    create,
    deposit,
    fence,
    must_repeat,
    repeat,
)


@contextmanager
def overtaken() -> Iterator[None]:
    with pytest.raises(OperationalError) as raised:
        yield
    assert must_repeat(raised.value)


class TestPostgres:
    @pytest.fixture(params=ISOLATION_LEVELS)
    def engine(self, request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[Engine]:
        with postgres.schema() as url:
            engine = connect(url.render_as_string(hide_password=False), request.param)
            create(engine)
            yield engine
            engine.dispose()

    @pytest.fixture
    def later(self, postgres: Postgres) -> Iterator[Later]:
        later = Later(postgres)
        yield later
        later.close()

    @pytest.fixture(params=[None, 32, 33], ids=lambda token: f"after-{token}")
    def before(self, request: pytest.FixtureRequest, engine: Engine) -> None:
        """What was seen before; with 33, the check of 33 leaves the marks as they are."""
        if request.param:
            repeat(engine, lambda connection: fence(connection).check("account", request.param))

    @pytest.mark.usefixtures("before")
    def test_the_newer_waits_for_the_older_and_sees_what_it_wrote(
        self, engine: Engine, later: Later
    ) -> None:
        with engine.connect() as t33, engine.connect() as t34:
            fence(t33).check("account", 33)
            newer = later.check(t34, 34)
            deposit(t33, 33, balance(t33) + 100)
            t33.commit()
            if reads_as_of_its_beginning(engine):
                with overtaken():
                    newer.result()
                t34.rollback()
                fence(t34).check("account", 34)
            else:
                newer.result()
            assert balance(t34) == 100

    @pytest.mark.usefixtures("before")
    def test_the_older_waits_for_the_newer_and_is_refused(
        self, engine: Engine, later: Later
    ) -> None:
        with engine.connect() as t33, engine.connect() as t34:
            fence(t34).check("account", 34)
            older = later.check(t33, 33)
            deposit(t34, 34, 100)
            t34.commit()
            if reads_as_of_its_beginning(engine):
                with overtaken():
                    older.result()
                t33.rollback()
                older = later.check(t33, 33, waits=False)
            with pytest.raises(StaleToken) as refused:
                older.result()
            assert (refused.value.token, refused.value.newest) == (33, 34)

    @pytest.mark.usefixtures("before")
    def test_the_older_passes_when_the_newer_rolls_back(self, engine: Engine, later: Later) -> None:
        with engine.connect() as t33, engine.connect() as t34:
            fence(t34).check("account", 34)
            older = later.check(t33, 33)
            t34.rollback()
            older.result()
            deposit(t33, 33, 50)
            t33.commit()
            assert repeat(engine, balance) == 50
            assert repeat(engine, lambda c: fence(c).marks("account")) == Marks(33)

    @pytest.mark.usefixtures("before")
    def test_a_transaction_that_looked_before_its_check_decides_by_no_old_row(
        self, engine: Engine
    ) -> None:
        with engine.connect() as t33:
            t33.execute(text("SELECT 1 FROM account")).all()
            with engine.begin() as t34:
                fence(t34).check("account", 34)
                deposit(t34, 34, 100)
            if reads_as_of_its_beginning(engine):
                with overtaken():
                    fence(t33).check("account", 33)
                t33.rollback()
            with pytest.raises(StaleToken):
                fence(t33).check("account", 33)

    def test_a_check_that_changes_no_mark_counts_for_who_looked_before_it(
        self, engine: Engine
    ) -> None:
        """Else the second would go on with what it saw before the first one's deposit."""
        repeat(engine, lambda connection: fence(connection).check("account", 33))
        with engine.connect() as second:
            assert balance(second) == 0
            with engine.begin() as first:
                fence(first).check("account", 33)
                deposit(first, 33, 100)
            if reads_as_of_its_beginning(engine):
                with overtaken():
                    fence(second).check("account", 34)
                second.rollback()
            fence(second).check("account", 34)
            assert balance(second) == 100

    def test_a_refusal_leaves_a_transaction_that_can_go_on(self, engine: Engine) -> None:
        repeat(engine, lambda connection: fence(connection).check("account", 34))
        with engine.begin() as connection:
            for _ in range(2):
                with pytest.raises(StaleToken):
                    fence(connection).check("account", 33)
            fence(connection).check("another", 33)
            deposit(connection, 33, 1)
        assert repeat(engine, balance) == 1

    def test_a_reader_holds_the_next_writer_back_until_it_has_read(
        self, engine: Engine, later: Later
    ) -> None:
        with engine.connect() as reader, engine.connect() as writer:
            fence(reader).check("account", 33, shared=True)
            assert balance(reader) == 0
            waiting = later.check(writer, 34)
            assert balance(reader) == 0
            reader.commit()
            if reads_as_of_its_beginning(engine):
                with overtaken():
                    waiting.result()
            else:
                waiting.result()

    def test_readers_that_check_before_they_read_do_not_wait_for_each_other(
        self, engine: Engine
    ) -> None:
        guarding = SQLGuardingFence(engine, FENCE)
        with engine.connect() as one, engine.connect() as other:
            for token, connection in ((34, one), (33, other)):
                guarding.check("account", token, shared=True)
                assert balance(connection) == 0
        assert guarding.marks("account") == Marks(shared=34)

    def test_other_resources_do_not_wait(self, engine: Engine) -> None:
        with engine.begin() as one, engine.begin() as other:
            fence(one).check("account", 34)
            fence(other).check("another", 33)


class TestSQLite:
    @pytest.fixture(params=["delete", "wal"])
    def journal(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(params=["driver", "BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
    def engine(
        self, request: pytest.FixtureRequest, journal: str, tmp_path: Path
    ) -> Iterator[Engine]:
        """Who would have to wait gets an error instead."""
        engine = connect(f"sqlite:///{tmp_path}/db", request.param, timeout=0)
        create(engine, journal)
        yield engine
        engine.dispose()

    @pytest.mark.parametrize("before", [None, 32, 33])
    def test_a_check_holds_everybody_back_until_its_transaction_ends(
        self, engine: Engine, before: int | None
    ) -> None:
        if before:
            repeat(engine, lambda connection: fence(connection).check("account", before))
        with engine.begin() as t33:
            fence(t33).check("account", 33)
            with engine.connect() as t34, overtaken():
                fence(t34).check("account", 34)
            deposit(t33, 33, 100)
        with engine.begin() as t34:
            fence(t34).check("account", 34)
            assert balance(t34) == 100
        with engine.begin() as t33, pytest.raises(StaleToken):
            fence(t33).check("account", 33)

    def test_a_refusal_leaves_a_transaction_that_can_go_on(self, engine: Engine) -> None:
        repeat(engine, lambda connection: fence(connection).check("account", 34))
        with engine.begin() as connection:
            with pytest.raises(StaleToken):
                fence(connection).check("account", 33)
            deposit(connection, 33, 1)
        assert repeat(engine, balance) == 1

    def test_the_older_passes_when_the_newer_rolls_back(self, engine: Engine) -> None:
        with engine.connect() as t34:
            fence(t34).check("account", 34)
            t34.rollback()
        with engine.begin() as t33:
            fence(t33).check("account", 33)
            assert fence(t33).marks("account") == Marks(33)

    def test_a_transaction_that_looked_before_its_check_decides_by_no_old_row(
        self, tmp_path: Path
    ) -> None:
        engine = connect(f"sqlite:///{tmp_path}/db", "BEGIN", timeout=0)
        create(engine, "wal")
        with engine.connect() as t33:
            assert balance(t33) == 0
            with engine.begin() as t34:
                fence(t34).check("account", 34)
                deposit(t34, 34, 100)
            assert balance(t33) == 0
            with overtaken():
                fence(t33).check("account", 33)
            t33.rollback()
            with pytest.raises(StaleToken):
                fence(t33).check("account", 33)
        engine.dispose()


class Later:
    """Checks in threads, that are known to wait for a lock in the database."""

    def __init__(self, postgres: Postgres) -> None:
        self._pool = ThreadPoolExecutor()
        self._engine = create_engine(postgres.url, isolation_level="AUTOCOMMIT")
        self._observer = self._engine.connect()

    def check(self, connection: Connection, token: int, *, waits: bool = True) -> Future[None]:
        """Start the check of ``token``; return when it waits for another transaction's end."""
        process = connection.execute(select(text("pg_backend_pid()"))).scalar_one()
        connection.rollback()
        checking = self._pool.submit(fence(connection).check, "account", token)
        waiting = text("SELECT 1 FROM pg_locks WHERE pid = :pid AND NOT granted")
        if waits:
            eventually(lambda: self._observer.execute(waiting, {"pid": process}).first())
            assert not checking.done()
        return checking

    def close(self) -> None:
        self._observer.close()
        self._engine.dispose()
        self._pool.shutdown()


def reads_as_of_its_beginning(engine: Engine) -> bool:
    """Whether the database reads as of the transaction's first statement."""
    with engine.connect() as connection:
        return connection.get_isolation_level() in ("REPEATABLE READ", "SERIALIZABLE")
