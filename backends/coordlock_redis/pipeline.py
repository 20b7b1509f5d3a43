"""Requests over connections, and the thread that receives their answers."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections import deque
from math import inf
from typing import Any, Final, TypeVar

from hiredis import PushNotification

from coordlock.backend.poll import ready
from coordlock.errors import BackendError, BackendUnavailable, SessionLost
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS, THREAD
from coordlock.runtime.promise import Promise, failed
from coordlock_redis.errors import BROKEN, SERVICE, client_closed, is_elsewhere, translate
from coordlock_redis.requests import Request, ScriptContext
from coordlock_redis.servers import Connection, Servers, packed

__all__ = ["IOThread", "Pipeline"]

T = TypeVar("T")

log = Log("coordlock")

_STRAY: Final = OSError("the server sent an answer to no request")
#: By a signal handler.
_INTERRUPTED: Final = OSError("a request was interrupted")


class Pipeline:
    """Requests over one connection, sent as they come, without waiting for the answers to others.

    Args:
        thread: receives, and sends what the calling threads can't.
        timeout: seconds in which an answer must come.
        replicas: how many must have what a request changes.
    """

    def __init__(
        self,
        thread: IOThread,
        servers: Servers,
        context: ScriptContext,
        clock: Clock,
        timeout: float,
        replicas: int = 0,
    ) -> None:
        #: The connection, if there is one.
        self.connection: Connection | None = None
        #: Nothing is called where a thread other than that for I/O holds it. So no signal handler
        #: runs there, which might itself ask for something.
        self._lock: Final = threading.RLock()
        #: Why the connection must be given up; None while it works.
        self._trouble: Exception | None = None
        self._thread: Final = thread
        self._context: Final = context
        self._servers: Final = servers
        self._clock: Final = clock
        self._replicas: Final = replicas
        self._timeout: Final = timeout
        self._pid: Final = PROCESS.id
        #: What the thread for I/O is to send.
        self._asked: Final[list[Request[Any]]] = []
        #: The request of each answer that is to come: that of the script, and behind it how many
        #: replicas have what it did.
        self._expected: deque[Request[Any]] = deque()
        #: The answers that have come to the first of them.
        self._answers: list[Any] = []
        #: When the latest request was sent.
        self._sent_at = 0.0
        #: What the thread for I/O is to send first.
        self._unsent = b""
        thread.pipelines.append(self)

    def ask(self, request: Request[T]) -> Promise[T]:
        """Send ``request``; its promise."""
        if PROCESS.id != self._pid:  # the child of a fork shares the socket, and has no thread
            return failed(client_closed())
        if (refusal := self._thread.refusal) is not None or sys.is_finalizing():
            return failed(refusal or client_closed())
        connection = self.connection
        if connection is None or connection.is_encrypted or not self._put(request, connection):
            self._asked.append(request)
            if self._thread.ended.done():
                self.refuse(self._thread.refusal or client_closed())
            self._thread.wake()
        return request.promise

    def _put(self, request: Request[Any], connection: Connection) -> bool:
        """Send ``request``, and leave to the thread for I/O what can't be sent at once.

        Returns False and sends nothing if others come first or the connection is gone.
        """
        data = self._encoded(request, connection)
        expected = self._answers_to(request)
        trouble: Exception | None = None
        written: list[int] = []
        # Writes when it is added to `written`: what was written is known before a handler runs.
        write = map(connection.socket.send, (data,))
        with self._lock:
            if self._trouble or self._asked or self._unsent or connection is not self.connection:
                return False
            self._trouble = _INTERRUPTED
            self._expected += expected
            try:
                written += write
            except BlockingIOError:
                pass
            except OSError as error:
                trouble = error
            self._unsent = data[written[0] :] if written else data
            self._trouble = trouble
        if trouble is not None or self._unsent:
            self._thread.wake()
        return True

    def _encoded(self, request: Request[Any], connection: Connection) -> bytes:
        self._sent_at = request.sent_at = self._clock.now()
        command = request.command(self._context, connection)
        if self._replicas and request.changes:
            command += packed("WAIT", self._replicas, max(1, int(self._timeout * 500)))
        return command

    def _answers_to(self, request: Request[Any]) -> list[Request[Any]]:
        return [request] * (request.answers + bool(self._replicas and request.changes))

    # For the thread for I/O

    def refuse(self, error: BackendError) -> None:
        """Fail what is to be sent."""
        with contextlib.suppress(IndexError):  # other threads do so, too, at the end
            for _ in range(len(self._asked)):
                self._asked.pop(0).promise.fail(error)

    def is_busy(self) -> bool:
        """Whether requests have no answer."""
        return bool(self._asked or self._expected)

    @property
    def is_full(self) -> bool:
        """Whether the connection takes no more at present."""
        return bool(self._unsent)

    def work(self) -> None:
        """Do what is due now."""
        with self._lock:
            trouble = self._trouble
        if trouble is not None:
            self._break(trouble)
        if self.connection is None and self._needs_connection():
            try:
                opened = self._connect()
                opened.socket.setblocking(False)
                self.connection = opened
                self._thread.leave_others(opened.run)
            except BackendError as error:
                self.refuse(error)
        if (connection := self.connection) is not None:
            self._send(connection)

    def _needs_connection(self) -> bool:
        return bool(self._asked)

    def _connect(self) -> Connection:
        return self._servers.connect()

    def _send(self, connection: Connection) -> None:
        if batch := self._asked.copy():
            data = b"".join([self._encoded(request, connection) for request in batch])
            with self._lock:
                for request in batch:
                    self._expected += self._answers_to(request)
                self._unsent += data
                del self._asked[: len(batch)]
        if data := self._unsent:  # other threads don't touch it now
            try:
                self._unsent = data[connection.write(data) :]
            except BROKEN as error:
                self._break(error)

    def expire(self) -> None:
        """Give up the connection where an answer does not come."""
        expected = list(self._expected)
        if expected and self._clock.now() > expected[0].sent_at + self._timeout:
            self.drop(BackendUnavailable(SERVICE, f"no answer came in {self._timeout:g} s"))

    def due(self) -> float:
        """When to look what is to be done, if nothing comes."""
        if self._asked or self._trouble is not None:
            return 0.0
        if self.connection is None:
            return inf
        if expected := list(self._expected):
            return expected[0].sent_at + self._timeout
        # Other threads send, too, and do not wake this one.
        return self._clock.now() + self._timeout / 2

    def receive(self) -> None:
        """Complete the requests whose answers have come."""
        if (connection := self.connection) is None:
            return
        try:
            found = connection.read()
        except BROKEN as error:
            self._break(error)
            return
        for answer in found:
            if isinstance(answer, PushNotification):
                self._push(answer)
            elif not self._expected:
                self._break(answer if isinstance(answer, Exception) else _STRAY)
            else:
                request = self._expected.popleft()
                self._answers.append(answer)
                if not self._expected or self._expected[0] is not request:
                    answers, self._answers = self._answers, []
                    self._take(request, connection, *answers)
            if self.connection is not connection:
                return

    def _push(self, message: list[Any]) -> None:
        """Take what is the answer to no request."""

    def _take(
        self, request: Request[Any], connection: Connection, answer: Any, copies: Any = None
    ) -> None:
        if isinstance(error := answer, Exception) or isinstance(error := copies, Exception):
            request.promise.fail(translate(error, connection.where))
            if is_elsewhere(error):
                self._break(error)
        elif copies is not None and copies < self._replicas and answer[0] == b"ok":
            wanted = f"the {self._replicas} replicas that wait_replicas wants have it"
            request.promise.fail(BackendUnavailable(SERVICE, f"{copies} of {wanted}"))
        else:
            request.answer(answer, self._context)

    def _break(self, error: Exception) -> None:
        connection = self.connection
        self.drop(translate(error, connection.where if connection is not None else ""))

    def drop(self, error: BackendError) -> None:
        """Give up the connection; what was sent has an unknown outcome."""
        with self._lock:
            connection, self.connection = self.connection, None
            expected, self._expected = self._expected, deque()
            self._unsent, self._trouble = b"", None
        self._answers.clear()
        if connection is not None:
            connection.close()
        for request in expected:
            request.promise.fail(BackendUnavailable(SERVICE, error.reason))


class IOThread:
    """Receives answers, and sends what the calling threads could not send themselves.

    It runs from the first request until `close`. It serves all connections of a client, because a
    thread for each costs a change of threads for each release.

    Attributes:
        pipelines: what it serves.
        refusal: why nothing is sent any more; None while requests are.
        ended: kept when it has ended.
    """

    def __init__(self, clock: Clock, timeout: float) -> None:
        self._clock: Final = clock
        self._timeout: Final = timeout
        self.pipelines: Final[list[Pipeline]] = []
        self.refusal: BackendError | None = None
        self.ended: Final[Promise[None]] = Promise()
        #: When it ends, though answers are missing.
        self._until = inf
        #: The first of these is the thread; others end at once.
        self._threads: Final[list[threading.Thread]] = []
        #: What ends the thread's wait, from any thread.
        self._woken, self._waking = socket.socketpair()
        for end in (self._woken, self._waking):
            end.setblocking(False)

    def wake(self) -> None:
        """Start the thread, or let it look what is to be done."""
        if not self._threads:
            threading.Thread(target=self._serve, name="coordlock-redis", daemon=True).start()
        with contextlib.suppress(OSError):  # it is awake already, or has ended
            self._waking.send(b"\0")

    def close(self) -> Promise[None]:
        """End the thread once all that was asked is answered. Nothing more is sent."""
        if self.refusal is None:
            self._until = self._clock.now() + self._timeout
            self.refusal = client_closed()
            if self._threads:
                self.wake()
            else:
                self._end()
        return self.ended

    def leave_others(self, run: bytes) -> None:
        """Give up connections to other servers: what leaves there is not reported here."""
        for each in self.pipelines:
            if each.connection is not None and each.connection.run != run:
                each.drop(BackendUnavailable(SERVICE, "the client has moved to another server"))

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
            reason = f"the client's thread failed: {type(error).__name__}: {error}"
            self.refusal = SessionLost(SERVICE, reason)
            log.exception("the thread of a Redis client failed")
        finally:
            self._end()

    def _is_over(self) -> bool:
        if self.refusal is None:
            return False
        is_idle = not any(each.is_busy() for each in self.pipelines)
        return is_idle or self.ended.done() or self._clock.now() >= self._until

    def _end(self) -> None:
        refusal = self.refusal or client_closed()
        for each in self.pipelines:
            each.drop(refusal)
        for end in (self._woken, self._waking):
            end.close()
        self.ended.resolve(None)
        for each in self.pipelines:
            each.refuse(refusal)

    def _turn(self) -> None:
        for each in self.pipelines:
            each.work()
        connected = {each: own for each in self.pipelines if (own := each.connection) is not None}
        due = min([self._until, *(each.due() for each in self.pipelines)])
        timeout = None if due == inf else max(0.0, due - self._clock.now())
        sockets = [own.socket for own in connected.values()]
        full = [own.socket for each, own in connected.items() if each.is_full]
        readable = ready([self._woken, *sockets], full, timeout)
        if self._woken in readable:
            self._woken.recv(4096)
        for each, own in connected.items():
            if own.socket in readable:
                each.receive()
            each.expire()
