"""Signals: an exception while there is nothing to supervise, a message while there is."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import ClassVar, Final

__all__ = [
    "ENDING",
    "Bell",
    "Inbox",
    "Interrupted",
    "ReaderGone",
    "blocked",
    "end_with_reader",
    "interruptible",
]

#: What asks a program to end.
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Interrupted(BaseException):
    """A signal asks to end. Raised where the main thread happens to be, as KeyboardInterrupt is."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number: Final = number


def interruptible() -> None:
    """Let the `ENDING` signals raise `Interrupted`, but for those that are ignored (nohup)."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


class ReaderGone(BaseException):
    """Nobody reads the output any more. Raised where the main thread happens to be."""


def end_with_reader() -> None:
    """Let the main thread raise `ReaderGone` once stdout is a pipe that nobody reads any more.

    A command that waits for changes would otherwise notice at the next change, perhaps never.
    """

    def raise_gone(number: int, frame: FrameType | None) -> None:
        raise ReaderGone

    def watch() -> None:
        poller = select.poll()
        poller.register(1, 0)  # errors and hang-ups are told in any case
        poller.poll()
        signal.pthread_kill(main, signal.SIGPIPE)

    main = threading.get_ident()
    signal.signal(signal.SIGPIPE, raise_gone)
    threading.Thread(target=watch, name="coordlock-cli-reader", daemon=True).start()


@contextlib.contextmanager
def blocked(numbers: Sequence[int]) -> Iterator[None]:
    """Hold the signals ``numbers`` back for this thread; they arrive at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Bell:
    """What another thread than the main one sleeps on, as on an `Inbox`: it gets no signals."""

    def __init__(self, longest: float) -> None:
        """No sleep is longer than ``longest`` seconds."""
        self.ending: Final[set[int]] = set()
        self._longest: Final = longest
        self._event: Final = threading.Event()

    def ring(self, *_: object) -> None:
        """Wake the thread. From any thread; never blocks."""
        self._event.set()

    def wait(self, timeout: float | None) -> tuple[list[int], list[int]]:
        """Sleep until it is rung, or ``timeout`` seconds have passed."""
        self._event.wait(self._longest if timeout is None else min(timeout, self._longest))
        self._event.clear()
        return [], []

    def close(self) -> None:
        """Nothing: signals are the main thread's."""


class Inbox:
    """What the main thread sleeps on: signals, and a bell that other threads may ring.

    Both are bytes in one pipe: the interpreter writes the number of each signal, `ring` writes 0.
    From its making on, the signals in ``numbers`` arrive here, but for those that are ignored. It
    serves until the process ends, or `close`. The main thread calls ``handler`` for each.
    """

    #: Its two ends, made once: another thread may ring after `close`.
    _pipe: ClassVar[tuple[int, int] | None] = None

    def __init__(
        self, numbers: Sequence[int], handler: Callable[[], object] = lambda: None
    ) -> None:
        #: The signals that came and ask to end.
        self.ending: Final[set[int]] = set()
        if Inbox._pipe is None:
            Inbox._pipe = os.pipe()
            for end in Inbox._pipe:
                os.set_blocking(end, False)
        self._read, self._write = Inbox._pipe
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        # Only signals that have a handler in Python reach the pipe.
        self._before = {
            number: signal.signal(number, lambda *_: handler())
            for number in numbers
            if signal.getsignal(number) is not signal.SIG_IGN
        }

    def ring(self, *_: object) -> None:
        """Wake the main thread. From any thread; never blocks."""
        with contextlib.suppress(BlockingIOError):  # full of bytes that will wake it
            os.write(self._write, b"\0")

    def wait(self, timeout: float | None, *files: int) -> tuple[list[int], list[int]]:
        """Sleep until something arrives; the signals, and those of ``files`` that can be read.

        ``timeout`` is in seconds; None waits forever.
        """
        ready = select.select([self._read, *files], [], [], timeout)[0]
        arrived = b""
        if self._read in ready:
            ready.remove(self._read)
            arrived = os.read(self._read, 4096)
            self.ending.update(set(ENDING).intersection(arrived))
        return [number for number in arrived if number], ready

    def close(self) -> None:
        """Let the signals do what they did before. `ending` has those that came meanwhile."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self.wait(0)
