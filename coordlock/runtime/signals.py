"""Signals that end a program, and its locks with it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, NoReturn

from coordlock.runtime.caller import running_loop
from coordlock.runtime.deadline import ENDING, Cancellation
from coordlock.runtime.log import Log

__all__ = ["release_on_signals"]

log = Log("coordlock")

#: What a signal does, as `signal.getsignal` tells it.
_Handler = Callable[[int, FrameType | None], Any] | int | None

#: The system allows no handler for them.
_UNCATCHABLE: Final = [
    getattr(signal, name) for name in ("SIGKILL", "SIGSTOP") if hasattr(signal, name)
]


def release_on_signals(*signals: int) -> None:
    """Let SIGTERM and SIGHUP, or ``signals``, end this program as Ctrl-C does: releasing its locks.

    By default SIGHUP is left alone where the program has a handler of its own, which may reload.

    Without this, SIGTERM ends a Python program on the spot, and others wait for its locks until the
    time-to-live is over. From now on such a signal

    - ends each `acquire` that waits, in any thread or task, with `WaitCancelled`, and from then
      on each that would have to wait in a queue;
    - raises `SystemExit` with the status 128 + signal in the main thread, so that ``with`` blocks
      release. If an event loop runs there, this happens between two steps of its tasks, which are
      then cancelled. If the program had set a handler of its own before, that is called instead.

    The interpreter then waits for its other threads, which release what they hold when their
    blocks end, and closes the clients at its exit. A signal that is ignored, as SIGHUP under nohup,
    stays ignored. Don't use this under gunicorn, uvicorn or Celery, which handle SIGTERM
    themselves.

    Raises ValueError for a signal that can't be handled, and outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ValueError("release_on_signals: Python sets signal handlers in the main thread only")
    chosen = [(number, _former(number)) for number in signals] or _usual()
    for number, former in chosen:
        _handle(number, former)


def _usual() -> list[tuple[int, _Handler]]:
    """SIGTERM; and SIGHUP, unless the program has a handler for it, which often reloads."""
    found: list[tuple[int, _Handler]] = [(signal.SIGTERM, signal.getsignal(signal.SIGTERM))]
    if hasattr(signal, "SIGHUP") and not callable(former := signal.getsignal(signal.SIGHUP)):
        found.append((signal.SIGHUP, former))
    return found


def _former(number: int) -> _Handler:
    """What signal ``number`` does now. Raises ValueError if it can't be handled."""
    try:
        former = signal.getsignal(number)
    except (TypeError, ValueError):
        raise ValueError(f"release_on_signals: {number!r} is not a signal") from None
    if number in _UNCATCHABLE:
        raise ValueError(f"release_on_signals: signal {number} can't be handled")
    return former


def _handle(number: int, former: _Handler) -> None:
    if former is None:
        # It belongs to a server that embeds Python, such as uWSGI, which ends its workers itself.
        log.warning(
            "release_on_signals: signal %d keeps its handler, which is not Python's", number
        )
    elif former is not signal.SIG_IGN and not isinstance(former, _Ending):
        signal.signal(number, _Ending(former))
        ENDING.waits = ENDING.waits or Cancellation()


class _Ending:
    """The handler of a signal that ends the program."""

    def __init__(self, former: Callable[[int, FrameType | None], Any] | int) -> None:
        #: What the signal did before.
        self._former = former

    def __call__(self, number: int, frame: FrameType | None) -> None:
        ENDING.begin(f"the process received {_name(number)}")
        # Python's own handler for Ctrl-C would interrupt a task in the middle of a step.
        if callable(self._former) and self._former is not signal.default_int_handler:
            self._former(number, frame)
        elif (loop := running_loop()) is not None:
            # Runs between two steps of the loop's tasks, all of which the loop then cancels.
            loop.call_soon_threadsafe(_exit, number)
        else:
            _exit(number)


def _exit(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
