from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from testbed.clients.steps import Steps, at_once, run, run_async


def in_thread(steps: Steps[str]) -> str:
    return run(steps)


def in_task(steps: Steps[str]) -> str:
    return asyncio.run(run_async(steps))


def double(drive: object, value: int) -> Any:
    """Twice the value, or an awaitable for it."""

    async def later() -> int:
        return 2 * value

    return later() if drive is in_task else 2 * value


def fail(drive: object) -> Any:
    async def later() -> None:
        raise KeyError("later")

    if drive is in_task:
        return later()
    raise KeyError("now")


@pytest.mark.parametrize("drive", [in_thread, in_task])
def test_threads_and_tasks_take_the_same_steps(drive: Callable[[Steps[str]], str]) -> None:
    def steps() -> Steps[str]:
        first: int = yield lambda: double(drive, 1)
        second: int = yield lambda: double(drive, first)
        try:
            yield lambda: fail(drive)
        except KeyError:
            second += 1
        return str(second)

    assert drive(steps()) == "5"


@pytest.mark.parametrize("drive", [in_thread, in_task])
def test_an_error_that_no_step_expects_comes_out(drive: Callable[[Steps[str]], str]) -> None:
    def steps() -> Steps[str]:
        yield lambda: fail(drive)
        return "never"

    with pytest.raises(KeyError):
        drive(steps())


def test_steps_that_are_taken_at_once_wait_for_each_other() -> None:
    def meet(barrier: asyncio.Barrier) -> Steps[str]:
        position: int = yield barrier.wait
        return str(position)

    def steps() -> Steps[str]:
        barrier = asyncio.Barrier(3)
        met: list[str] = yield from at_once([meet(barrier) for _ in range(3)])
        return "".join(sorted(met))

    assert in_task(steps()) == "012"
