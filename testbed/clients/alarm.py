"""Whatever nobody expected ends the process, so that no run passes over it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
import warnings
from typing import Any, NoReturn, TextIO

__all__ = ["alarm", "install", "watch_loop"]


def alarm(what: str, error: BaseException | None = None) -> NoReturn:
    """Say what happened, with its traceback, and end the process with status 1. From any thread."""
    lines = [f"unexpected: {what}\n", *traceback.format_exception(error)] if error else [what, "\n"]
    os.write(sys.stderr.fileno(), "".join(lines).encode())
    os._exit(1)


def install() -> None:
    """Raise the alarm for warnings, logged errors and exceptions that nobody catches."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger().addHandler(_Errors(logging.ERROR))
    warnings.simplefilter("default")
    warnings.showwarning = _warned
    threading.excepthook = _ended
    sys.unraisablehook = lambda args: alarm(f"{args.err_msg}: {args.object!r}", args.exc_value)


def watch_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise the alarm for what ``loop`` would log: tasks whose exception nobody asked for."""

    def tell(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        alarm(context["message"], context.get("exception"))

    loop.set_exception_handler(tell)


def _is_out_of_turn(error: BaseException | None) -> bool:
    """Whether a server has left out an answer, which ends the thread of kazoo's client.

    ZooKeeper 3.8.0 does when it has diverged: https://github.com/python-zk/kazoo/issues/254.
    """
    return "xids do not match" in str(error)


def _ended(args: threading.ExceptHookArgs) -> None:
    if not _is_out_of_turn(args.exc_value):
        alarm(f"in {args.thread}", args.exc_value)


class _Errors(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if _is_out_of_turn(error):
            return
        alarm(f"{record.name} logged an error: {record.getMessage()}", error)


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    alarm(f"{filename}:{lineno}: {category.__name__}: {message}")
