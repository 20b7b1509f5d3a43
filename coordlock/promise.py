"""Futures that I/O threads complete and that no waiter can break."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from typing import TypeVar

__all__ = ["Promise", "copied", "failed", "resolved", "settled"]

T = TypeVar("T")


class Promise(Future[T]):
    """A future that is resolved once, by whoever comes first, and never cancelled.

    It is marked running at creation: `asyncio.wrap_future` cancels the future of a cancelled
    waiter, after which a plain future's ``set_result`` raises in the I/O thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()

    def resolve(self, value: T) -> bool:
        """Complete with ``value``; False when something else came first."""
        try:
            self.set_result(value)
        except InvalidStateError:
            return False
        return True

    def fail(self, error: BaseException) -> bool:
        """Complete with ``error``; False when something else came first."""
        try:
            self.set_exception(error)
        except InvalidStateError:
            return False
        return True


def resolved(value: T) -> Promise[T]:
    """A promise that is already kept."""
    promise: Promise[T] = Promise()
    promise.resolve(value)
    return promise


def failed(error: BaseException) -> Promise[T]:
    """A promise that is already broken."""
    promise: Promise[T] = Promise()
    promise.fail(error)
    return promise


def settled(future: Future[T]) -> Promise[None]:
    """A promise that is kept when ``future`` is done, however it ends."""
    promise: Promise[None] = Promise()
    future.add_done_callback(lambda _: promise.resolve(None))
    return promise


def copied(future: Future[T]) -> Promise[T]:
    """A promise that takes the outcome of ``future``, unless something else comes first."""
    promise: Promise[T] = Promise()

    def copy(_: Future[T]) -> None:
        error = future.exception()
        if error is None:
            promise.resolve(future.result())
        else:
            promise.fail(error)

    future.add_done_callback(copy)
    return promise
