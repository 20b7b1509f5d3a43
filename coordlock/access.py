"""How a client finds its engine: the one that `connect` has opened, or one for each process."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from coordlock.errors import ClientClosed
from coordlock.kernel.engine import Engine
from coordlock.log import Log
from coordlock.runtime.driver import Steps, run

__all__ = ["Access", "LazyAccess"]

log = Log("coordlock")


class Access:
    """To one engine, which belongs to the process that made it: `ForkedClient` in others."""

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


class LazyAccess(Access):
    """To an engine of each process's own, made when it is needed there for the first time."""

    def __init__(self, engine: Engine, make: Callable[[], Engine] | None) -> None:
        """``engine`` is this process's; ``make`` makes another, None where that's impossible."""
        super().__init__(engine)
        self._make = make
        #: By process id. Those of parents stay: nothing of theirs must end in a child.
        self._engines = {os.getpid(): engine}
        #: The process that has called `close`; a child that it forks after that connects anew.
        self._closed_in = 0

    @property
    def engine(self) -> Engine:
        """The engine to use in this process. Raises `ClientClosed` where there can't be one."""
        pid = os.getpid()
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
        return self._closed_in == os.getpid()

    def close(self, patience: float | None = None) -> Steps[None]:
        """Close the engine of this process, if it has one, and make no other."""
        self._closed_in = os.getpid()
        _unclosed.discard(self)
        if (engine := self._engines.get(self._closed_in)) is not None:
            yield from engine.close(patience)

    def warn_of_fork(self) -> None:
        """Say so, where this process's connection endangers a child that is being forked."""
        engine = self._engines.get(os.getpid())
        if engine is not None and engine.backend.fork_warning and engine.was_open:
            log.warning("%s: %s", self.settings, engine.backend.fork_warning)


#: Closed at the interpreter's exit, so that no waiter waits for the sessions' time-to-live. Until
#: then they live, even if the program has dropped them: no held lock is lost to garbage collection.
_unclosed: Final[set[Access]] = set()


@atexit.register
def _close_all() -> None:
    for access in list(_unclosed):
        with suppress(Exception):
            run(access.close(2.0))


def _warn_of_fork() -> None:
    for access in list(_unclosed):
        if isinstance(access, LazyAccess):
            access.warn_of_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_warn_of_fork)
