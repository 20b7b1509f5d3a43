"""A connection, and the thread that receives its answers.

It sends what the calling threads could not send themselves.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections import deque
from typing import Any, Final, TypeVar

from hiredis import PushNotification

from coordlock.backend.poll import Poll
from coordlock.errors import BackendError, BackendUnavailable, SessionLost
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS, THREAD
from coordlock.runtime.promise import Promise, failed
from coordlock_redis.errors import SERVICE, client_closed, is_elsewhere, translate
from coordlock_redis.requests import Request, ScriptContext
from coordlock_redis.servers import BROKEN, Connection, Servers, packed

__all__ = ["RequestThread"]

T = TypeVar("T")

log = Log("coordlock")

_STRAY: Final = OSError("the server sent an answer to no request")
#: By a signal handler.
_INTERRUPTED: Final = OSError("a request was interrupted")
#: A request, and its answers so far: that of the script, and how many replicas have what it did.
_Slot = tuple[Request[Any], list[Any]]


class RequestThread:
    """Requests over one connection. Its thread runs from the first one until `close`.

    Requests go out as they come, without waiting for the answers to those before.

    Args:
        replicas: how many must have what a request changes.
    """

    def __init__(
        self,
        servers: Servers,
        context: ScriptContext,
        clock: Clock,
        replicas: int = 0,
    ) -> None:
        #: The connection, if there is one.
        self.connection: Connection | None = None
        #: Nothing is called where a thread other than that for I/O holds it. So no signal handler
        #: runs there, which might itself ask for something.
        self._lock: Final = threading.RLock()
        #: Why the thread has failed; then the session must end.
        self._failure = ""
        #: Why the connection must be given up; None while it works.
        self._trouble: Exception | None = None
        self.context: Final = context
        self._servers: Final = servers
        self._clock: Final = clock
        self._replicas: Final = replicas
        self._timeout: Final = servers.timeout
        self._pid: Final = PROCESS.id
        #: What the thread for I/O is to send.
        self._asked: list[Request[Any]] = []
        self._slots: deque[_Slot] = deque()
        #: When the latest request was sent.
        self._sent_at = 0.0
        #: All that was published until then has come.
        self.complete_until = 0.0
        #: What could not be sent at once.
        self._unsent = b""
        #: The first of these is the thread for I/O; others end at once.
        self._threads: list[threading.Thread] = []
        self._ended: Promise[None] = Promise()
        self._until: float | None = None
        self._poll: Final = Poll()
        #: What ends the wait of the thread for I/O, from any thread.
        self._woken, self._waking = socket.socketpair()
        for end in (self._woken, self._waking):
            end.setblocking(False)

    def ask(self, request: Request[T]) -> Promise[T]:
        """Send ``request``; its promise."""
        if PROCESS.id != self._pid:  # the child of a fork shares the socket, and has no thread
            return failed(client_closed())
        if self._until is not None or sys.is_finalizing():
            return failed(self._refusal())
        connection = self.connection
        if connection is not None and not connection.is_encrypted:
            data = self._encoded(request, connection)
            if self._put(connection, data, request):
                return request.promise
        self._asked.append(request)
        if self._ended.done():
            self._refuse(self._refusal())
        self._start()
        self._wake()
        return request.promise

    def _put(
        self, connection: Connection, data: bytes, request: Request[Any] | None = None
    ) -> bool:
        """Send ``data``, or keep for the thread for I/O what can't be sent at once.

        It is the ``request``, or has no answer. Returns False and sends nothing if other requests
        come first or the connection is gone.
        """
        trouble: Exception | None = None
        written: list[int] = []
        slots: list[_Slot] = [] if request is None else [(request, [])]
        # Writes when it is added to `written`: what was written is known before a handler runs.
        write = () if connection.is_encrypted else map(connection.socket.send, (data,))
        with self._lock:
            if connection is not self.connection or self._trouble is not None:
                return False
            if request is not None and self._asked:
                return False
            self._trouble = _INTERRUPTED
            self._slots += slots
            if self._unsent:
                self._unsent += data
            else:
                try:
                    written += write
                except BlockingIOError:
                    pass
                except OSError as error:
                    trouble = error
                self._unsent = data[written[0] :] if written else data
            self._trouble = trouble
        if self._trouble is not None or self._unsent:
            self._wake()
        return True

    def _encoded(self, request: Request[Any], connection: Connection) -> bytes:
        self._sent_at = request.sent_at = self._clock.now()
        command = request.command(self.context, connection)
        if self._replicas and request.changes:
            command += packed("WAIT", self._replicas, max(1, int(self._timeout * 500)))
        return command

    def close(self, last: Request[None] | None = None) -> Promise[None]:
        """Send the ``last`` request, if any, and end the thread."""
        if self._until is None:
            if last is not None and self._threads:
                self._asked.append(last)
            self._until = self._clock.now() + self._timeout
            if not self._threads:
                self._end()
        self._wake()
        return self._ended

    def _start(self) -> None:
        if not self._threads:
            threading.Thread(target=self._serve, name="coordlock-redis", daemon=True).start()

    # What the thread does

    def _serve(self) -> None:
        THREAD.must_not_wait = True
        self._threads.append(threading.current_thread())
        if self._threads[0] is not threading.current_thread():
            return
        try:
            while not self._is_over():
                self._turn()
        except BaseException as error:
            self._failure = f"the client's thread failed: {type(error).__name__}: {error}"
            log.exception("the thread of a Redis client failed")
        finally:
            self._end()

    def _is_over(self) -> bool:
        if self._until is None:
            return False
        return (
            self._ended.done()
            or not (self._asked or self._slots)
            or self._clock.now() >= self._until
        )

    def _end(self) -> None:
        self._until = self._until or 0.0
        self._drop(self._refusal())
        self._woken.close()
        self._waking.close()
        self._ended.resolve(None)
        self._refuse(self._refusal())

    def _refuse(self, error: BackendError) -> None:
        with contextlib.suppress(IndexError):  # other threads do so, too, at the end
            for _ in range(len(self._asked)):
                self._asked.pop(0).promise.fail(error)

    def _refusal(self) -> BackendError:
        if self._failure:
            return SessionLost(SERVICE, self._failure)
        return client_closed()

    def _turn(self) -> None:
        self._flush()
        if self._asked:
            self._send()
            self._flush()
        self._wait()

    def _connect(self) -> None:
        connection = self._servers.connect()
        connection.serve()
        self.connection = connection

    def _push(self, message: list[Any]) -> None:
        """Take what is the answer to no request."""

    def _flush(self) -> None:
        """Send what could not be sent at once, or give up a connection that failed."""
        with self._lock:
            trouble, connection, data = self._trouble, self.connection, self._unsent
        if data and trouble is None and connection is not None:
            try:
                sent = connection.write(data)  # a server that is slow to read holds up no answer
                with self._lock:
                    self._unsent = self._unsent[sent:]
            except BROKEN as error:
                trouble = error
        if trouble is not None:
            self._drop(translate(trouble, connection.where if connection is not None else ""))

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake already, or has ended
            self._waking.send(b"\0")

    def _wait(self) -> None:
        """Wait for what comes, and act on it."""
        connection = self.connection
        sockets = [] if connection is None else [connection.socket]
        has_more = connection is not None and connection.has_more()
        patience = 0.0 if has_more else self._patience()
        full = sockets if self._unsent else []
        readable = self._poll.ready([self._woken, *sockets], full, patience)
        if self._woken in readable:
            self._woken.recv(4096)
            readable.remove(self._woken)
        if has_more or readable:
            self._receive()
        self._expire()

    def _expire(self) -> None:
        """Give up the connection where an answer does not come."""
        slots = list(self._slots)
        if slots and self._clock.now() > slots[0][0].sent_at + self._timeout:
            self._drop(BackendUnavailable(SERVICE, f"no answer came in {self._timeout:g} s"))

    def _patience(self) -> float | None:
        if self._asked or self._trouble is not None:
            return 0.0
        now, due = self._clock.now(), [self._due(), self._until]
        if slots := list(self._slots):
            due.append(slots[0][0].sent_at + self._timeout)
        if self.connection is not None:  # other threads send, too, and do not wake this one
            due.append(now + self._timeout / 2)
        known = [when for when in due if when is not None]
        return max(0.0, min(known) - now) if known else None

    def _due(self) -> float | None:
        """When something is to be done without a request."""
        return None

    def _send(self) -> None:
        try:
            if self.connection is None:
                self._connect()
        except BackendError as error:
            self._refuse(error)
        if (connection := self.connection) is not None:
            batch = [*self._asked]
            data = b"".join([self._encoded(request, connection) for request in batch])
            with self._lock:
                self._slots += [(request, []) for request in batch]
                self._unsent += data
                del self._asked[: len(batch)]

    def _receive(self) -> None:
        """Complete the requests whose answers have come."""
        if (connection := self.connection) is None:
            return
        try:
            found = connection.read()
        except BROKEN as error:
            self._drop(translate(error, connection.where))
            return
        for answer in found:
            if isinstance(answer, PushNotification):
                self._push(answer)
            elif not self._slots:
                self._drop(translate(_STRAY, connection.where))
            else:
                request, answers = self._slots[0]
                answers.append(answer)
                if len(answers) == (2 if self._replicas and request.changes else 1):
                    self._slots.popleft()
                    self._take(request, connection, *answers)
            if self.connection is not connection:
                return

    def _take(
        self, request: Request[Any], connection: Connection, answer: Any, copies: Any = None
    ) -> None:
        if isinstance(error := answer, Exception) or isinstance(error := copies, Exception):
            request.promise.fail(translate(error, connection.where))
            if is_elsewhere(error):
                self._drop(translate(error, connection.where))
        elif copies is not None and copies < self._replicas and answer[0] == b"ok":
            wanted = f"the {self._replicas} replicas that wait_replicas wants have it"
            request.promise.fail(BackendUnavailable(SERVICE, f"{copies} of {wanted}"))
        else:
            self.complete_until = request.sent_at
            request.answer(answer, self.context)

    def _drop(self, error: BackendError) -> None:
        """Give up the connection; what was sent has an unknown outcome."""
        with self._lock:
            connection, self.connection = self.connection, None
            slots, self._slots = self._slots, deque()
            self._unsent, self._trouble = b"", None
        if connection is not None:
            connection.close()
        error = BackendUnavailable(SERVICE, error.reason)
        for request, _ in slots:
            request.promise.fail(error)
