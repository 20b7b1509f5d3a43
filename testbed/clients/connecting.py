"""Connecting while faults may be under way."""

from __future__ import annotations

import asyncio
import logging

import coordlock
from testbed.clients.worker import EXPECTED

__all__ = ["connect"]

log = logging.getLogger("testbed")


async def connect(url: str) -> tuple[coordlock.Client, coordlock.AsyncClient]:
    """Both clients, each of which has held a lock: as soon as no fault prevents it."""
    client = other = None
    while True:
        try:
            client = client or coordlock.connect(url)
            other = other or await coordlock.connect_async(url)
            client.lock("warm").acquire(20).release()
            await (await other.lock("warm").acquire(20)).release()
        except (*EXPECTED, TimeoutError) as error:
            log.warning("once more: %s", error)
            await asyncio.sleep(0.1)
        else:
            return client, other
