"""Signals and callbacks for the loss of a lock, and for requests to release it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from coordlock.errors import ClientClosed, CoordlockError
from coordlock.locks.base_grant import BaseGrant, GrantState
from coordlock.runtime.driver import completion
from coordlock.runtime.guards import PlainFunction
from coordlock.runtime.promise import Promise
from coordlock.settings import Duration, timeout_of

if TYPE_CHECKING:
    from coordlock.records.release_requests import Requests

__all__ = [
    "AsyncSignal",
    "AwaitingSignals",
    "BlockingSignals",
    "Signal",
]

T = TypeVar("T")

_CALLBACK: Final = PlainFunction(
    "callback must be a function of the grant",
    "which nobody would run",
    "give a plain function, which may start a task, or await grant.lost.wait()",
    "give a plain function",
)


class _BaseSignal:
    """Set once, while a grant is held or at its end."""

    def __init__(self, reason: Callable[[], str | None], end: Promise[Any]) -> None:
        self._reason = reason
        #: Kept when it is set, or the grant ends without that.
        self._end = end

    def is_set(self) -> bool:
        """Whether it is set; so is ``bool(signal)``."""
        return self._reason() is not None

    def __bool__(self) -> bool:
        return self.is_set()

    @property
    def reason(self) -> str | None:
        """Why it was set; None if it is not."""
        return self._reason()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._reason() or 'not set'}>"


class Signal(_BaseSignal):
    """Whether a lock was lost, or its release requested: see `Grant.lost`, `release_requested`."""

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until it is set, for ``timeout`` seconds at most; returns whether it is.

        The end of the grant also ends the wait, with False if it is not set.
        """
        bound = timeout_of("wait", timeout)
        ended = threading.Event()

        def end(_: object) -> None:
            ended.set()

        self._end.add_done_callback(end)
        try:
            if not self.is_set():  # in a forked child it is lost without an event
                ended.wait(None if bound is None else min(bound, threading.TIMEOUT_MAX))
        finally:
            self._end.remove_done_callback(end)
        return self.is_set()


class AsyncSignal(_BaseSignal):
    """Whether a lock was lost, or its release was requested, for asyncio."""

    async def wait(self) -> bool:
        """Wait until it is set; returns whether it is. The end of the grant also ends the wait.

        Bound it with ``asyncio.timeout``.
        """
        await completion(self._end)
        return self.is_set()


class _Signals(BaseGrant):
    """The signals of a grant, as far as they are the same for threads and for asyncio."""

    _requests: Requests | None = None

    def on_lost(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback(grant)`` once if the lock is lost, or at once if it already is.

        A release never calls it, and neither does the client's close. It runs in a thread for
        callbacks, which logs exceptions, or with asyncio in the event loop of this call.
        """
        self._when_lost(self._scheduling(_called(callback)))

    def on_release_requested(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback(grant)`` once when another client asks that the lock be released.

        Also if the request came earlier; not after the end of the grant. It runs where callbacks of
        `on_lost` run. Raises `Unsupported` if the backend keeps no data.
        """
        call = self._scheduling(_called(callback))

        def asked(request: Promise[str | None]) -> None:
            if request.result() is not None:
                call()

        self._listen().asked.add_done_callback(asked)

    def _scheduling(self, callback: Callable[[Self], object]) -> Callable[[], None]:
        """A function that schedules ``callback(self)`` where callbacks run, from any thread."""
        raise NotImplementedError

    def _when_lost(self, call: Callable[[], object]) -> Callable[[], None]:
        """Call ``call`` at the loss, in any thread, or now if it has come; not after a release.

        Nor after the client's close, by which the program itself ends the hold. Returns what
        prevents the call.
        """

        def ended(end: Promise[CoordlockError | None]) -> None:
            if isinstance(end.result(), ClientClosed | None):
                return
            if self._loss() is not None:  # it is None if this reentrant grant was released before
                call()

        self._end.add_done_callback(ended)
        return partial(self._end.remove_done_callback, ended)

    def _listen(self) -> Requests:
        """The requests to release, followed from the first call on."""
        from coordlock.records.release_requests import Requests

        with self._engine.lock:
            if self._requests is None:
                self._requests = Requests(self._engine, self._ticket)
            return self._requests


def _called(callback: Callable[[T], object]) -> Callable[[T], object]:
    """A function that calls ``callback``. Raises TypeError if that would do nothing, or fail."""
    _CALLBACK.check(callback)
    return lambda grant: _CALLBACK.finished(callback, callback(grant))


class BlockingSignals(_Signals):
    """The signals of a grant, for threads."""

    @property
    def lost(self) -> Signal:
        """Set when the lock is lost: at the deadline, or as soon as the service reports it."""
        return Signal(self._loss, self._end)

    @property
    def release_requested(self) -> Signal:
        """Set when another client asks that the lock be released: `Admin.request_release`.

        The lock stays held until you release it. The first use begins to listen, so a request may
        show a moment later. Raises `Unsupported` if the backend keeps no data.
        """
        requests = self._listen()
        return Signal(requests.reason, requests.asked)

    def _scheduling(self, callback: Callable[[Self], object]) -> Callable[[], None]:
        engine = self._engine
        return lambda: engine.call_back(lambda: callback(self))


class AwaitingSignals(_Signals):
    """The signals of a grant, for asyncio."""

    @property
    def lost(self) -> AsyncSignal:
        """Set when the lock is lost: at the deadline, or as soon as the service reports it."""
        return AsyncSignal(self._loss, self._end)

    @property
    def release_requested(self) -> AsyncSignal:
        """Set when another client asks that the lock be released: see `Grant.release_requested`."""
        requests = self._listen()
        return AsyncSignal(requests.reason, requests.asked)

    def _scheduling(self, callback: Callable[[Self], object]) -> Callable[[], None]:
        import asyncio

        loop = asyncio.get_running_loop()

        def call() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(callback, self)

        return call

    @asynccontextmanager
    async def cancel_on_loss(self) -> AsyncIterator[Self]:
        """Cancel the body when the lock is lost, and raise `LockLost` from the block.

        Like ``asyncio.timeout`` at its deadline: the body gets ``CancelledError`` at its next
        ``await``. Other cancellations pass through unchanged. The client's close does not cancel
        the body; the block raises `LockLost` when the body ends.
        """
        import asyncio

        task = asyncio.current_task()
        assert task is not None
        cancelled, has_ended = False, False
        before = task.cancelling()

        def cancel(_: object) -> None:
            nonlocal cancelled
            if not has_ended:
                cancelled = task.cancel()

        forget = self._when_lost(self._scheduling(cancel))
        try:
            try:
                self.check()
                yield self
            finally:
                has_ended = True
                forget()
        except BaseException as error:
            ours = cancelled and task.uncancel() <= before
            if ours and isinstance(error, asyncio.CancelledError):
                raise self._lost_error() from error
            raise
        if cancelled:
            task.uncancel()
        if self.state is GrantState.LOST:
            raise self._lost_error()
