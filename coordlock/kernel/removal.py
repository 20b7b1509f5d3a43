"""A ticket's withdrawal: repeated until the service has answered, and again where in doubt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from coordlock.backend import Backend
from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError, SessionLost
from coordlock.kernel.recovery import Recovery
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.model.contender import Entry
from coordlock.model.names import joined
from coordlock.runtime.clock import Timers, ensure, sleep, soon
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, resolved, settled

__all__ = ["Leaving", "Withdrawal", "removal"]

T = TypeVar("T")

#: When a contender in doubt is looked for again after its removal: seconds from one to the next.
_CONFIRMATIONS: Final = (1.0, 5.0, 15.0, 60.0)
_ANSWERED: Final[Promise[Any]] = resolved(None)


def removal(
    call: Callable[[], Promise[bool]],
    timers: Timers,
    *,
    longest: float = 2.0,
    pause: Callable[[float], Promise[None]] | None = None,
) -> Steps[bool]:
    """The answer of ``call``, which removes something and tells whether it was there.

    Repeated as `retried` does. True also when it finds nothing after an attempt without an answer:
    that attempt has removed it.
    """
    doubts: list[BackendUnavailable] = []
    steps = retried(call, timers, longest=longest, on_failure=doubts.append, pause=pause)
    removed = yield from steps
    return removed or bool(doubts)


class Leaving(Protocol):
    """What a withdrawal uses of its ticket, which keeps it and is passed to it."""

    @property
    def end(self) -> Promise[CoordlockError | None]:
        """Kept with the loss, or with None if the withdrawal begins before a loss."""

    def stop_watching(self) -> None:
        """Watch no contender any longer."""

    def until_told(self) -> Promise[None]:
        """A promise that is kept when the ticket is told of a loss, also after its withdrawal."""


@dataclass(slots=True, eq=False, repr=False)
class Withdrawal:
    """How the contenders of one ticket leave their queues: for certain, once it has begun.

    It knows the requests that may have added them. An outage does not end it: it goes on when the
    service answers again, or when the service has ended the session, which removes them, too. It
    calls ``on_gone`` with the entries when no contender can be left; perhaps twice. And ``on_free``
    once, where it is certain that no request can add or remove any of them any more.
    """

    _entries: tuple[Entry, ...]
    _session: Session
    _backend: Backend
    _timers: Timers
    _recovery: Recovery
    _on_gone: Callable[[tuple[Entry, ...]], None]
    _on_free: Callable[[tuple[Entry, ...]], None]
    _lock: threading.RLock  #: the ticket's
    has_begun: bool = False
    #: Whether it has removed every contender, once that is known.
    answer: Promise[bool] = field(default_factory=Promise)
    #: Whether it is certain that it removed every contender, and nothing else did.
    removed_alone: bool = False
    #: How many requests may have added contenders, and the latest of them.
    _attempts: int = 0
    _request: Promise[Any] | None = None
    #: Whether others may know the entries by their ids, so that these are not used again.
    _are_known: bool = False
    #: Whether the ids may be others' by now.
    _is_over: bool = False
    #: Whether a signal handler has raised during a run, which may have removed them before.
    _was_interrupted: bool = False

    @property
    def found_nothing(self) -> bool:
        """Whether a contender had left before it was removed."""
        answer = self.answer
        return answer.done() and answer.exception() is None and not answer.result()

    # Before the withdrawal

    def attempt(self, send: Callable[[], Promise[T]]) -> Promise[T] | None:
        """Send a request that may add the contenders; None if the withdrawal has begun.

        Each passes here, so that the withdrawal waits for the latest, and knows of earlier ones.
        """
        with self._lock:
            if self.has_begun:
                return None
            self._attempts += 1
            self._request = None  # not the one before
        self._request = request = send()
        return request

    def attempt_answered(self, *, added_nothing: bool = False) -> None:
        """The latest request was answered. An earlier one may never be."""
        self._request = _ANSWERED  # in place of the answer, which need not be kept
        if added_nothing and self._attempts == 1:
            self._attempts = 0

    # The withdrawal

    def begin(self, ticket: Leaving) -> Promise[bool]:
        """Begin, unless it has begun; the answer. Safe at any moment, from any thread."""
        if not self.has_begun:
            ensure(self._timers, partial(self._begin, ticket), partial(self._resume, ticket))
        return self.answer

    def _begin(self, ticket: Leaving) -> None:
        with self._lock:
            if self.has_begun:
                return
            self.has_begun = True
        self._run(ticket)

    def _resume(self, ticket: Leaving) -> None:
        """Run again, in the timers' thread: a signal handler has raised during the run before.

        What that one has sent may be answered yet, and end it.
        """
        with self._lock:
            if self._is_over:
                return
            self.has_begun = self._was_interrupted = True
        self._run(ticket)

    def _run(self, ticket: Leaving) -> None:
        ticket.end.resolve(self._session.ended)  # the deadline may have passed without a timer yet
        outcome = run_in_background(self._steps(ticket))
        if outcome.done() and (error := outcome.exception()) is not None:
            raise error  # a signal handler's

    def _steps(self, ticket: Leaving) -> Steps[None]:
        try:
            if not self._attempts:
                self.answer.resolve(False)
                self._on_gone(self._entries)
                self._free()
            elif (yield from self._leave(ticket)):
                self._free()
        except GeneratorExit:
            raise  # it was dropped where it waited
        except ClientClosed as error:
            self.answer.fail(error)  # the session's end removes them
        except BaseException as error:
            if not (self._was_interrupted or isinstance(error, CoordlockError)):
                # A signal handler has raised it in this thread.
                soon(self._timers, partial(self._resume, ticket))
                raise
            self._recovery.refused(joined(entry.queue for entry in self._entries), error)
            self.answer.fail(error)
            # They stay in their queues. Forgotten, they would pass for another client's.
            yield ticket.until_told()
        finally:
            if self.answer.done():  # else it is resumed
                self._on_gone(self._entries)
            ticket.stop_watching()

    def _leave(self, ticket: Leaving) -> Steps[bool]:
        """Remove them; whether no request is left that could add or remove any of them."""
        request = self._request  # None where another thread is sending it
        if request is not None and not request.done():
            yield settled(request)
        was_there, is_certain = yield from self._remove()
        self.removed_alone = was_there and is_certain and not self._was_interrupted
        is_in_doubt = self._attempts > 1 or _may_take_effect_later(request)
        if not is_in_doubt:
            # First: a client that is being closed waits for the answer, then looks at what is left.
            self._on_gone(self._entries)
        self.answer.resolve(was_there or self._was_interrupted)
        ticket.stop_watching()  # only now: the next contender waits for the answer
        if is_in_doubt:
            for delay in _CONFIRMATIONS:
                yield sleep(self._timers, delay)
                yield from self._remove()
        return self.removed_alone and not is_in_doubt

    def _free(self) -> None:
        """Let the ids be used again. From then on this removes nothing."""
        with self._lock:
            if self._is_over or self._was_interrupted or self._are_known:
                return
            self._is_over = True
        self._on_free(self._entries)

    def keep_ids(self) -> bool:
        """Others get to know the entries by their ids. False if these may be others' by now."""
        with self._lock:
            self._are_known = True
        return not self._is_over

    def _remove(self) -> Steps[tuple[bool, bool]]:
        """Remove them; whether every one was there, and whether that is certain."""
        has_paused = False

        def pause(seconds: float) -> Promise[None]:
            nonlocal has_paused
            has_paused = True
            return self._recovery.pause(seconds)

        try:
            was_there = yield from removal(self._ask, self._timers, longest=5.0, pause=pause)
        except SessionLost as error:
            self._session.gone_with(error)
            return False, True
        if has_paused and not self._session.gone:
            self._recovery.service_answers()  # the service was silent before, and answers now
        return was_there, not has_paused

    def _ask(self) -> Promise[bool]:
        if self._session.gone:
            return resolved(False)
        return self._backend.withdraw(self._entries)


def _may_take_effect_later(request: Promise[Any] | None) -> bool:
    """Whether ``request`` has no answer: it may add contenders after the removal."""
    if request is None or not request.done():
        return True
    return isinstance(request.exception(), BackendUnavailable)
