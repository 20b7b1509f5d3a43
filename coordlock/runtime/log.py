"""coordlock's log, which never blocks."""

from __future__ import annotations

import atexit
import os
import sys
from contextvars import copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from coordlock.runtime.worker import Worker

if TYPE_CHECKING:
    import logging

__all__ = ["Log", "described", "flush", "mute"]

#: Seconds that the interpreter's exit waits for messages that are not written yet.
_AT_EXIT: Final = 1.0
#: Levels, as `logging` has them.
_DEBUG, _INFO, _WARNING, _ERROR = 10, 20, 30, 40

_worker = Worker("coordlock-log")
_is_muted = False


class Log:
    """A logger whose handlers run in a thread of their own.

    Handlers are the application's code. A handler that writes to a network may block when the
    network fails, and must then delay neither heartbeats nor the news of a loss.

    Its methods use only the keyword ``exc_info=True``, and ignore others.
    """

    def __init__(self, name: str) -> None:
        self.name: Final = name

    @property
    def logger(self) -> logging.Logger:
        """The logger of that name."""
        import logging  # seldom needed, and slow to import

        if _is_muted:
            ours = logging.getLogger("coordlock")
            ours.propagate = False
            if not ours.handlers:
                ours.addHandler(logging.NullHandler())
        return logging.getLogger(self.name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as `logging` has it
        """Whether messages of this level are shown."""
        # A program that wants to see less than warnings has imported `logging` to say so.
        return (level >= _WARNING or "logging" in sys.modules) and self.logger.isEnabledFor(level)

    def debug(self, msg: object, *args: object, **kwargs: Any) -> None:
        """See `logging.Logger.debug`."""
        self._log(_DEBUG, msg, args, kwargs)

    def info(self, msg: object, *args: object, **kwargs: Any) -> None:
        """See `logging.Logger.info`."""
        self._log(_INFO, msg, args, kwargs)

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        """See `logging.Logger.warning`."""
        self._log(_WARNING, msg, args, kwargs)

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        """See `logging.Logger.error`."""
        self._log(_ERROR, msg, args, kwargs)

    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        """See `logging.Logger.exception`."""
        self._log(_ERROR, msg, args, {"exc_info": True, **kwargs})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """See `logging.Logger.log`."""
        self._log(level, msg, args, kwargs)

    def _log(
        self, level: int, msg: object, args: tuple[object, ...], kwargs: dict[str, Any]
    ) -> None:
        if not self.isEnabledFor(level):
            return
        logger = self.logger
        exception = sys.exc_info() if kwargs.get("exc_info") else None
        file, line, function, _ = logger.findCaller(stacklevel=3)  # the caller of `warning`
        record = logger.makeRecord(
            logger.name, level, file, line, f"{_begin(logger)}{msg}", args, exception, func=function
        )
        _prepare_exit()
        # Filters may read the context, such as the id of a request.
        _worker.run(partial(copy_context().run, logger.handle, record))


def _begin(logger: logging.Logger) -> str:
    """What a message begins with: without a configured log, Python prints nothing but messages."""
    return "" if logger.hasHandlers() else "coordlock: "


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
    global _is_muted
    _is_muted = True


def flush(patience: float = _AT_EXIT) -> bool:
    """Wait up to ``patience`` seconds until all messages are written; whether they are."""
    return _worker.finish(patience)


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
