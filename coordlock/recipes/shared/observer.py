"""Observers, which follow a state of the service, for threads and for asyncio."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from copy import copy
from typing import Any, Final, Generic, Self, TypeVar

from coordlock.backend import Listing, Observation
from coordlock.errors import WaitCancelled, WaitTimeout, WaitUnavailable
from coordlock.kernel.engine import Engine
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import soon
from coordlock.runtime.deadline import Cancellation, Cancelled, DeadlineReached
from coordlock.runtime.driver import Steps, awaiting, blocking, bounded
from coordlock.runtime.guards import Resident
from coordlock.runtime.promise import Condition
from coordlock.settings import Duration, timeout_of

__all__ = ["AsyncObserver", "BaseObserver", "Begin", "Observer", "wait_until"]

S = TypeVar("S", Listing, Snapshot)
T = TypeVar("T")

#: Begins an observation that calls what it is given when there is news. It keeps the recipe and so
#: the client, which is closed once nothing keeps it.
Begin = Callable[[Callable[[], None]], Observation[Any]]


class BaseObserver(Resident, Generic[T]):
    """What sync and async observers share."""

    _instead = "make another observer with a client there"

    def __init__(
        self, engine: Engine, begin: Begin, show: Callable[[Any, T | None], T], kind: str, name: str
    ) -> None:
        """``show`` makes what is shown of a state, given what was shown before: None at first.

        ``kind`` and ``name`` are what errors call it.
        """
        engine.check()
        self._engine: Final = engine
        self._show: Final = show
        self._kind, self._name = kind, name
        self._news: Final = Condition()
        self._closed_at: float | None = None
        #: What was shown last, in a tuple of one; empty before the first.
        self._shown_last: tuple[T, ...] = ()
        self._begin: Final = begin  # whose client must not be closed meanwhile
        self._observation: Final = begin(self._news.notify)
        # A loop that is left by `break` closes nothing.
        self._dropped: Final = weakref.finalize(self, _drop, engine, self._observation)
        self._dropped.atexit = False

    @property
    def state(self) -> T:
        """The newest state received, without asking the service: see ``stale_for``.

        Raises LookupError before the first one.
        """
        view = self._observation.view
        if view.state is None:
            raise LookupError("no state has come yet: wait for the first one with next()")
        return self._shown(view.state)

    @property
    def stale_for(self) -> float | None:
        """For how many seconds changes may have been missed; None if it is up to date.

        It is a number while the service does not answer, while the state changes faster than it can
        be read, before the first state, and once the observer is closed.
        """
        since = self._observation.view.stale_since
        if since is None:
            since = self._closed_at
        return None if since is None else max(0.0, self._engine.clock.now() - since)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed_at is not None

    def _next(
        self, timeout: Duration | None = None, *, cancellation: Cancellation | None = None
    ) -> Steps[T]:
        """Wait for a state that differs from the last one returned, and return it.

        It is the newest: states in between are skipped. Raises `WaitTimeout` after ``timeout``
        seconds, `WaitCancelled` when ``cancellation`` comes, or a signal after
        `release_on_signals`, `ClientClosed` once the client is closed, ValueError once the observer
        is closed, and what ends the observation, such as `AuthenticationFailed`.
        """
        seconds = timeout_of("next", timeout)
        within = self._engine.until(seconds, cancellation)
        try:
            if (yield from bounded(self._advance(), within)):
                return self._shown_last[0]
        except Cancelled as cancelled:
            raise WaitCancelled(self._name, str(cancelled), kind=self._kind) from None
        except DeadlineReached:
            problem = "showed nothing new"
            raise WaitTimeout(
                self._name, seconds or 0.0, kind=self._kind, problem=problem
            ) from None
        raise ValueError("the observer is closed")

    def _advance(self) -> Steps[bool]:
        """Wait until there is a state that was not shown, and take it; False once it is closed."""
        while True:
            notified = self._news.notified
            if self.closed:
                return False
            self._engine.check()
            view = self._observation.view
            if view.state is not None:
                shown = self._shown(view.state)
                if self._shown_last != (shown,):
                    self._shown_last = (shown,)
                    return True
            if view.ended is not None:
                raise copy(view.ended)
            yield notified

    def _shown(self, state: Any) -> T:
        return self._show(state, self._shown_last[0] if self._shown_last else None)

    def close(self) -> None:
        """Stop following; idempotent. Ends a wait for the next state."""
        if self._closed_at is None:
            self._closed_at = self._engine.clock.now()
        self._dropped.detach()
        self._observation.cancel()
        self._news.notify()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} at {self._engine.settings}: {state}>"


def _drop(engine: Engine, observation: Observation[Any]) -> None:
    """Cancel the observation of an observer that was dropped without `close`.

    In the timers' thread: garbage collection may interrupt any step, also of the backend.
    """
    if not (engine.inherited or engine.closed):
        soon(engine.timers, observation.cancel)


class Observer(BaseObserver[T]):
    """Follows a state of the service: an iterator of its states, from the present one on.

    Each is the newest at its time; the states never go back. A context manager that closes it,
    which ends the iteration. Made by what is observed; for one thread.
    """

    next = blocking(BaseObserver[T]._next)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._further():
            return self._shown_last[0]
        raise StopIteration

    _further = blocking(BaseObserver[T]._advance)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class AsyncObserver(BaseObserver[T]):
    """Follows a state of the service: an async iterator of its states, from the present one on.

    Each is the newest at its time; the states never go back. An async context manager that closes
    it, which ends the iteration. Made by what is observed; for one task.
    """

    next = awaiting(BaseObserver[T]._next)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if await self._further():
            return self._shown_last[0]
        raise StopAsyncIteration

    _further = awaiting(BaseObserver[T]._advance)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.close()


def wait_until(
    engine: Engine,
    begin: Callable[[Callable[[], None]], Observation[S]],
    is_wanted: Callable[[S], bool],
    timeout: float | None,
    in_vain: Callable[[S, float], WaitTimeout],
    kind: str,
    name: str,
    cancellation: Cancellation | None = None,
) -> Steps[None]:
    """Wait until the newest state of what ``begin`` observes is as ``is_wanted`` says.

    ``timeout`` is in seconds; None waits for ever, and 0 looks once, for up to the client's
    ``request_timeout``. When the time is up, it raises what ``in_vain`` makes of the last state and
    the seconds, or `WaitUnavailable` where no state has come, or changes may have been missed: of
    the ``name`` of that ``kind``.
    """
    yield from engine.first_session()
    started = engine.clock.now()
    bound = timeout or (None if timeout is None else engine.settings.request_timeout)
    deadline = engine.until(bound, cancellation)
    observer: BaseObserver[S] = BaseObserver(engine, begin, lambda state, _: state, kind, name)
    try:
        while True:
            yield from bounded(observer._advance(), deadline)
            if is_wanted(observer.state):
                return
            if timeout == 0:
                break
    except Cancelled as cancelled:
        raise WaitCancelled(name, str(cancelled), kind=kind) from None
    except DeadlineReached as late:
        if observer.stale_for is not None:
            silent = engine.silent(late)
            reason = f"{silent.reason}; what was waited for may have come"
            waited = engine.clock.now() - started
            raise WaitUnavailable(
                silent.service, reason, name, waited, kind=kind
            ) from late.__cause__
    finally:
        observer.close()
    raise in_vain(observer.state, engine.clock.now() - started)
