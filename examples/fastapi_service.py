"""A FastAPI service that locks an account for each request, and commits before it releases.

Run it as it is: it plays its own customers, with a database in a file. As a service, on a cluster:

    COORDLOCK_URL=etcd://etcd1:2379 DATABASE_URL=postgresql+psycopg://db1/bank \
        uvicorn --workers 4 fastapi_service:app

It needs fastapi, httpx, sqlalchemy and aiosqlite; and to be served, uvicorn.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import coordlock
from coordlock.fencing.sql import AsyncSQLFence, fence_table


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"

    name: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


fences = fence_table(Base.metadata)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    engine = create_async_engine(os.environ["DATABASE_URL"])
    app.state.sessions = async_sessionmaker(engine)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with coordlock.connect_async() as client:
        app.state.locks = client
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def lock_account(account: str, request: Request) -> AsyncIterator[coordlock.AsyncGrant]:
    locks: coordlock.AsyncClient = request.app.state.locks
    async with locks.lock(f"account/{account}", timeout=30) as grant:
        yield grant


# Without the scope, FastAPI would release the lock after it has sent the response. A loss that is
# noticed then can't become an error any more.
Locked = Annotated[coordlock.AsyncGrant, Depends(lock_account, scope="function")]


async def begin(account: str, grant: Locked, request: Request) -> AsyncIterator[AsyncSession]:
    """A transaction that refuses stale tokens.

    It depends on the lock, so that FastAPI commits it before it releases the lock.
    """
    sessions: async_sessionmaker[AsyncSession] = request.app.state.sessions
    async with sessions.begin() as session:
        await AsyncSQLFence(session, fences).check(f"account/{account}", grant)
        yield session


Session = Annotated[AsyncSession, Depends(begin, scope="function")]


@app.exception_handler(coordlock.AcquireTimeout)
async def busy(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=423)


@app.exception_handler(coordlock.WaitError)
@app.exception_handler(coordlock.BackendUnavailable)
@app.exception_handler(coordlock.LockLost)
async def unavailable(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=503)


@app.post("/{account}/withdrawals/{amount}")
async def withdraw(account: str, amount: int, session: Session) -> int:
    row = await session.get_one(Account, account)
    row.balance -= amount
    return row.balance


async def main() -> None:
    async with (
        lifespan(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bank") as customer,
    ):
        async with app.state.sessions.begin() as session:
            session.add(Account(name="alice", balance=100))
        requests = [customer.post("/alice/withdrawals/1") for _ in range(100)]
        statuses = {response.status_code for response in await asyncio.gather(*requests)}
        async with app.state.sessions() as session:
            alice = await session.get_one(Account, "alice")
        print("answered:", statuses, "balance:", alice.balance)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DATABASE_URL"] = f"sqlite+aiosqlite:///{directory}/bank.db"
        asyncio.run(main())
