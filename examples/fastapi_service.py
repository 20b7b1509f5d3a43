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
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, Request
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from coordlock import AsyncGrant
from coordlock.fencing.sql import AsyncSQLFence, fence_table
from coordlock.integrations.fastapi import LockMiddleware, held, lifespan


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"

    name: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


fences = fence_table(Base.metadata)


@asynccontextmanager
async def run(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    engine = create_async_engine(os.environ["DATABASE_URL"])
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with lifespan()(app) as locks:
        yield {**locks, "sessions": async_sessionmaker(engine)}
    await engine.dispose()


app = FastAPI(lifespan=run)
app.add_middleware(LockMiddleware)

AccountLock = Annotated[AsyncGrant, held(lambda account: f"account/{account}", timeout=30)]


async def begin(account: str, grant: AccountLock, request: Request) -> AsyncIterator[AsyncSession]:
    """A transaction that refuses stale tokens."""
    async with request.state.sessions.begin() as session:
        await AsyncSQLFence(session, fences).check(f"account/{account}", grant)
        yield session


# By this scope, FastAPI commits before it sends the response: a commit that fails is an error.
Session = Annotated[AsyncSession, Depends(begin, scope="function")]


@app.post("/{account}")
async def open_account(account: str, session: Session) -> None:
    session.add(Account(name=account, balance=100))


@app.post("/{account}/withdrawals/{amount}")
async def withdraw(account: str, amount: int, session: Session) -> int:
    row = await session.get_one(Account, account)
    row.balance -= amount
    return row.balance


async def main() -> None:
    async with run(app) as state:
        transport = httpx.ASGITransport(lambda scope, *rest: app({**scope, "state": state}, *rest))
        async with httpx.AsyncClient(transport=transport, base_url="http://bank") as customer:
            await customer.post("/alice")
            requests = [customer.post("/alice/withdrawals/1") for _ in range(100)]
            statuses = {response.status_code for response in await asyncio.gather(*requests)}
            balance = (await customer.post("/alice/withdrawals/0")).json()
    print("answered:", statuses, "balance:", balance)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DATABASE_URL"] = f"sqlite+aiosqlite:///{directory}/bank.db"
        asyncio.run(main())
