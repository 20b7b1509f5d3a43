"""How a client finds its engine, and how that ends: closed, dropped, or at the program's exit."""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final
from weakref import WeakSet

from coordlock.errors import ClientClosed
from coordlock.kernel.engine import Engine
from coordlock.runtime.clock import soon
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps, bounded, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS, THREAD
from coordlock.runtime.promise import Promise, settled
from coordlock.runtime.recorder import flush_all

__all__ = ["Access", "close"]

log = Log("coordlock")


class Access:
    """A client's way to its engine: `ClientClosed` in the children of this process.

    With ``make``, to another engine in each process, made when it is first needed there.
    """

    def __init__(self, engine: Engine, make: Callable[[], Engine] | None = None) -> None:
        self.settings: Final = engine.settings
        self._engine: Final = engine
        self._make: Final = make
        #: By process id. Those of parents stay: nothing of theirs must end in a child.
        self._engines: Final = {PROCESS.id: engine}
        #: The process that has called `close`; a child that it forks after that connects anew.
        self._closed_in = 0
        _unclosed.add(self)

    @property
    def engine(self) -> Engine:
        """The engine to use in this process."""
        if self._make is None:
            return self._engine
        engine = self._engines.get(PROCESS.id)
        if engine is None:
            if self.closed:
                raise ClientClosed
            # Without a lock, which another thread might hold while this one forks. An engine too
            # many has begun nothing.
            engine = self._engines.setdefault(PROCESS.id, self._make())
            _unclosed.add(self)
        return engine

    @property
    def begun(self) -> Engine | None:
        """The engine that this process has begun to use, if it has."""
        return self._engine if self._make is None else self._engines.get(PROCESS.id)

    @property
    def closed(self) -> bool:
        """Whether `close` was called in this process."""
        return self._closed_in == PROCESS.id or (self._make is None and self._engine.closed)

    def close(self, patience: float | None = None) -> Steps[None]:
        """Close the engine of this process, if it has one, and make no other."""
        self._closed_in = PROCESS.id
        _unclosed.discard(self)
        if (engine := self.begun) is not None:
            yield from close(engine, patience)

    def warn_of_fork(self) -> None:
        """Say so, where this process's connection endangers a child that is being forked."""
        engine = self._engines.get(PROCESS.id)
        if engine is None or self._make is None or engine.sessions.latest is None:
            return
        if text := engine.backend.fork_warning:
            log.warning("%s: %s", self.settings, text)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # The client, its locks and its recipes are gone. This may be any thread, at any step.
        if is_finalizing():  # and this module's names may be gone
            return
        engine = self.begun
        if engine is None or not engine.is_at_work:
            return
        _abandoned.add(engine)  # now: the interpreter may exit before the timers' thread runs
        soon(engine.timers, partial(_close_when_unused, engine))
        warnings.warn(
            f"a client of {self.settings} was dropped and not closed: use it in a with statement, "
            "or call close()",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )


#: Closed at the interpreter's exit, so that no waiter waits for the sessions' time-to-live.
_unclosed: Final[WeakSet[Access]] = WeakSet()
#: What the program has dropped: closed at the exit, too, or once it holds nothing any more. No held
#: lock is lost to garbage collection.
_abandoned: Final[set[Engine]] = set()
#: For so long a close waits for the callbacks that are under way.
_CALLBACKS_S: Final = 1.0
#: For so long the exit waits for services, for all clients together.
_EXIT_PATIENCE_S: Final = 2.0


def close(engine: Engine, patience: float | None = None) -> Steps[None]:
    """Withdraw what is left, end the session and the connection. Idempotent.

    After ``patience`` seconds, by default the ``request_timeout``, it stops waiting for the
    service. A shared session goes on without this client, and so would its contenders. So what is
    not withdrawn by then leaves in the background, and the last one to leave closes the rest.

    Needs no timers, because the interpreter starts no threads at its exit.
    """
    if engine.inherited:
        return
    seconds = engine.settings.request_timeout if patience is None else patience
    if THREAD.must_not_wait:
        seconds = 0.0
    try:
        with suppress(DeadlineReached):
            yield from bounded(_end(engine), engine.deadline(seconds))
    finally:
        # A second caller does it, too: a signal may have kept the first one from it.
        _finish(engine)


def _end(engine: Engine) -> Steps[None]:
    """Withdraw and disconnect, unless another call does."""
    mine: Promise[None] = Promise()
    with engine.lock:
        closed = engine.closing = engine.closing or mine
    if closed is not mine:
        yield closed
        return
    for withdrawal in _withdraw_all(engine):
        yield settled(withdrawal)
    if not _must_stay(engine):
        yield settled(_disconnect(engine))


def _finish(engine: Engine) -> None:
    """No caller waits any more. Idempotent."""
    try:
        # Before the tickets are looked at: the last one may be forgotten meanwhile.
        engine.tickets.when_empty = partial(_leave, engine)
        _withdraw_all(engine)  # those that have come meanwhile, or all, after a signal
        if not _must_stay(engine):
            _leave(engine)
    finally:
        if engine.closing is not None:
            engine.closing.resolve(None)  # before the callbacks end: one may wait for this
        engine.callbacks.finish(0.0 if THREAD.must_not_wait else _CALLBACKS_S)


def _withdraw_all(engine: Engine) -> list[Promise[bool]]:
    """End all tickets here; of a shared session, withdraw them one by one."""
    engine.sessions.refuse()
    tickets = list(engine.tickets)
    for ticket in tickets:
        ticket.lose(ClientClosed())
    staying = [ticket for ticket in tickets if ticket.session.shared]
    answers = [ticket.withdraw() for ticket in staying]
    for ticket in staying:
        ticket.sweep()  # where a signal handler has struck an earlier call
    return answers


def _must_stay(engine: Engine) -> bool:
    """Whether this client still has, or may have, contenders in a shared session."""
    return any(ticket.session.shared for ticket in engine.tickets)


def _leave(engine: Engine) -> None:
    _disconnect(engine)
    engine.timers.close()


def _disconnect(engine: Engine) -> Promise[None]:
    engine.sessions.end()
    return engine.backend.close()


def _close_when_unused(engine: Engine) -> None:
    """Close ``engine``, which was dropped, once nothing is held or waited for."""
    close_it = partial(_close_abandoned, engine)
    engine.tickets.when_empty = partial(soon, engine.timers, close_it)
    if not engine.tickets:
        close_it()


def _close_abandoned(engine: Engine) -> None:
    if not engine.closed:
        run_in_background(close(engine)).add_done_callback(lambda _: _abandoned.discard(engine))


@atexit.register
def _close_all() -> None:
    PROCESS.is_exiting = True
    closings = [access.close(_EXIT_PATIENCE_S) for access in [*_unclosed]]
    closings += [close(engine, _EXIT_PATIENCE_S) for engine in [*_abandoned]]
    _close_together(closings)
    flush_all(_EXIT_PATIENCE_S)


def _close_together(closings: list[Steps[None]]) -> None:
    """Run all ``closings`` at the same time, in this thread, for up to `_EXIT_PATIENCE_S`."""
    ready: SimpleQueue[Callable[[], None]] = SimpleQueue()
    running = [run_in_background(steps, go_on=ready.put) for steps in closings]
    until = time.monotonic() + _EXIT_PATIENCE_S
    try:
        while not all(closing.done() for closing in running):
            ready.get(timeout=max(0.0, until - time.monotonic()))()
    except Empty:
        pass  # the service is silent
    finally:
        for steps in closings:
            with suppress(Exception):
                steps.close()  # which closes what needs no answer


def _warn_of_fork() -> None:
    for access in list(_unclosed):
        access.warn_of_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_warn_of_fork)
