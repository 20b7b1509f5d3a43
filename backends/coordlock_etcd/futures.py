"""One future after another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from coordlock.promise import Promise

__all__ = ["chained", "mapped"]

A = TypeVar("A")
B = TypeVar("B")


def mapped(first: Future[A], convert: Callable[[A], B]) -> Promise[B]:
    """A promise of what ``convert`` makes of the result; what it raises fails the promise."""
    promise: Promise[B] = Promise()

    def done(future: Future[A]) -> None:
        try:
            promise.resolve(convert(future.result()))
        except Exception as error:
            promise.fail(error)

    first.add_done_callback(done)
    return promise


def chained(first: Future[A], proceed: Callable[[A], Future[B]]) -> Promise[B]:
    """A promise of what the future resolves to that ``proceed`` makes of the result."""
    promise: Promise[B] = Promise()

    def done(future: Future[A]) -> None:
        try:
            second = proceed(future.result())
        except Exception as error:
            promise.fail(error)
        else:
            second.add_done_callback(finish)

    def finish(future: Future[B]) -> None:
        if (error := future.exception()) is not None:
            promise.fail(error)
        else:
            promise.resolve(future.result())

    first.add_done_callback(done)
    return promise
