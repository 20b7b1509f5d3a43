"""coordlock's loggers, whose handlers never block a thread of coordlock's."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import MutableMapping
from contextvars import copy_context
from functools import cache, partial
from typing import Any, Final

from coordlock.runtime.worker import Worker

__all__ = ["Log", "described", "flush", "mute"]

#: Seconds that the interpreter's exit waits for messages that are not written yet.
_AT_EXIT_S: Final = 1.0

_worker = Worker("coordlock-log")


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose filters and handlers run in a thread of their own.

    Handlers are the application's code. A handler that writes to a network may block when the
    network fails, and must then delay neither heartbeats nor the news of a loss.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name))
        if _aside not in self.logger.filters:
            self.logger.filters.insert(0, _aside)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """The message and its fields, as they are given."""
        return msg, kwargs


def _aside(record: logging.LogRecord) -> bool:
    """Take ``record`` to the thread for the log; whether it is there."""
    if "is_aside" in record.__dict__:
        return True
    record.is_aside = True
    logger = logging.getLogger(record.name)
    if not logger.hasHandlers():  # then Python prints nothing but messages
        record.msg = f"coordlock: {record.msg}"
    _prepare_exit()
    # Filters may read the context, such as the id of a request.
    _worker.run(partial(copy_context().run, logger.handle, record))
    return False


def described(error: BaseException) -> str:
    """The kind of ``error`` and its text, for records and messages.

    It may be anybody's, and one whose text can't be made must not hide what has failed.
    """
    try:
        text = str(error)
    except Exception as broken:
        text = f"its text can't be made: {type(broken).__name__}"
    return f"{type(error).__name__}: {text}".rstrip(": ")


def mute() -> None:
    """Show messages only to handlers of coordlock's own logger: for the command line."""
    ours = logging.getLogger("coordlock")
    ours.propagate = False
    if not ours.handlers:
        ours.addHandler(logging.NullHandler())


def flush(timeout: float = _AT_EXIT_S) -> bool:
    """Wait up to ``timeout`` seconds until all messages are written; whether they are."""
    return _worker.finish(timeout)


@cache
def _prepare_exit() -> None:
    """Have this process `flush` at its exit, if it is a child that `multiprocessing` forked."""
    if (util := sys.modules.get("multiprocessing.util")) is not None:
        util.Finalize(None, flush, exitpriority=0)  # it does not look at `atexit`


def _renew() -> None:
    """In a forked child: start anew, because the parent has the thread and writes what is left."""
    global _worker
    _worker = Worker("coordlock-log")
    _prepare_exit.cache_clear()


atexit.register(flush)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
