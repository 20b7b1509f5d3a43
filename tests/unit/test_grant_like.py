"""Grants fulfil `GrantLike`: mypy checks these assignments, which are the test."""

from __future__ import annotations

import asyncio

import pytest

import coordlock
from coordlock import AsyncGrant, Grant, LockLost
from coordlock.types import AsyncGrantLike, GrantLike


def held(grant: Grant) -> GrantLike:
    return grant


def held_async(grant: AsyncGrant) -> AsyncGrantLike:
    return grant


def finish(work: GrantLike) -> tuple[int, bool]:
    """Something that takes what is held, however it was acquired."""
    work.on_lost(lambda _: None)
    work.check()
    assert not work.lost.is_set()
    assert work.remaining() > 0
    return work.token, work.release()


def test_grants_of_every_kind_are_held() -> None:
    with coordlock.connect("memory://held") as client:
        grants: list[Grant] = [
            client.lock("a").acquire(),
            client.reentrant_lock("b").acquire(),
            client.upgradeable_lock("c").acquire(),
            client.value_lock("d").acquire(),
            client.multi_lock(["e", "f"]).acquire(),
        ]
        for grant in grants:
            assert finish(held(grant)) == (grant.token, True)
            with pytest.raises(LockLost):
                held(grant).check()


def test_an_async_grant_is_held() -> None:
    async def main() -> None:
        async with coordlock.connect_async("memory://held-async") as client:
            work = held_async(await client.lock("a").acquire())
            work.on_lost(lambda _: None)
            work.check()
            assert (work.state, work.lost.is_set()) == (coordlock.GrantState.HELD, False)
            assert await work.release() is True
            assert await work.lost.wait() is False

    asyncio.run(main())
