"""Async clients used as if they were sync ones, so that one suite tests both."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, TypeVar

import coordlock

__all__ = ["Portal", "behind"]

T = TypeVar("T")

#: Stands for the end of an iteration.
_OVER: Final = object()


class Portal:
    """An event loop in a thread, and a blocking front for async clients, locks and grants."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="portal", daemon=True)
        self._thread.start()

    def connect(self, *args: Any, **options: Any) -> Any:
        """`coordlock.connect_async`, with a client that looks like a sync one."""

        async def open_client() -> coordlock.AsyncClient:
            return await coordlock.connect_async(*args, **options)

        return self.front(asyncio.run_coroutine_threadsafe(open_client(), self._loop).result())

    def start(self, coroutine: Any) -> Future[Any]:
        """Run ``coroutine`` as a task of the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` in the loop; its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def front(self, value: Any) -> Any:
        """``value``, behind a blocking front when it is one of coordlock's async objects.

        Or when it is entered by ``async with``, as a fence's guard and its connection are.
        """
        kind = type(value)
        is_async = kind.__module__.startswith("coordlock.") and kind.__name__.startswith("Async")
        return _Front(self, value) if is_async or hasattr(kind, "__aenter__") else value

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def behind(value: Any) -> Any:
    """``value`` without its front, also in a list."""
    if isinstance(value, list):
        return [behind(one) for one in value]
    return value._target if isinstance(value, _Front) else value


class _Front:
    def __init__(self, portal: Portal, target: Any) -> None:
        self._portal = portal
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return self._portal.front(value)

        def call(*args: Any, **kwargs: Any) -> Any:
            async def run() -> Any:
                result = value(*map(behind, args), **kwargs)
                return await result if inspect.isawaitable(result) else result

            return self._portal.front(self._portal.start(run()).result())

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._target, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._target[key]

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        async def following() -> Any:
            return await anext(self._target, _OVER)

        if (value := self._portal.wait(following())) is _OVER:
            raise StopIteration
        return value

    def __contains__(self, key: Any) -> bool:
        return key in self._target

    def __enter__(self) -> Any:
        # One task enters and leaves, as in a real ``async with``.
        entered: Future[Any] = Future()
        self._leave: Future[BaseException | None] = Future()
        self._leave.set_running_or_notify_cancel()  # a lost lock cancels the task, and not this
        self._body = self._portal.start(self._hold(entered, self._leave))
        self._body.add_done_callback(
            lambda body: None if entered.done() else entered.set_exception(body.exception())
        )
        return self._portal.front(entered.result())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave.set_result(body)
        error = self._body.exception()
        if error is not None and error is not body:
            raise error

    async def _hold(self, entered: Future[Any], leave: Future[BaseException | None]) -> None:
        async with self._target as value:
            entered.set_result(value)
            body = await asyncio.wrap_future(leave)
            if body is not None:
                raise body

    def __call__(self, function: Any) -> Any:
        async def coroutine(*args: Any) -> Any:
            return function(*args)

        decorated = self._target(coroutine)
        return lambda *args: self._portal.start(decorated(*args)).result()
