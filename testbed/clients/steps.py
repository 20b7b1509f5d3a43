"""Steps that threads and tasks both take: written once, and run by blocking or by awaiting.

A generator yields actions. Clients for threads and for asyncio have the same methods, so an action
such as ``lock.acquire`` is right for both: it gives the result to one, an awaitable to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

__all__ = ["Steps", "run", "run_async"]

T = TypeVar("T")

#: Steps with a result of type T.
Steps = Generator[Callable[[], Any], Any, T]


def run(steps: Steps[T]) -> T:
    """Take ``steps`` in the calling thread; their result."""
    try:
        action = next(steps)
        while True:
            try:
                outcome = action()
            except BaseException as error:
                action = steps.throw(error)
            else:
                action = steps.send(outcome)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def run_async(steps: Steps[T]) -> T:
    """Take ``steps`` in the current task, cancellations too; their result."""
    try:
        action = next(steps)
        while True:
            try:
                outcome = await action()
            except BaseException as error:
                action = steps.throw(error)
            else:
                action = steps.send(outcome)
    except StopIteration as stop:
        result: T = stop.value
        return result
