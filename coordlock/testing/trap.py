"""Waiting for one message among all that pass a proxy, to do something to its connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from fnmatch import fnmatchcase

from coordlock.testing.connection import Connection
from coordlock.testing.frames import Frame, Message

__all__ = ["Action", "BytesTrap", "MessageTrap", "Trap"]

#: What a trap does, before the frame is forwarded: mostly a method of `Connection`. Runs on the
#: proxy's thread, so it must not block.
Action = Callable[[Connection, Message], None]


class Trap(ABC):
    """An action that runs once, at the ``nth`` match."""

    def __init__(self, action: Action, nth: int) -> None:
        self._action = action
        self._left = nth
        self._sprung: Future[Message] = Future()

    @property
    def sprung(self) -> bool:
        """Whether the message came and the action ran."""
        return self._sprung.done()

    def wait(self, timeout: float = 30.0) -> Message:
        """The message, once it came; `TimeoutError` after ``timeout`` seconds.

        Raises what the action raised.
        """
        return self._sprung.result(timeout)

    def inspect(self, connection: Connection, frame: Frame) -> None:
        """Look at a frame that passes. Called on the proxy's thread."""
        message = None if self.sprung else self.match(connection, frame)
        if message is None:
            return
        self._left -= 1
        if self._left > 0:
            return
        try:
            self._action(connection, message)
        except Exception as error:
            self._sprung.set_exception(error)
        else:
            self._sprung.set_result(message)

    @abstractmethod
    def match(self, connection: Connection, frame: Frame) -> Message | None:
        """The message in ``frame`` that is waited for."""


class MessageTrap(Trap):
    """Waits for a message of a kind (a shell pattern) that contains some bytes."""

    def __init__(self, kind: str, containing: bytes, action: Action, nth: int) -> None:
        super().__init__(action, nth)
        self._kind = kind
        self._containing = containing

    def match(self, connection: Connection, frame: Frame) -> Message | None:
        """The first message of the frame that fits."""
        for message in frame.messages:
            if fnmatchcase(message.kind, self._kind) and self._containing in message.payload:
                return message
        return None


class BytesTrap(Trap):
    """Waits for bytes in a stream, wherever its frames are cut."""

    def __init__(self, pattern: bytes, action: Action, nth: int) -> None:
        super().__init__(action, nth)
        self._pattern = pattern
        self._tails: dict[Connection, bytes] = {}

    def match(self, connection: Connection, frame: Frame) -> Message | None:
        """The frame's message, or one without a number where the protocol is not known."""
        window = self._tails.get(connection, b"") + frame.data
        if self._pattern in window:
            self._tails[connection] = b""
            return frame.messages[-1] if frame.messages else Message("bytes", None, frame.data)
        self._tails[connection] = window[max(0, len(window) - len(self._pattern) + 1) :]
        return None
