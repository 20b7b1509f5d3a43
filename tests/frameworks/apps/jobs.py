"""Functions that processes of a pool run, under a lock of the module's own client."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import coordlock

client = coordlock.Client(os.environ["JOBS_URL"], timeout=60)
async_client = coordlock.AsyncClient(os.environ["JOBS_URL"], timeout=60)
ledger = Path(os.environ["JOBS_LEDGER"])


@client.lock("ledger")
def book(number: int) -> int:
    """Add a line to the ledger, in a way that loses some without a lock; this process's id."""
    lines = ledger.read_text()
    time.sleep(0.001)
    ledger.write_text(f"{lines}{number}\n")
    return os.getpid()


@async_client.lock("ledger")
async def book_async(number: int) -> None:
    """The same as `book`."""
    lines = await asyncio.to_thread(ledger.read_text)
    await asyncio.to_thread(ledger.write_text, f"{lines}{number}\n")


def book_either(number: int) -> int:
    """`book`, or `book_async` in a loop of its own: each process uses both clients."""
    if number % 2:
        asyncio.run(book_async(number))
        return os.getpid()
    return book(number)
