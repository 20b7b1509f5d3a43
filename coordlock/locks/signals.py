"""Signals and callbacks for the loss of a lock, and for requests to release it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from coordlock.errors import ClientClosed, CoordlockError
from coordlock.locks.base_grant import BaseGrant, GrantState
from coordlock.runtime.driver import completion
from coordlock.runtime.functions import PlainFunction
from coordlock.runtime.promise import Promise
from coordlock.settings import Duration, timeout_of

if TYPE_CHECKING:
    import asyncio

    from coordlock.locks.release_requests import Requests

__all__ = [
    "AsyncLossSignal",
    "AsyncReleaseRequest",
    "AwaitingSignals",
    "BlockingSignals",
    "LossSignal",
    "ReleaseRequest",
]

T = TypeVar("T")

_CALLBACK: Final = PlainFunction(
    "callback must be a function of the grant",
    "which nobody would run",
    "give a plain function, which may start a task, or await grant.lost.wait()",
    "give a plain function",
)


class _End:
    """The end of one grant, for waiters: one event for all threads, and one future for each loop.

    A promise never forgets a callback before it is kept, so each of them is made once.
    """

    def __init__(self, end: Promise[Any]) -> None:
        self._end = end
        self._event: threading.Event | None = None
        self._futures: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}

    def event(self) -> threading.Event:
        """Set at the end."""
        if self._event is None:
            event = threading.Event()
            self._end.add_done_callback(lambda _: event.set())
            self._event = event
        return self._event

    def future(self) -> asyncio.Future[None]:
        """Done at the end; of the running loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        if loop not in self._futures:
            _forget_closed(self._futures)
            self._futures[loop] = completion(self._end)
        return self._futures[loop]


def _forget_closed(kept: dict[asyncio.AbstractEventLoop, T]) -> None:
    """Drop what is kept for event loops that are closed."""
    for loop in [one for one in kept if one.is_closed()]:
        del kept[loop]


class _BaseSignal:
    def __init__(self, reason: Callable[[], str | None], end: _End) -> None:
        self._reason = reason
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


class _Signal(_BaseSignal):
    """Set once, while a grant is held or at its end."""

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until it is set, for ``timeout`` seconds at most; returns whether it is.

        The end of the grant also ends the wait, with False if it is not set.
        """
        bound = timeout_of("wait", timeout)
        event = self._end.event()
        if not self.is_set():  # a forked child has lost it, and is not told
            event.wait(None if bound is None else min(bound, threading.TIMEOUT_MAX))
        return self.is_set()


class _AsyncSignal(_BaseSignal):
    """Set once, while a grant is held or at its end."""

    async def wait(self) -> bool:
        """Wait until it is set; returns whether it is. The end of the grant also ends the wait.

        Bound it with ``asyncio.timeout``.
        """
        import asyncio

        await asyncio.wait([self._end.future()])
        return self.is_set()


class LossSignal(_Signal):
    """Set when the lock is lost: at the deadline, or as soon as the service reports it."""


class AsyncLossSignal(_AsyncSignal):
    """Set when the lock is lost: at the deadline, or as soon as the service reports it."""


class ReleaseRequest(_Signal):
    """Set when another client has asked that the grant be released."""


class AsyncReleaseRequest(_AsyncSignal):
    """Set when another client has asked that the grant be released."""


class _Signals(BaseGrant, shown="Grant"):
    """The signals of a grant, as far as they are the same for threads and for asyncio."""

    _requests: tuple[Requests, _End] | None = None

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

        self._listen()[0].asked.add_done_callback(asked)

    def _scheduling(self, callback: Callable[[Self], object]) -> Callable[[], None]:
        """A function that schedules ``callback(self)`` where callbacks run, from any thread."""
        raise NotImplementedError

    def _when_lost(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` at the loss, in any thread, or now if it has come; not after a release.

        The program that closes the client ends the hold itself, so that is not called, either.
        """

        def ended(end: Promise[CoordlockError | None]) -> None:
            if isinstance(end.result(), ClientClosed | None):
                return
            if self._loss() is not None:  # it is None if this reentrant grant was released before
                tell()

        self._end.add_done_callback(ended)

    @cached_property
    def _loss_end(self) -> _End:
        return _End(self._end)

    def _listen(self) -> tuple[Requests, _End]:
        """The requests to release and their end, followed from the first call on."""
        from coordlock.locks.release_requests import Requests

        with self._engine.lock:
            if self._requests is None:
                requests = Requests(self._engine, self._ticket)
                self._requests = requests, _End(requests.asked)
            return self._requests


def _called(callback: Callable[[T], object]) -> Callable[[T], object]:
    """A function that calls ``callback``. Raises TypeError if that would do nothing, or fail."""
    _CALLBACK.check(callback)
    return lambda grant: _CALLBACK.finished(callback, callback(grant))


class BlockingSignals(_Signals, shown="Grant"):
    """The signals of a grant, for threads."""

    @property
    def lost(self) -> LossSignal:
        """The loss signal."""
        return LossSignal(self._loss, self._loss_end)

    @property
    def release_requested(self) -> ReleaseRequest:
        """Set when another client asks that the lock be released: `Admin.request_release`.

        The lock stays held until you release it. The first use begins to listen, so a request may
        show a moment later. Raises `Unsupported` if the backend keeps no data.
        """
        requests, end = self._listen()
        return ReleaseRequest(requests.reason, end)

    def _scheduling(self, callback: Callable[[Self], object]) -> Callable[[], None]:
        engine = self._engine
        return lambda: engine.call_back(lambda: callback(self))


class AwaitingSignals(_Signals, shown="AsyncGrant"):
    """The signals of a grant, for asyncio."""

    #: What cancels the bodies of `cancel_on_loss`, by the loop in which they run.
    _cancels_in: dict[asyncio.AbstractEventLoop, set[Callable[[], None]]] | None = None

    @property
    def lost(self) -> AsyncLossSignal:
        """The loss signal."""
        return AsyncLossSignal(self._loss, self._loss_end)

    @property
    def release_requested(self) -> AsyncReleaseRequest:
        """Set when another client asks that the lock be released: see `Grant.release_requested`."""
        requests, end = self._listen()
        return AsyncReleaseRequest(requests.reason, end)

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
        cancelled = False
        before = task.cancelling()

        def cancel() -> None:
            nonlocal cancelled
            cancelled = task.cancel()

        cancels = self._cancels(asyncio.get_running_loop())
        cancels.add(cancel)
        try:
            try:
                self.check()
                yield self
            finally:
                cancels.remove(cancel)
        except BaseException as error:
            ours = cancelled and task.uncancel() <= before
            if ours and isinstance(error, asyncio.CancelledError):
                raise self._lost_error() from error
            raise
        if cancelled:
            task.uncancel()
        if self.state is GrantState.LOST:
            raise self._lost_error()

    def _cancels(self, loop: asyncio.AbstractEventLoop) -> set[Callable[[], None]]:
        """What cancels the bodies in ``loop``: at a loss, all that are in this set then."""
        if self._cancels_in is None:
            self._cancels_in = {}
        if (cancels := self._cancels_in.get(loop)) is None:
            _forget_closed(self._cancels_in)
            entered: set[Callable[[], None]] = set()
            cancels = self._cancels_in[loop] = entered

            def cancel_all(_: object) -> None:
                for cancel in tuple(entered):
                    cancel()

            # One for all, because a promise never forgets a callback.
            self.on_lost(cancel_all)
        return cancels
