"""kazoo's connection, which neither lets a caller block nor wakes a thread to send.

kazoo writes a byte per request to a socket pair and reads one per request sent. The pair's buffer
holds 278 of them on Linux: the next caller blocks until the connection works again, and the I/O
thread itself, which sends too, for ever. And Ctrl-C between a request and its byte would make each
later request wait for the next one's. So here nothing is counted: the I/O thread looks at kazoo's
queue of requests, and callers write bytes only while it sleeps.

While it sleeps, a caller sends its request itself, which spares a change of threads. Answers come
to the I/O thread alone. The one that sends has a lock, which the I/O thread has whenever it is
awake. No caller waits for that: it wakes the I/O thread. Where a signal handler makes a
request while its thread sends, it replaces the connection, because it cannot know what was sent.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final

from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.serialization import Connect

from coordlock.backend.poll import ready

__all__ = ["BufferedSocket", "Connection"]

_HEAD: Final = struct.Struct("!iii")  # length, number and kind of a request
#: So many bytes are sent at once.
_MAX_SEND: Final = 65536
#: So many are read: a few hundred answers, or the list of a thousand contenders.
_MAX_READ: Final = 65536
#: Seconds for which the I/O thread waits for a caller that sends, once the connection has ended. On
#: a live connection it waits ``_TIMES`` times as long. Callers need microseconds, unless a signal
#: handler interrupts one.
_PATIENCE_S, _TIMES = 0.05, 20
#: A request, what takes its answer, and its number.
_Sent = tuple[Any, Any, int]


class BufferedSocket:
    """A connected socket, with what was read ahead, and what has yet to be sent.

    Attributes:
        ahead: frames that have come, the last one perhaps in part.
        has_ended: whether nothing more comes.
        rest: the rest of requests that count as sent.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection: Final = connection
        self.ahead: Final = bytearray()
        self.has_ended = False
        self.rest = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    @property
    def is_plain(self) -> bool:
        """Whether one thread may send while another one waits for it to be readable: no TLS."""
        return not isinstance(self._connection, ssl.SSLSocket)

    def read_ahead(self) -> None:
        """Read what there is. For a socket that does not block."""
        try:
            data = self._connection.recv(_MAX_READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return  # a part of a TLS record
        except OSError:
            data = b""
        self.ahead.extend(data)
        self.has_ended = not data

    def give_up(self) -> None:
        """Let the I/O thread find the connection lost; what has come is not looked at any more."""
        self.has_ended = True
        self.ahead.clear()
        with suppress(OSError):  # it was not connected any more
            self._connection.shutdown(socket.SHUT_RDWR)


class Connection(ConnectionHandler):  # type: ignore[misc]
    """Reads all that has come at once, and sends all requests that are there."""

    _socket: Any = None
    _xid: int

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: Whether the I/O thread sleeps, and has to be woken.
        self._sleeps = False
        #: The thread that sends has it. Replaced where a caller keeps it.
        self._sending: Any = threading.RLock()

    # In the I/O thread

    def zk_loop(self) -> None:
        self._sending.acquire()
        super().zk_loop()

    def _expand_client_hosts(self) -> Any:
        # kazoo resolves the names anew for each round.
        addresses = super()._expand_client_hosts()
        self.handler.divide(len(addresses))
        return addresses

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        # A server that starts or hangs may never answer the handshake; kazoo would wait for the
        # session timeout, and the session would be over.
        answer = super()._invoke(min(timeout, self.handler.patience), request, xid)
        if isinstance(request, Connect) and (granted := answer[0].time_out) > 0:  # else it expired
            self.handler.negotiated = granted / 1000
        return answer

    def _read(self, length: int, timeout: float) -> bytes:
        source = self._socket
        while len(source.ahead) < length:
            if source.has_ended:
                raise ConnectionDropped("the connection has ended")
            if not ready([source], timeout=timeout):
                raise self.handler.timeout_exception("nothing came")
            source.read_ahead()
        data = bytes(source.ahead[:length])
        del source.ahead[:length]
        return data

    def wait(self, timeout: float) -> list[Any]:
        """Which of the socket and kazoo's wakeups has work; nothing only after ``timeout``."""
        until = time.monotonic() + timeout
        while True:
            # In this order: a caller adds its request first, and then looks whether it must wake.
            self._sleeps = True
            work = self._work()
            if work:
                self._sleeps = False
            if work == [self._socket]:
                return work
            # Also where there are requests: they must not keep answers waiting.
            self._sleep(0.0 if work else max(0.0, until - time.monotonic()))
            work = self._work()
            if work or time.monotonic() >= until:
                return work

    def _work(self) -> list[Any]:
        source, work = self._socket, []
        if source.ahead or source.has_ended:
            work.append(source)
        if source.rest or self.client._queue:
            work.append(self._read_sock)
        return work

    def _sleep(self, seconds: float) -> None:
        """Wait for the system, and read what has come. Meanwhile callers may send."""
        source, wakeups = self._socket, self._read_sock
        is_shared = self._sleeps and source.is_plain
        if is_shared:
            self._sending.release()
        found = ready([wakeups, source], timeout=seconds)
        self._sleeps = False
        if is_shared:
            self._take_back()
        if wakeups in found:
            wakeups.recv(_MAX_READ)
        if source in found and not source.has_ended:
            source.read_ahead()

    def _take_back(self) -> None:
        """Take the connection back, once no caller sends."""
        for _ in range(_TIMES):
            if self._sending.acquire(timeout=_PATIENCE_S):
                return
            if self._socket.has_ended:
                break
        # The caller may be in the midst of using it, and does no harm from now on.
        self._sending = threading.RLock()
        self._sending.acquire()
        self._socket.give_up()
        self.client._pending = deque(self.client._pending)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        source = self._socket
        data, source.rest = source.rest or self._frames(self.client._pending), b""
        self._write(data, connect_timeout)

    # In any thread

    @property
    def is_live(self) -> bool:
        """Whether there is a connection that has not been given up."""
        return self.client.connected and not getattr(self._socket, "has_ended", True)

    def announce(self) -> None:
        """A request was added: see to it that it is sent."""
        if self._sleeps and not self._is_sent():
            self.wake()

    def wake(self) -> None:
        """Let the I/O thread look at the requests."""
        with suppress(OSError, AttributeError):  # full, so the thread wakes anyway; or closed
            self._write_sock.send(b"\0")

    def _is_sent(self) -> bool:
        """Send the waiting requests without blocking; whether the I/O thread can stay asleep."""
        # Before the lock is looked at: the I/O thread may give all of it up from then on.
        current = source, _ = self._socket, self.client._pending
        sending = self._sending
        if sending._is_owned():  # this is a signal handler, which struck while its thread sends
            source.give_up()
            return False
        try:
            return sending.acquire(blocking=False) and self.send_now(*current)
        finally:
            try:  # noqa: SIM105 - `suppress` is Python's, so that Ctrl-C could strike before this
                sending.release()
            except RuntimeError:  # it was not acquired
                pass

    def send_now(self, source: BufferedSocket, pending: deque[_Sent]) -> bool:
        """Send what can be sent without waiting; whether that is all there is.

        Nothing is sent where the I/O thread uses another ``source`` or ``pending`` meanwhile.
        """
        if source is not self._socket or pending is not self.client._pending:
            return False
        try:
            source.rest = source.rest or self._frames(pending)
            if source.rest:
                with suppress(OSError):  # the I/O thread finds out why
                    source.rest = source.rest[source.send(source.rest) :]
        except BaseException:  # a signal handler has raised
            source.give_up()
            raise
        finally:
            while pending and pending is not self.client._pending:  # see `_take_back`
                _, reply, _ = pending.popleft()
                if reply is not None:
                    reply.set_exception(ConnectionLoss())
        return not source.rest and not self.client._queue

    def _frames(self, pending: deque[_Sent]) -> bytes:
        """Requests that are there, which count as sent from now on."""
        queue, frames = self.client._queue, b""
        for sent in list(queue):
            if len(frames) >= _MAX_SEND:
                break
            request, reply = sent
            xid = self._xid = (self._xid % 0x7FFFFFFF) + 1
            body = request.serialize()
            frames += _HEAD.pack(len(body) + 8, xid, request.type) + body
            pending.append((request, reply, xid))  # first: it must be in one of both
            with suppress(ValueError):  # it has failed with the connection
                queue.remove(sent)
        return frames
