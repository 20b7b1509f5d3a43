"""Connecting while faults may be under way, and a count of what a client has when all is well."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import Final

from coordlock_faults.journal import Journal

import coordlock
from coordlock.locks.grant import GrantState
from testbed.clients.census import Census
from testbed.clients.given import Given
from testbed.clients.worker import EXPECTED

__all__ = ["connect"]

log = logging.getLogger("testbed")

#: How long to wait in vain, in seconds: coordlock watches its own contender a moment after a grant.
_MOMENT: Final = 0.4
#: How long a first look at a queue may take, in seconds.
_PATIENCE: Final = 10.0


async def connect(
    url: str, journal: Journal, given: Given | None = None
) -> tuple[coordlock.Client, coordlock.AsyncClient, Census]:
    """Both clients, and what they have: as soon as all is well, for faults may be under way.

    With ``given``, they share that.
    """
    client = other = None
    theirs = given and given.client
    while True:
        try:
            client = client or coordlock.connect(url, client=theirs)
            other = other or await coordlock.connect_async(url, client=theirs)
            if census := await _warm_up(client, other, journal, given):
                return client, other, census
        except (*EXPECTED, TimeoutError) as error:
            log.warning("once more: %s", error)
        await asyncio.sleep(0.1)


async def _warm_up(
    client: coordlock.Client,
    other: coordlock.AsyncClient,
    journal: Journal,
    given: Given | None,
) -> Census | None:
    """Hold and wait with either client, so that all is there that they ever start; count it.

    None when that was disturbed.
    """
    mine, theirs = (f"warm-{os.getpid()}-{number}" for number in (1, 2))
    with client.lock(mine, timeout=20) as held:
        async with other.lock(theirs, timeout=20) as also_held:
            # Each waits in vain for the other's, unless a fault takes that away.
            with contextlib.suppress(coordlock.WaitError):
                client.lock(theirs).acquire(_MOMENT).release()
            with contextlib.suppress(coordlock.WaitError):
                await (await other.lock(mine).acquire(_MOMENT)).release()
            # A request that comes during another one may start what that had no need of.
            await asyncio.gather(*(other.admin.names() for _ in range(20)))
            with client.group(mine).observe() as seen:
                seen.next(_PATIENCE)
            async with other.group(mine).observe() as also_seen:
                await also_seen.next(_PATIENCE)
            # A given channel has one connection and never makes more.
            own = () if given else (client.settings, other.settings)
            census = Census(journal, own)
            return census if held.state is also_held.state is GrantState.HELD else None
