"""Sessions of SQLAlchemy hold a lock until their transaction ends, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session
from sqlalchemy.orm import sessionmaker as make_sessions
from sqlalchemy.orm.session import JoinTransactionMode

import coordlock
from coordlock import AsyncLock, Lock, LockLost
from coordlock.integrations.sqlalchemy import hold, hold_async

Sessions = make_sessions[Session]


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    name: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    engine = create_engine(f"sqlite:///{tmp_path}/bank.db")
    Base.metadata.create_all(engine)
    made = make_sessions(engine)
    with made.begin() as session:
        session.add(Account(name="alice", balance=7))
    yield made
    engine.dispose()


@pytest.fixture
def client(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root.strip('/')}") as client:
        yield client


@pytest.fixture
def lock(client: coordlock.Client) -> Lock:
    return client.lock("alice", timeout=0)


def deposit(session: Session) -> None:
    session.get_one(Account, "alice").balance += 1


def balance(sessions: Sessions) -> int:
    with sessions() as session:
        return session.get_one(Account, "alice").balance


def lose(client: coordlock.Client, grant: coordlock.Grant) -> None:
    client.admin.evict(client.admin.contenders("alice")[0])
    assert grant.lost.wait(30)


def by_commit(session: Session) -> None:
    session.commit()


def by_rollback(session: Session) -> None:
    session.rollback()


def by_close(session: Session) -> None:
    session.close()


@pytest.mark.parametrize("work", [deposit, lambda session: None], ids=["at work", "unused"])
@pytest.mark.parametrize("end", [by_commit, by_rollback, by_close])
def test_the_end_of_the_transaction_releases_the_lock(
    sessions: Sessions, lock: Lock, end: Callable[[Session], None], work: Callable[[Session], None]
) -> None:
    with sessions() as session:
        for _ in range(2):  # each transaction may hold it anew
            hold(session, lock)
            work(session)
            assert lock.owned()
            end(session)
            assert not lock.owned()


def test_a_scoped_session_holds_several_locks(sessions: Sessions, client: coordlock.Client) -> None:
    session = scoped_session(sessions)
    for kind in (client.read_lock("rates"), client.multi_lock(["alice", "bob"])):
        hold(session, kind)
    deposit(session())
    assert client.admin.names() == ["alice", "bob", "rates"]
    session.commit()
    assert client.admin.names() == []
    session.remove()


def test_a_savepoint_does_not_release(sessions: Sessions, lock: Lock) -> None:
    with sessions.begin() as session:
        hold(session, lock)
        with session.begin_nested():
            deposit(session)
        assert lock.owned()
    assert not lock.owned()
    assert balance(sessions) == 8


def test_a_session_that_has_read_is_refused_and_told_what_to_write(
    sessions: Sessions, lock: Lock
) -> None:
    with sessions.begin() as session:
        deposit(session)
        with pytest.raises(InvalidRequestError, match="before the session's first query"):
            hold(session, lock)
    assert balance(sessions) == 8
    assert not lock.owned()


def test_a_change_of_what_an_earlier_transaction_has_read_is_refused(
    sessions: Sessions, lock: Lock
) -> None:
    with sessions(expire_on_commit=False) as session:
        account = session.get_one(Account, "alice")
        session.commit()
        account.balance += 1
        with pytest.raises(InvalidRequestError, match="comes too late"):
            hold(session, lock)


def test_a_session_in_a_transaction_of_its_caller_is_refused(
    sessions: Sessions, lock: Lock
) -> None:
    with sessions.kw["bind"].begin() as connection, sessions(bind=connection) as session:
        with pytest.raises(InvalidRequestError, match=r"with lock, connection\.begin\(\)"):
            hold(session, lock)
        deposit(session)
        session.commit()
        with pytest.raises(InvalidRequestError, match="released before the commit"):
            hold(session, lock)
    assert not lock.owned()


@pytest.mark.parametrize("mode", ["create_savepoint", "control_fully"])
def test_a_session_that_ends_what_it_joins_may_hold(
    sessions: Sessions, lock: Lock, mode: JoinTransactionMode
) -> None:
    with sessions.kw["bind"].connect() as connection:
        connection.begin()
        with sessions(bind=connection, join_transaction_mode=mode) as session:
            hold(session, lock)
            deposit(session)
            session.commit()
            assert not lock.owned()


def test_what_an_earlier_transaction_has_read_is_read_again(sessions: Sessions, lock: Lock) -> None:
    with sessions(expire_on_commit=False) as session:
        account = session.get_one(Account, "alice")
        session.commit()
        with sessions.begin() as other:
            deposit(other)
        hold(session, lock)
        assert account.balance == 8


def test_nothing_is_committed_after_a_loss(
    sessions: Sessions, client: coordlock.Client, lock: Lock
) -> None:
    def work() -> None:
        with sessions.begin() as session:
            grant = hold(session, lock)
            deposit(session)
            lose(client, grant)

    with pytest.raises(LockLost):
        work()
    assert balance(sessions) == 7
    assert client.admin.names() == []


def test_a_loss_during_the_commit_is_told(
    sessions: Sessions, client: coordlock.Client, lock: Lock
) -> None:
    class Losing(Session):
        def flush(self, objects: object = None) -> None:
            super().flush()
            lose(client, grant)

    session = Losing(sessions.kw["bind"], autoflush=False)
    grant = hold(session, lock)
    deposit(session)
    with pytest.raises(LockLost):
        session.commit()
    assert balance(sessions) == 8
    session.close()


def test_the_grant_cannot_be_released_by_a_block_that_ends_before_the_commit(
    sessions: Sessions, lock: Lock
) -> None:
    with sessions.begin() as session:
        grant = hold(session, lock)
        with pytest.raises(RuntimeError, match="entered already"):
            grant.__enter__()
        assert lock.owned()


@asynccontextmanager
async def of_asyncio(
    sessions: Sessions,
) -> AsyncIterator[tuple[async_sessionmaker[AsyncSession], coordlock.AsyncClient, AsyncLock]]:
    engine = create_async_engine(sessions.kw["bind"].url.set(drivername="sqlite+aiosqlite"))
    async with coordlock.connect_async("memory://of-asyncio") as client:
        yield async_sessionmaker(engine), client, client.lock("alice", timeout=0)
        assert await client.admin.names() == []
    await engine.dispose()


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_with_asyncio_the_end_of_the_transaction_releases_the_lock(
    sessions: Sessions, end: str
) -> None:
    async def main() -> None:
        async with of_asyncio(sessions) as (made, _, lock), made() as session:
            await hold_async(session, lock)
            (await session.get_one(Account, "alice")).balance += 1
            assert lock.owned()
            await getattr(session, end)()
            assert not lock.owned()

    asyncio.run(main())
    assert balance(sessions) == (8 if end == "commit" else 7)


def test_with_asyncio_nothing_is_committed_after_a_loss(sessions: Sessions) -> None:
    async def main() -> None:
        async with of_asyncio(sessions) as (made, client, lock):
            scoped = async_scoped_session(made, asyncio.current_task)
            async with scoped() as session:
                grant = await hold_async(scoped, lock)
                (await session.get_one(Account, "alice")).balance += 1
                await client.admin.evict((await client.admin.contenders("alice"))[0])
                await grant.lost.wait()
                with pytest.raises(LockLost):
                    await session.commit()

    asyncio.run(main())
    assert balance(sessions) == 7


def test_a_cancelled_task_releases(sessions: Sessions) -> None:
    async def main() -> None:
        async with of_asyncio(sessions) as (made, _, lock):
            is_held = asyncio.Event()

            async def work() -> None:
                async with made.begin() as session:
                    await hold_async(session, lock)
                    (await session.get_one(Account, "alice")).balance += 1
                    is_held.set()
                    await asyncio.sleep(300)

            task = asyncio.create_task(work())
            await is_held.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not lock.owned()

    asyncio.run(main())
    assert balance(sessions) == 7


def test_what_is_of_the_other_kind_is_refused(sessions: Sessions, lock: Lock) -> None:
    async def main() -> None:
        async with of_asyncio(sessions) as (made, _, async_lock), made() as session:
            with pytest.raises(TypeError, match="await hold_async"):
                hold(session, lock)  # type: ignore[arg-type]  # on purpose
            with pytest.raises(TypeError, match="await hold_async"):
                hold(sessions(), async_lock)  # type: ignore[arg-type]  # on purpose
            with pytest.raises(TypeError, match="AsyncSession"):
                await hold_async(session, lock)  # type: ignore[arg-type]  # on purpose

    asyncio.run(main())


def test_a_release_that_fails_keeps_no_other_lock(
    sessions: Sessions, client: coordlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with sessions() as session:
        hold(session, client.lock("alice", timeout=0))
        bob = hold(session, client.lock("bob", timeout=0))
        monkeypatch.setattr(bob, "release", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.commit()
        assert not client.admin.contenders("alice")
