"""What a ticket's contender publishes: one request after the other, each to its end.

A request goes on until it is answered, whoever waits for it: until then nobody knows what stands in
the queue. So what is to be published next is decided when the one before has been answered.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from coordlock.errors import ClientClosed, CoordlockError
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender
from coordlock.runtime.clock import soon
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, failed, resolved, settled

__all__ = ["Publisher"]


class Publisher:
    """Publishes for the only contender of ``ticket``. Raises `Unsupported` where it can't."""

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        self._engine = engine
        self._ticket = ticket
        engine.backend.require("publishing")
        #: The last request to publish something: kept when all before have been answered.
        self.last: Promise[None] = resolved(None)
        self._turns = _Turns()

    def publish(self, make: Callable[[bytes], bytes]) -> Promise[None]:
        """Publish what ``make`` gives for the value that was published before.

        The promise is kept when the service has answered, or the contender is leaving. It fails
        when the contender is lost, the client is closed, or the service refuses the value.
        """
        request = _Request(self.last, make)
        try:
            self.last = request.answer
            self._begin(request)
        except BaseException:
            self._begin_again(request)  # Ctrl-C: what was sent must be known before the next
            raise
        return request.answer

    def _begin(self, request: _Request, *, again: bool = False) -> None:
        if not request.answer.done():
            outcome = run_in_background(self._publishing(request), self._turns.take)
            outcome.add_done_callback(partial(self._end, request, again))

    def _begin_again(self, request: _Request) -> None:
        soon(self._engine.timers, partial(self._begin, request, again=True))

    def _end(self, request: _Request, again: bool, outcome: Promise[None]) -> None:
        error = outcome.exception()
        if error is None or isinstance(error, CoordlockError) or again:
            request.answer.follow(outcome)
        else:
            self._begin_again(request)  # a signal handler's

    def _publishing(self, request: _Request) -> Steps[None]:
        yield settled(request.before)
        ticket = self._ticket
        if request.change is None:
            [me] = ticket.contenders
            request.change = me, request.make(me.value or b"")
        # Decided once: a second attempt that asked for something else would be refused for ever.
        me, value = request.change
        if value == me.value or ticket.is_leaving:
            return

        def publish() -> Promise[None]:
            if self._engine.closed:
                return failed(ClientClosed())
            if ticket.is_leaving:  # it takes what it has published along
                return resolved(None)
            ticket.check()
            return self._engine.backend.publish(me, value, me.version)

        yield from retried(publish, self._engine.timers)
        is_convertible = isinstance(me.claim, Convertible)
        claim = Convertible.decode(value) if is_convertible else me.claim
        changed = replace(me, claim=claim, value=value, version=me.version + 1)
        if not request.answer.done():  # else a second attempt has ended before, and others since
            ticket.contenders = (changed,)


class _Request:
    """One to publish something, from before it is sent until it is answered."""

    __slots__ = ("answer", "before", "change", "make")

    def __init__(self, before: Promise[None], make: Callable[[bytes], bytes]) -> None:
        self.before = before
        self.make = make
        self.answer: Promise[None] = Promise()
        #: The contender and its new value, once all before have been answered.
        self.change: tuple[Contender, bytes] | None = None


class _Turns(threading.local):
    """The calls of each thread, one after the other and none inside of another.

    After an outage the end of one request begins the next, for as many as there are: more than the
    stack has room for.
    """

    _calls: deque[Callable[[], None]] | None = None

    def take(self, call: Callable[[], None]) -> None:
        """Make ``call``: here, or where the call that is under way has returned."""
        if self._calls is not None:
            self._calls.append(call)
            return
        self._calls = calls = deque((call,))
        try:
            while calls:
                calls.popleft()()
        finally:
            self._calls = None
            while calls:  # Ctrl-C came between
                self.take(calls.popleft())
