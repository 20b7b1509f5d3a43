"""One future after another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from coordlock.errors import BackendError, CoordlockError
from coordlock.promise import Promise, resolved
from coordlock_etcd.errors import SERVICE

__all__ = ["chained", "mapped"]

A = TypeVar("A")
B = TypeVar("B")


def mapped(first: Future[A], convert: Callable[[A], B]) -> Promise[B]:
    """A promise of what ``convert`` makes of the result; what it raises fails the promise."""
    return chained(first, lambda result: resolved(convert(result)))


def chained(first: Future[A], proceed: Callable[[A], Future[B]]) -> Promise[B]:
    """A promise of what the future resolves to that ``proceed`` makes of the result."""
    promise: Promise[B] = Promise()

    def done(future: Future[A]) -> None:
        try:
            second = proceed(future.result())
        except CoordlockError as error:
            promise.fail(error)
        except Exception as error:
            # An answer that makes no sense must not pass for an error of the caller's.
            promise.fail(BackendError(SERVICE, f"unexpected answer: {error!r}"))
        else:
            second.add_done_callback(finish)

    def finish(future: Future[B]) -> None:
        if (error := future.exception()) is not None:
            promise.fail(error)
        else:
            promise.resolve(future.result())

    first.add_done_callback(done)
    return promise
