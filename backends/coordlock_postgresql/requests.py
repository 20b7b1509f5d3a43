"""Requests of a client: one after the other, over a connection of their own.

A caller sends its own request while no other is under way. So it waits for one thread only, which
receives the answers, connects, and sends what has come meanwhile.
"""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from psycopg import Connection, errors, pq
from psycopg.pq.abc import PGconn

from coordlock.backend.poll import ready
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.runtime.clock import Timers, within
from coordlock.runtime.process import PROCESS
from coordlock.runtime.promise import Promise, failed
from coordlock.runtime.worker import Worker
from coordlock_postgresql.access import Server
from coordlock_postgresql.errors import SERVICE, client_closed, translate

__all__ = ["Requests"]

T = TypeVar("T")

#: Seconds without requests after which the thread ends. The connection stays.
_IDLE_S: Final = 5.0
#: How often a request is repeated that the server has rolled back.
_REPETITIONS: Final = 10
_ROLLED_BACK: Final = (errors.SerializationFailure, errors.DeadlockDetected)


@dataclass(slots=True, eq=False)
class _Request(Generic[T]):
    verb: str
    arguments: Mapping[str, object]
    read: Callable[[int, Any], T]
    patience: float
    promise: Promise[T] = field(default_factory=Promise)
    #: When this client stops waiting for the answer; 0 while the request is not sent.
    until: float = 0.0


class Requests:
    """Sends requests in the order in which they come. Safe for threads.

    Args:
        common: arguments of all requests, as they are when one is sent; each answer sets the clock.
    """

    def __init__(
        self, name: str, server: Server, timers: Timers, common: MutableMapping[str, object]
    ) -> None:
        self._server: Final = server
        self._timers: Final = timers
        self._common: Final = common
        self._worker: Final = Worker(name, _IDLE_S, must_not_wait=True)
        self._pid: Final = PROCESS.id
        #: Held while a request is sent or has left. Reentrant: a signal handler may ask, too. Of
        #: any type, for `threading.Condition` alone knows that it says whether the thread has it.
        self._lock: Final[Any] = threading.RLock()
        #: Those without an answer. The first is under way.
        self._requests: Final[deque[_Request[Any]]] = deque()
        self._connection: Connection[Any] | None = None
        #: When the connection closes.
        self._until = math.inf

    def ask(
        self,
        verb: str,
        arguments: Mapping[str, object],
        read: Callable[[int, Any], T],
        patience: float,
    ) -> Promise[T]:
        """What ``read`` makes of the revision and the answer, which has ``patience`` seconds."""
        if self._pid != PROCESS.id:
            return failed(client_closed())
        request = _Request(verb, arguments, read, patience)
        is_within_another = self._lock._is_owned()
        with self._lock:
            if self._until < math.inf:
                return failed(client_closed())
            if is_within_another:  # a signal handler may wait, and what it has struck can't go on
                apart = Requests("coordlock-postgresql", self._server, self._timers, self._common)
                answer = apart.ask(verb, arguments, read, patience)
                apart.close()
                return answer
            self._requests.append(request)
            if self._requests[0] is request and self._connection is not None:
                with suppress(Exception):  # the thread tries it again
                    self._send(request, self._connection.pgconn)
        self._worker.run(self._serve)
        return request.promise

    def close(self) -> Promise[None]:
        """Close once the waiting requests have answers. Together they have the time of one."""
        done: Promise[None] = Promise()

        def end() -> None:
            self._serve()  # a caller may have sent its request, and not called the thread yet
            self._drop()
            done.resolve(None)

        with self._lock:
            self._until = self._timers.clock.now() + self._server.timeout
        self._worker.run(end)
        self._worker.end()
        return within(self._timers, done, self._server.timeout)

    def _send(self, request: _Request[Any], connection: PGconn) -> None:
        # A database without an encoding, SQL_ASCII, knows no escapes, and keeps these bytes.
        given = json.dumps({**self._common, **request.arguments}, ensure_ascii=False).encode()
        statement = f"CALL coordlock.request('{request.verb}', $1)".encode()
        connection.send_query_params(statement, [given])
        request.until = min(self._timers.clock.now() + request.patience, self._until)
        connection.flush()

    # What the thread does

    def _serve(self) -> None:
        """Answer all requests. If a signal handler raised in `ask`, an older one is among them."""
        while self._requests:
            request = self._requests[0]
            try:
                revision, answer, self._common["clock"] = self._answer(request)
                request.promise.resolve(request.read(revision, answer))
            except CoordlockError as error:
                request.promise.fail(error)
            except Exception as error:
                request.promise.fail(translate(error))

    def _answer(self, request: _Request[Any]) -> Any:
        try:
            for _ in range(_REPETITIONS):
                with suppress(*_ROLLED_BACK):
                    return self._attempt(request)
            return self._attempt(request)
        finally:
            with self._lock:
                self._requests.popleft()

    def _attempt(self, request: _Request[Any]) -> Any:
        if self._connection is None:
            if self._timers.clock.now() >= self._until:
                raise client_closed()
            self._connection = self._server.connect()
        connection = self._connection.pgconn
        try:
            with self._lock:
                if not request.until:
                    self._send(request, connection)
            return self._receive(request.until, self._connection)
        finally:
            request.until = 0.0
            if connection.transaction_status != pq.TransactionStatus.IDLE:
                self._drop()

    def _receive(self, until: float, connection: Connection[Any]) -> Any:
        own, results = connection.pgconn, []
        while True:
            while own.is_busy():
                writers = [connection] if own.flush() else []
                patience = max(0.0, until - self._timers.clock.now())
                if not ready([connection], writers, patience):
                    raise BackendUnavailable(SERVICE, "no answer came in time")
                own.consume_input()
            if (result := own.get_result()) is None:
                break
            results.append(result)
        if results[0].status != pq.ExecStatus.TUPLES_OK:
            raise errors.error_from_result(results[0])
        return json.loads(results[0].get_value(0, 0) or b"")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()
