"""Signals that end a program, and its locks with it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from coordlock.log import Log
from coordlock.runtime.cancellation import ENDING, Cancellation

if TYPE_CHECKING:
    import asyncio

__all__ = ["release_on_signals"]

log = Log("coordlock")


def release_on_signals(*signals: int) -> None:
    """Let SIGTERM and SIGHUP, or ``signals``, end this program as Ctrl-C does: releasing its locks.

    Without this, SIGTERM ends a Python program on the spot, and others wait for its locks until the
    time-to-live is over. From now on such a signal

    - ends each `acquire` that waits, in whatever thread or task, with `AcquireCancelled`, and each
      that would have to wait in a queue from then on;
    - raises `SystemExit` with the status 128 + signal in the main thread, so that ``with`` blocks
      release; where an event loop runs there, between two steps of its tasks, which are cancelled
      then. If the program had set a handler of its own before, that is called in place of it.

    The interpreter then waits for its other threads, which release what they hold when their
    blocks end, and closes the clients at its exit. A signal that is ignored, as SIGHUP under nohup,
    stays so. Servers such as gunicorn and uvicorn, and Celery, handle SIGTERM themselves, and need
    none of this.

    Raises ValueError for what is no signal that can be handled, and outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ValueError("release_on_signals: Python sets signal handlers in the main thread only")
    for number in signals or _usual():
        _handle(number)


def _usual() -> list[int]:
    return [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _handle(number: int) -> None:
    try:
        former = signal.getsignal(number)
    except (TypeError, ValueError):
        raise ValueError(f"release_on_signals: {number!r} is no signal") from None
    if former is None:
        # Of a server that Python is embedded in, such as uWSGI, which ends its workers itself.
        log.warning("signal %d has a handler that is not Python's, and keeps it", number)
    elif former is not signal.SIG_IGN and not isinstance(former, _Ending):
        try:
            signal.signal(number, _Ending(former))
        except OSError:
            raise ValueError(f"release_on_signals: signal {number} can't be handled") from None
        ENDING.waits = ENDING.waits or Cancellation()


class _Ending:
    """The handler of a signal that ends the program."""

    def __init__(self, former: Callable[[int, FrameType | None], Any] | int) -> None:
        #: What the signal did before.
        self._former = former

    def __call__(self, number: int, frame: FrameType | None) -> None:
        ENDING.begin(f"the process received {_name(number)}")
        if callable(self._former):
            self._former(number, frame)
        elif (loop := _running_loop()) is not None:
            # Between two steps of its tasks, all of which it then cancels.
            loop.call_soon_threadsafe(_exit, number)
        else:
            _exit(number)


def _exit(number: int) -> NoReturn:
    raise SystemExit(128 + number)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread, in a program that has imported asyncio."""
    if (module := sys.modules.get("asyncio")) is None:
        return None
    try:
        loop: asyncio.AbstractEventLoop = module.get_running_loop()
    except RuntimeError:
        return None
    return loop


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
