"""kazoo's answers as coordlock's promises."""

from __future__ import annotations

from typing import Any

from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import translate

__all__ = ["promise_of"]


def promise_of(result: Any) -> Promise[Any]:
    """A promise for ``result``, kazoo's ``AsyncResult``; it fails with coordlock's errors."""
    promise: Promise[Any] = Promise()

    def answered(result: Any) -> None:
        # kazoo fails all requests of a broken connection with one exception object. Raised as it
        # is, it would collect the traceback of each; so every request gets an error of its own.
        error = result.exception
        if error is None:
            promise.resolve(result.value)
        else:
            promise.fail(translate(error))

    result.rawlink(answered)
    return promise
