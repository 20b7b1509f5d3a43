"""Connections, and the thread that receives their answers.

It sends what the calling threads could not send themselves.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from hiredis import PushNotification

from coordlock.backend.poll import ready
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
        timeout: seconds in which an answer must come.
        replicas: how many must have what a request changes.
        guests: connections that this thread serves, too, because a thread for each costs a change
            of threads for each release.
    """

    def __init__(
        self,
        servers: Servers,
        context: ScriptContext,
        clock: Clock,
        timeout: float,
        replicas: int = 0,
        guests: Sequence[RequestThread] = (),
    ) -> None:
        #: The connection, if there is one.
        self.connection: Connection | None = None
        #: Nothing is called where a thread other than that for I/O holds it. So no signal handler
        #: runs there, which might itself ask for something.
        self._lock: Final = threading.RLock()
        #: Why the connection must be given up; None while it works.
        self._trouble: Exception | None = None
        self.context: Final = context
        self._servers: Final = servers
        self._clock: Final = clock
        self._replicas: Final = replicas
        self._timeout: Final = timeout
        self._pid: Final = PROCESS.id
        #: Whose thread it is, and all that it serves.
        self._host: RequestThread = self
        self._served: Final = (*guests, self)
        #: Seconds in which it connects. Meanwhile the thread receives nothing on the others.
        self._connect_timeout: Final = min(each._timeout for each in self._served)
        for guest in guests:
            guest._host = self
        #: What the thread for I/O is to send.
        self._asked: list[Request[Any]] = []
        self._slots: deque[_Slot] = deque()
        #: When the latest request was sent.
        self._sent_at = 0.0
        #: What could not be sent at once.
        self._unsent = b""
        #: The first of these is the thread for I/O; others end at once.
        self._threads: list[threading.Thread] = []
        self._ended: Promise[None] = Promise()
        self._until: float | None = None
        #: What ends the wait of the thread for I/O, from any thread.
        self._woken, self._waking = socket.socketpair()
        for end in (self._woken, self._waking):
            end.setblocking(False)

    def ask(self, request: Request[T]) -> Promise[T]:
        """Send ``request``; its promise."""
        if PROCESS.id != self._pid:  # the child of a fork shares the socket, and has no thread
            return failed(client_closed())
        if self._host._until is not None or sys.is_finalizing():
            return failed(self._refusal())
        connection = self.connection
        if connection is not None and not (connection.is_encrypted or self._has_moved(connection)):
            data = self._encoded(request, connection)
            if self._put(connection, [request], data):
                return request.promise
        self._asked.append(request)
        if self._host._ended.done():
            self._refuse()
        self._host._start()
        self._wake()
        return request.promise

    def _put(
        self, connection: Connection, batch: list[Request[Any]], data: bytes, asked: int = 0
    ) -> bool:
        """Send ``data`` for ``batch``, or keep for the thread for I/O what can't be sent at once.

        ``asked`` is how many of the requests that wait for the thread for I/O these are, from the
        first. Returns False and sends nothing if others come first or the connection is gone.
        """
        trouble: Exception | None = None
        written: list[int] = []
        slots: list[_Slot] = [(request, []) for request in batch]
        # Writes when it is added to `written`: what was written is known before a handler runs.
        write = () if connection.is_encrypted else map(connection.socket.send, (data,))
        with self._lock:
            if connection is not self.connection or self._trouble is not None:
                return False
            if batch and self._asked and not asked:
                return False
            self._trouble = _INTERRUPTED
            self._slots += slots
            if asked:
                del self._asked[:asked]
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

    def _has_moved(self, connection: Connection) -> bool:
        """Whether the client has reached another server since ``connection`` was made."""
        return connection.run != self._servers.run

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
            # The client learns of nothing now, so its heartbeats must not keep its session.
            self.context.failure = f"the client's thread failed: {type(error).__name__}: {error}"
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
        for each in self._served:
            each._drop(self._refusal())
            each._woken.close()
            each._waking.close()
        self._ended.resolve(None)
        for each in self._served:
            each._refuse()

    def _refuse(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._asked.pop(0).promise.fail(self._refusal())

    def _refusal(self) -> BackendError:
        if self.context.failure:
            return SessionLost(SERVICE, self.context.failure)
        return client_closed()

    def _turn(self) -> None:
        for each in self._served:
            each._work()
        self._wait()

    def _work(self) -> None:
        """Do what is due now."""
        if (connection := self.connection) is not None and self._has_moved(connection):
            # What leaves there is not reported here.
            self._drop(BackendUnavailable(SERVICE, "the client has moved to another server"))
        self._flush()
        if self._asked or self._needs_connection():
            self._send()
            self._flush()

    def _needs_connection(self) -> bool:
        """Whether to connect though nothing is to be sent."""
        return False

    def _connect(self) -> None:
        connection = self._servers.connect(self._connect_timeout)
        connection.socket.setblocking(False)
        self.connection = connection

    def _push(self, message: list[Any]) -> None:
        """Take what is the answer to no request."""

    def _flush(self) -> None:
        """Send what could not be sent at once, or give up a connection that failed."""
        with self._lock:
            trouble, connection, data = self._trouble, self.connection, self._unsent
        if data and trouble is None and connection is not None:
            try:
                sent = connection.write(data)  # the other connections don't wait for a slow one
                with self._lock:
                    self._unsent = self._unsent[sent:]
            except BROKEN as error:
                trouble = error
        if trouble is not None:
            self._drop(translate(trouble, connection.where if connection is not None else ""))

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake already, or has ended
            self._host._waking.send(b"\0")

    def _wait(self) -> None:
        """Wait for what comes, and act on it."""
        sockets = {
            each: each.connection.socket for each in self._served if each.connection is not None
        }
        patience = [each._patience() for each in self._served]
        known = [seconds for seconds in patience if seconds is not None]
        timeout = min(known, default=None)
        full = [own for each, own in sockets.items() if each._unsent]
        readable = ready([self._woken, *sockets.values()], full, timeout)
        if self._woken in readable:
            self._woken.recv(4096)
        for each, own_socket in sockets.items():
            if own_socket in readable:
                each._receive()
            each._expire()

    def _expire(self) -> None:
        """Give up the connection where an answer does not come."""
        slots = list(self._slots)
        if slots and self._clock.now() > slots[0][0].sent_at + self._timeout:
            self._drop(BackendUnavailable(SERVICE, f"no answer came in {self._timeout:g} s"))

    def _patience(self) -> float | None:
        if self._asked or self._trouble is not None:
            return 0.0
        due = [self._due(), self._until]
        if slots := list(self._slots):
            due.append(slots[0][0].sent_at + self._timeout)
        known = [when for when in due if when is not None]
        patience = max(0.0, min(known) - self._clock.now()) if known else None
        if self.connection is not None:  # other threads send, too, and do not wake this one
            patience = min(self._timeout / 2, self._timeout if patience is None else patience)
        return patience

    def _due(self) -> float | None:
        """When something is to be done without a request."""
        return None

    def _send(self) -> None:
        failure: BackendError | None = None
        try:
            if self.connection is None:
                self._connect()
        except BackendError as error:
            failure = error
        batch = [*self._asked]
        if failure is not None:
            del self._asked[: len(batch)]
            for request in batch:
                request.promise.fail(failure)
        elif batch and (connection := self.connection) is not None:
            data = b"".join([self._encoded(request, connection) for request in batch])
            self._put(connection, batch, data, asked=len(batch))

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
