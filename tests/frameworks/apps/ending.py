"""A WSGI and an ASGI application that are ended while a request holds a lock or waits for it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

import coordlock

URL = os.environ["ENDING_URL"]
#: A request that holds the lock goes on when there is this file.
GO_ON = Path(os.environ["ENDING_GO_ON"])

client = coordlock.Client(URL)


def wait() -> None:
    """Wait until `GO_ON` is there."""
    while not GO_ON.exists():
        time.sleep(0.01)


def wsgi(
    environ: dict[str, object], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """Hold the lock until `GO_ON` is there; 503 where the wait for it was cancelled."""
    try:
        with client.lock("q"):
            wait()
        status = "200 OK"
    except coordlock.WaitCancelled:
        status = "503 Service Unavailable"
    start_response(status, [("Content-Type", "text/plain")])
    return [b"done"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The client's, which closes it."""
    async with coordlock.connect_async(URL) as locks:
        app.state.locks = locks
        yield


asgi = FastAPI(lifespan=lifespan)


@asgi.get("/")
async def hold() -> str:
    """Hold the lock until `GO_ON` is there."""
    async with asgi.state.locks.lock("q"):
        await asyncio.to_thread(wait)
    return "done"
