"""kazoo's answers as coordlock's promises."""

from __future__ import annotations

import threading
from typing import Any

from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import translate

__all__ = ["Latch", "promise_of"]


class Latch(type(threading.RLock())):  # type: ignore[misc]
    """The condition of one of kazoo's answers, which Ctrl-C can't leave locked.

    A ``with`` statement enters a lock of C's in one step. It enters `threading.Condition` by a
    function, and Ctrl-C between that function's lock and its return leaves the lock taken; then
    kazoo's I/O thread would wait for it, for ever, when the answer comes.
    """

    _condition: threading.Condition | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is notified. Nothing of ours does, as nothing may block."""
        if self._condition is None:
            self._condition = threading.Condition(self)
        return self._condition.wait(timeout)

    def notify_all(self) -> None:
        """Wake those that wait."""
        if self._condition is not None:
            self._condition.notify_all()


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
