"""A ticket's withdrawal: repeated until the service has answered, and again for what comes late."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from coordlock.backend import Backend
from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError, SessionLost
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.model.contender import Entry
from coordlock.runtime.clock import Timer, Timers
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, resolved

__all__ = ["ANSWERED", "Registry", "Removable", "removal"]

log = Log("coordlock")

#: When a contender that may come late is looked for after its removal: seconds between looks.
_CONFIRMATIONS_S: Final = (1.0, 5.0, 15.0, 60.0)
#: Seconds before a removal that has failed is repeated: up to the first after one failure, up to
#: twice as long after each further one, up to the last.
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
#: In place of the answer to a request that added contenders, which need not be kept.
ANSWERED: Final[Promise[Any]] = resolved(None)


def removal(call: Callable[[], Promise[bool]], timers: Timers) -> Steps[bool]:
    """The answer of ``call``, which removes something: whether it was there.

    Repeated as `retried` does. True also when it finds nothing after an attempt without an answer:
    that attempt has removed it.
    """
    doubts: list[BackendUnavailable] = []
    removed = yield from retried(call, timers, on_failure=doubts.append)
    return removed or bool(doubts)


class Registry(Protocol):
    """Where a client notes its tickets."""

    def forget(self, ticket: Any) -> None:
        """``ticket`` can have no contender left. Perhaps more than once."""

    def lost(self, ticket: Any, error: CoordlockError) -> None:
        """``ticket`` is lost with ``error``."""

    def refused(self, ticket: Any, error: BaseException) -> None:
        """The service refuses to remove the contenders of ``ticket``."""

    def accepted(self) -> None:
        """The service has removed what it refused to remove before."""


@dataclass(slots=True, eq=False, repr=False)
class Removable:
    """What one ticket has put into queues, and how it leaves them: for certain, once that began.

    It knows the requests that may have added contenders. Neither an outage nor a refusal ends the
    withdrawal: the removal is repeated until the service has answered that none is left, or has
    ended the session, which removes them, too.

    A signal handler may raise at each line here. So `_go_on` can be called at any time: it does
    what is left to be done, and the sweep calls it until all is.
    """

    session: Session
    entries: tuple[Entry, ...]  #: one or more, each of another queue
    _backend: Backend
    _timers: Timers
    _tickets: Registry
    #: Kept with the error by which a contender was lost, or with None when they were withdrawn
    #: before that.
    end: Promise[CoordlockError | None] = field(default_factory=Promise)
    #: Whether `withdraw` was called.
    is_leaving: bool = False
    #: Whether the withdrawal has removed every contender, once that is known.
    withdrawn: Promise[bool] = field(default_factory=Promise)
    #: Kept when that is known, or the service has refused a removal.
    replied: Promise[None] = field(default_factory=Promise)
    #: Whether it is certain that the withdrawal removed every contender, and nothing else did.
    removed_alone: bool = False
    #: Whether a contender had left before it was removed.
    found_nothing: bool = False
    #: Whether the service has refused the latest removal.
    is_refused: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)
    #: How many requests may have added contenders, and the latest of them: None while a thread is
    #: sending it, and ANSWERED in place of one that was answered.
    _attempts: int = 0
    _request: Promise[Any] | None = None
    #: How many requests were sent to remove them, the one whose answer is to be looked at, and how
    #: many have failed since one was answered.
    _removals: int = 0
    _removal: Promise[bool] | None = None
    _failures: int = 0
    #: When the next one is due, and how many have looked for what came late.
    _due: float = -math.inf
    _confirmations: int = 0
    _timer: Timer | None = None
    #: Whether it has ended.
    _is_over: bool = False

    def stop_watching(self) -> None:
        """Watch no contender any longer."""

    # The withdrawal

    def withdraw(self) -> Promise[bool]:
        """Remove the contenders, now or as soon as they are known; whether all were there.

        Safe at any moment, from any thread, and more than once: also while they are on their way
        or after its reply was lost. It never blocks and is repeated until the service has answered
        or the session is gone there; after an outage at once.
        """
        with self._lock:
            was_leaving, self.is_leaving = self.is_leaving, True
        if not was_leaving:
            request = self._request  # None where another thread is sending it
            if not (request is ANSWERED or request is None or request.done()):
                request.add_done_callback(lambda _: self._go_on())
            self._go_on()
        return self.withdrawn

    def _go_on(self) -> None:
        """Send the next request that is due, unless one is under way. Safe as `withdraw` is."""
        ended = self.session.ended  # the deadline may have passed without a timer yet
        if self.end.resolve(ended) and ended is not None:
            self._tickets.lost(self, ended)
        if self._is_over:
            self._tickets.forget(self)
        elif self._removal is not None:
            if self._removal.done():
                self._take(self._removal)
        elif not self._attempts:
            self._answer(was_there=False)
        elif self._timers.clock.now() >= self._due:
            request = self._request
            if request is ANSWERED or request is None or request.done():  # none is under way
                self._remove()

    def _remove(self) -> None:
        with self._lock:
            self._removals += 1
        gone = self.session.gone
        self._removal = removal = resolved(False) if gone else self._backend.withdraw(self.entries)
        if removal.done():
            self._take(removal)  # not as a callback, whose errors are logged and not raised
        else:
            removal.add_done_callback(self._take)

    def _take(self, removal: Promise[bool]) -> None:
        """Look at the answer to ``removal``. May be called again, also for an earlier one."""
        if removal is not self._removal:
            return
        try:
            was_there = removal.result()
        except SessionLost as error:
            self.session.gone_with(error)
            self._removed(was_there=False)
        except ClientClosed as error:
            self._give_up(error)  # the session's end removes them
        except CoordlockError as error:
            self._failed(error)
        except BaseException:
            self._removal = None  # the sweep sends another one
            raise  # of a signal handler, which struck in the backend
        else:
            if self.is_refused:
                self.is_refused = False
                self._tickets.accepted()
            self._removed(was_there=was_there)

    def _removed(self, *, was_there: bool) -> None:
        """The service has answered, and none is left but for what may come late."""
        self._failures = 0
        alone = was_there and self._removals == 1
        # An earlier removal without an answer has removed what this one has not found.
        was_there = was_there or self._removals > 1
        may_come_late = self._attempts > 1 or (
            self._request is not ANSWERED and _may_take_effect_later(self._request)
        )
        if may_come_late and not self.session.gone and self._confirmations < len(_CONFIRMATIONS_S):
            self._answer(was_there=was_there, alone=alone, is_last=False)
            pause = _CONFIRMATIONS_S[self._confirmations]
            self._due = self._timers.clock.now() + pause
            self._confirmations += 1
            self._repeat_after(pause)
        else:
            self._answer(was_there=was_there, alone=alone)

    def _answer(self, *, was_there: bool, alone: bool = False, is_last: bool = True) -> None:
        """No contender is left; unless this ``is_last``, one may come late."""
        if is_last:
            self._is_over = True
            # First: a client that is being closed waits for the answer, then looks who is left.
            self._tickets.forget(self)
        if not self.withdrawn.done():
            self.found_nothing, self.removed_alone = not was_there, alone
        self.withdrawn.resolve(was_there)
        self.replied.resolve(None)
        self.stop_watching()  # only now: the next contender waits for the answer

    # Where a removal has failed

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, BackendUnavailable):
            log.debug("a removal is repeated after: %s", error)
        elif self._added_nothing():
            self._give_up(error)
            return
        else:
            self.is_refused = True
            self.replied.resolve(None)
            self._tickets.refused(self, error)
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        self._repeat_after(self._timers.jitter(longest))

    def _added_nothing(self) -> bool:
        """Whether the service has refused to add them, so that there is nothing to remove."""
        request = self._request
        if self._attempts > 1 or request is None or not request.done():
            return False
        return request.exception() is not None and not _may_take_effect_later(request)

    def _repeat_after(self, seconds: float) -> None:
        """Go on ``seconds`` from now; sooner where the sweep does, and where it is due."""
        self._removal = None
        when = self._timers.clock.now() + seconds
        try:
            timer, self._timer = self._timer, self._timers.call_at(when, self._due_now)
            if timer is not None:
                timer.cancel()  # the sweep was sooner
        except ClientClosed as error:
            self._give_up(error)

    def _due_now(self) -> None:
        self._due = -math.inf  # also where the timers are closed, and this comes early
        self._go_on()

    def _give_up(self, error: BaseException) -> None:
        self.withdrawn.fail(error)
        self._answer(was_there=False)


def _may_take_effect_later(request: Promise[Any] | None) -> bool:
    """Whether ``request`` has no answer: it may add contenders after the removal."""
    if request is None or not request.done():
        return True
    error = request.exception()
    # What is no error of coordlock is a signal handler's, which may have raised after the sending.
    return isinstance(error, BackendUnavailable) or not isinstance(error, CoordlockError | None)
