"""One connection through a fault proxy: two pipes, and what can be done to them."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Final

from coordlock.testing.frames import Frame, Framer, Message

__all__ = ["Connection", "Faults", "Pipe"]

_Cut = Callable[[bytes], Iterator[Frame]]
_CHUNK: Final = 64 * 1024
_REDIAL: Final = 0.02
# Lingering for no time makes `close` send a reset (RST) instead of an orderly end (FIN).
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Faults:
    """What the proxy does to all bytes of one direction."""

    def __init__(self) -> None:
        self.heal()

    def heal(self) -> None:
        """Nothing any more."""
        self.delay = 0.0
        self.is_held = False
        #: How many bytes still pass before the connection that carries the last one is closed.
        self.allowance: int | None = None

    def latency(self) -> float:
        """How much later what comes now is delivered; raises ConnectionResetError for a break."""
        return self.delay


class _End(Enum):
    """How a stream ended."""

    ORDERLY = auto()
    RESET = auto()
    CUT = auto()


class Pipe:
    """One direction of a connection: what was read and is not written yet, in order."""

    def __init__(
        self, source: socket.socket, target: socket.socket, faults: Faults, cut: _Cut
    ) -> None:
        self.is_held = False
        self.is_reading = True
        self.is_blocked = False
        self.is_done = False
        self.is_cut = False
        self._source = source
        self._target = target
        self.faults = faults
        self._cut = cut
        self._queue: deque[tuple[float, bytes | _End]] = deque()

    def read(self, now: float) -> Iterator[Frame]:
        """The frames that have come; the end of the stream is queued like data."""
        try:
            data = self._source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._end(_End.RESET, now)
            return
        if data:
            yield from self._cut(data)
        else:
            self._end(_End.ORDERLY, now)

    def forward(self, data: bytes, now: float) -> None:
        """Queue ``data``, as far as the allowance goes."""
        allowance = self.faults.allowance
        if allowance is None:
            self._push(data, now)
        elif len(data) <= allowance:
            self._push(data, now)
            self.faults.allowance = allowance - len(data)
        else:
            self.faults.allowance = None
            self._push(data[:allowance], now)
            self._end(_End.CUT, now)

    def _end(self, how: _End, now: float) -> None:
        self.is_reading = False
        self._push(how, now)

    def _push(self, what: bytes | _End, now: float) -> None:
        # Everything is delayed by itself, so a delay costs no throughput, and never goes before
        # what came earlier.
        due = now + self.faults.latency()
        if self._queue:
            due = max(due, self._queue[-1][0])
        self._queue.append((due, what))

    def release(self) -> None:
        """Everything that waits may go at once."""
        self.is_held = False
        self._queue = deque((0.0, what) for _, what in self._queue)

    @property
    def due(self) -> float | None:
        """When there will be something to write; None if nothing waits for time to pass."""
        waits = self._queue and not (self.is_held or self.faults.is_held or self.is_blocked)
        return self._queue[0][0] if waits else None

    def flush(self, now: float) -> None:
        """Write what is due; raises OSError when the connection is to be reset."""
        self.is_blocked = False
        while (due := self.due) is not None and due <= now:
            what = self._queue[0][1]
            if what is _End.RESET:
                raise ConnectionResetError
            if what is _End.CUT:
                self.is_cut = True
            elif what is _End.ORDERLY:
                self._target.shutdown(socket.SHUT_WR)
                self.is_done = True
            elif isinstance(what, bytes):
                try:
                    sent = self._target.send(what)
                except BlockingIOError:
                    self.is_blocked = True
                    return
                if sent < len(what):
                    self._queue[0] = (due, what[sent:])
                    continue
            self._queue.popleft()


class Connection:
    """One client's connection through the proxy.

    The methods that take a message are the actions of traps: ``Connection.lose_reply``. They run
    before the message's frame is forwarded, on the proxy's thread.
    """

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        framer: Framer,
        requests: Faults,
        replies: Faults,
        selector: selectors.BaseSelector,
        serve: Callable[[Connection, object, int], None],
        dial: Callable[[], None],
        patient_until: float,
    ) -> None:
        self.client = client
        self.server = server
        self.is_closed = False
        self.requests = Pipe(client, server, requests, framer.requests)
        self.replies = Pipe(server, client, replies, framer.replies)
        self._selector = selector
        self._serve: Final = partial(serve, self)
        self._watched: dict[socket.socket, int] = {}
        self._is_connecting = True
        self._dial = dial
        self._patient_until = patient_until
        #: When a server that has refused is dialled again.
        self._redials_at: float | None = None
        dial()
        self._loses: Message | None = None
        self._omits: Message | None = None

    def reset(self, _message: Message | None = None) -> None:
        """Reset both ends (RST); what was not forwarded yet is lost."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.close()

    def close(self, _message: Message | None = None) -> None:
        """Close both ends in order (FIN); what was not forwarded yet is lost."""
        self.is_closed = True
        for end in (self.client, self.server):
            self._watch(end, 0)
            end.close()

    def black_hole(self, _message: Message | None = None) -> None:
        """Forward nothing any more in either direction, this message included, until `heal`."""
        self.requests.is_held = self.replies.is_held = True

    def lose_request(self, _message: Message | None = None) -> None:
        """The request never arrives, and the connection is reset."""
        self.reset()

    def lose_reply(self, message: Message) -> None:
        """The request arrives; when the server has answered it, the connection is reset instead.

        So the server has done what was asked, and the client cannot know. Without a protocol,
        whatever the server sends next is taken for the answer.
        """
        self._loses = message

    def omit_reply(self, message: Message) -> None:
        """The request arrives, its answer alone never does, and the connection goes on."""
        self._omits = message

    def loses(self, frame: Frame) -> bool:
        """Whether this frame of the server is the answer that must not arrive."""
        return _answers(frame, self._loses)

    def omits(self, frame: Frame) -> bool:
        """Whether this frame of the server is the answer that is left out; asked once for each."""
        if not _answers(frame, self._omits):
            return False
        self._omits = None
        return True

    def release(self) -> None:
        """Lift what actions did: forward what they held back, lose no reply any more."""
        self._loses = None
        self.requests.release()
        self.replies.release()

    def connected(self, now: float) -> None:
        """The server's end became writable for the first time: connected, or refused."""
        if self._is_connecting:
            if not self.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._is_connecting = False
            elif now < self._patient_until:
                self._redials_at = now + _REDIAL
            else:
                self.reset()

    @property
    def due(self) -> float | None:
        """When `flush` has something to do."""
        if self.is_closed or self._is_connecting:
            return None if self.is_closed else self._redials_at
        return min(
            (due for due in (self.requests.due, self.replies.due) if due is not None), default=None
        )

    def flush(self, now: float) -> None:
        """Write what is due, and tell the selector what to wait for next."""
        if not self.is_closed and self._redials_at is not None and self._redials_at <= now:
            self._redials_at = None
            self._dial()
        if not self.is_closed and not self._is_connecting:
            try:
                self.requests.flush(now)
                self.replies.flush(now)
            except OSError:
                self.reset()
            else:
                done = self.requests.is_done and self.replies.is_done
                if done or self.requests.is_cut or self.replies.is_cut:
                    self.close()
        if self.is_closed:
            return
        self._watch(self.client, _events(self.requests.is_reading, self.replies.is_blocked))
        self._watch(
            self.server,
            _events(
                self.replies.is_reading and not self._is_connecting,
                self.requests.is_blocked or (self._is_connecting and self._redials_at is None),
            ),
        )

    def _watch(self, end: socket.socket, events: int) -> None:
        if end.fileno() < 0:
            return
        known = self._watched.get(end, 0)
        if events == known:
            return
        if not events:
            self._selector.unregister(end)
        elif not known:
            self._selector.register(end, events, self._serve)
        else:
            self._selector.modify(end, events, self._serve)
        self._watched[end] = events


def _answers(frame: Frame, asked: Message | None) -> bool:
    if asked is None:
        return False
    number = asked.number
    return number is None or any(message.number == number for message in frame.messages)


def _events(reads: bool, writes: bool) -> int:
    return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)
