"""How a client finds its engine: the one that `connect` has opened, or one for each process."""

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
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS

__all__ = ["Access", "LazyAccess"]

log = Log("coordlock")


class Access:
    """A client's way to one engine, of the process that made it: `ForkedClient` in others."""

    def __init__(self, engine: Engine) -> None:
        self.settings: Final = engine.settings
        self._engine = engine
        _unclosed.add(self)

    @property
    def engine(self) -> Engine:
        """The engine to use in this process."""
        return self._engine

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._engine.closed

    def close(self, patience: float | None = None) -> Steps[None]:
        """Close the engine of this process, as `Engine.close` does."""
        _unclosed.discard(self)
        yield from self._engine.close(patience)

    @property
    def begun(self) -> Engine | None:
        """The engine that this process has begun to use, if it has."""
        return self._engine

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


class LazyAccess(Access):
    """A client's way to an engine in each process, made when it is first needed there."""

    def __init__(self, engine: Engine, make: Callable[[], Engine] | None) -> None:
        """``engine`` is this process's; ``make`` makes another, None where that's impossible."""
        super().__init__(engine)
        self._make = make
        #: By process id. Those of parents stay: nothing of theirs must end in a child.
        self._engines = {PROCESS.id: engine}
        #: The process that has called `close`; a child that it forks after that connects anew.
        self._closed_in = 0

    @property
    def engine(self) -> Engine:
        """The engine to use in this process. Raises `ClientClosed` where there can't be one."""
        pid = PROCESS.id
        engine = self._engines.get(pid)
        if engine is None:
            if self._make is None:
                return self._engine
            if self.closed:
                raise ClientClosed
            # Without a lock, which another thread might hold while this one forks. An engine too
            # many has begun nothing.
            engine = self._engines.setdefault(pid, self._make())
            _unclosed.add(self)
        return engine

    @property
    def closed(self) -> bool:
        """Whether `close` was called in this process."""
        return self._closed_in == PROCESS.id

    def close(self, patience: float | None = None) -> Steps[None]:
        """Close the engine of this process, if it has one, and make no other."""
        self._closed_in = PROCESS.id
        _unclosed.discard(self)
        if (engine := self._engines.get(self._closed_in)) is not None:
            yield from engine.close(patience)

    @property
    def begun(self) -> Engine | None:
        """The engine that this process has begun to use, if it has."""
        return self._engines.get(PROCESS.id)

    def warn_of_fork(self) -> None:
        """Say so, where this process's connection endangers a child that is being forked."""
        engine = self._engines.get(PROCESS.id)
        if engine is not None and engine.backend.fork_warning and engine.was_open:
            log.warning("%s: %s", self.settings, engine.backend.fork_warning)


#: Closed at the interpreter's exit, so that no waiter waits for the sessions' time-to-live.
_unclosed: Final[WeakSet[Access]] = WeakSet()
#: What the program has dropped: closed at the exit, too, or once it holds nothing any more. No held
#: lock is lost to garbage collection.
_abandoned: Final[set[Engine]] = set()
#: For so long the exit waits for services, for all clients together.
_EXIT_PATIENCE_S: Final = 2.0


def _close_when_unused(engine: Engine) -> None:
    engine.call_when_unused(partial(_close_abandoned, engine))


def _close_abandoned(engine: Engine) -> None:
    closing = run_in_background(engine.close())
    closing.add_done_callback(lambda _: _abandoned.discard(engine))


@atexit.register
def _close_all() -> None:
    PROCESS.is_exiting = True
    closings = [access.close(_EXIT_PATIENCE_S) for access in [*_unclosed]]
    closings += [engine.close(_EXIT_PATIENCE_S) for engine in [*_abandoned]]
    _close_together(closings)


def _close_together(closings: list[Steps[None]]) -> None:
    """Run all ``closings`` at the same time, in this thread, for up to `_EXIT_PATIENCE_S`."""
    ready: SimpleQueue[Callable[[], None]] = SimpleQueue()
    running = [run_in_background(steps, go_on=ready.put) for steps in closings]
    until = time.monotonic() + _EXIT_PATIENCE_S
    try:
        while not all(one.done() for one in running):
            ready.get(timeout=max(0.0, until - time.monotonic()))()
    except Empty:
        pass  # the service is silent
    finally:
        for steps in closings:
            with suppress(Exception):
                steps.close()  # which closes what needs no answer


def _warn_of_fork() -> None:
    for access in list(_unclosed):
        if isinstance(access, LazyAccess):
            access.warn_of_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_warn_of_fork)
