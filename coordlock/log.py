"""coordlock's log, which blocks nobody."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from contextvars import copy_context
from functools import cache, partial
from typing import Any, Final

from coordlock.runtime.worker import Worker

__all__ = ["PREFIX", "Log", "flush"]

#: Seconds that the interpreter's exit waits for what is still to be written.
_AT_EXIT: Final = 1.0

#: Begins each message: without a configured log, Python prints nothing else.
PREFIX: Final = "coordlock: "

_worker = Worker("coordlock-log")


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose handlers are called by a thread of their own.

    Handlers are the application's code. One that writes to a network may block just when that
    fails, and must not keep heartbeats from being sent and losses from being told.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """See `logging.Logger.log`. Of the keywords only ``exc_info=True`` counts."""
        if not self.isEnabledFor(level):
            return
        logger = self.logger
        exception = sys.exc_info() if kwargs.get("exc_info") else None
        file, line, function, _ = logger.findCaller(stacklevel=2)  # who called `warning`
        record = logger.makeRecord(
            logger.name, level, file, line, f"{PREFIX}{msg}", args, exception, func=function
        )
        _prepare_exit()
        # Filters may look at the context: for the id of a request, say.
        _worker.run(partial(copy_context().run, logger.handle, record))


def flush(patience: float = _AT_EXIT) -> bool:
    """Wait up to ``patience`` seconds for what was logged to be written; whether it is."""
    return _worker.finish(patience)


@cache
def _prepare_exit() -> None:
    """Have this process `flush` at its exit, if it is a child that `multiprocessing` forked."""
    if (util := sys.modules.get("multiprocessing.util")) is not None:
        util.Finalize(None, flush, exitpriority=0)  # it does not look at `atexit`


def _renew() -> None:
    """In a forked child, which has no thread for it, and whose parent writes what was logged."""
    global _worker
    _worker = Worker("coordlock-log")
    _prepare_exit.cache_clear()


atexit.register(flush)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
