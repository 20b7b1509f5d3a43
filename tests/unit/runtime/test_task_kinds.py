"""Waiting tasks of every kind that asyncio has: a task that waits holds a stand-in for a future."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from coordlock.testing.waiting import eventually
from tests.unit.clients import Service

_IN_PYTHON: Final = asyncio.tasks._PyTask  # type: ignore[attr-defined]
KINDS: Final[dict[str, Callable[..., Any] | None]] = {"in C": None}
if sys.version_info >= (3, 12):
    KINDS["eager, in C"] = asyncio.eager_task_factory
# From Python 3.14 on, asyncio itself does not know which task in Python is the current one.
if sys.version_info < (3, 14):
    KINDS["in Python"] = lambda loop, coroutine, **options: _IN_PYTHON(
        coroutine, loop=loop, **options
    )
    if sys.version_info >= (3, 12):
        KINDS["eager, in Python"] = asyncio.create_eager_task_factory(_IN_PYTHON)


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_waiting_task_is_woken_cancelled_and_timed_out(kind: str, debug: bool) -> None:
    service = Service()

    async def wait_in_all_ways() -> None:
        asyncio.get_running_loop().set_task_factory(KINDS[kind])
        async with service.async_client() as holder, service.async_client() as other:
            grant = await holder.lock("q").acquire()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await other.lock("q").acquire()
            waits = [asyncio.create_task(other.lock("q").acquire()) for _ in range(3)]
            await asyncio.to_thread(eventually, lambda: service.size("q") == 4)
            assert all("pending" in repr(wait) and wait.get_stack() for wait in waits)
            assert waits[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits[0]
            assert waits[0].cancelled()
            await grant.release()
            for wait in waits[1:]:
                await (await wait).release()

    with asyncio.Runner(debug=debug) as runner:
        runner.run(asyncio.wait_for(wait_in_all_ways(), 30))
