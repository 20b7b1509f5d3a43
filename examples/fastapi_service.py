"""A FastAPI service that changes an account under the account's lock, one request at a time.

Run it as it is: it plays its own customers. As a service, on a cluster:

    COORDLOCK_URL=etcd://etcd1:2379 uvicorn --workers 4 fastapi_service:app

It needs fastapi and httpx, and uvicorn to be served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

import coordlock

balances = {"alice": 100}  # stands for a database, which would check `grant.token`, too


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with coordlock.connect_async() as client:
        app.state.locks = client
        yield


app = FastAPI(lifespan=lifespan)


async def lock_account(account: str, request: Request) -> AsyncIterator[coordlock.AsyncGrant]:
    locks: coordlock.AsyncClient = request.app.state.locks
    async with locks.lock(f"account/{account}", timeout=5) as grant:
        yield grant


# Without the scope, the lock would be released after the response was sent, and a loss that is
# noticed then could not become an error any more.
Locked = Annotated[coordlock.AsyncGrant, Depends(lock_account, scope="function")]


@app.exception_handler(coordlock.AcquireTimeout)
async def busy(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=423)


@app.exception_handler(coordlock.NotAcquired)
@app.exception_handler(coordlock.BackendUnavailable)
@app.exception_handler(coordlock.LockLost)
async def unavailable(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=503)


@app.post("/{account}/withdrawals/{amount}")
async def withdraw(account: str, amount: int, grant: Locked) -> int:
    balance = balances[account]
    await asyncio.sleep(0.001)  # the work; others run meanwhile, but none on this account
    grant.check()
    balances[account] = balance - amount
    return balances[account]


async def main() -> None:
    async with (
        lifespan(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bank") as customer,
    ):
        requests = [customer.post("/alice/withdrawals/1") for _ in range(100)]
        statuses = {response.status_code for response in await asyncio.gather(*requests)}
    print("answered:", statuses, "balance:", balances["alice"])


if __name__ == "__main__":
    asyncio.run(main())
