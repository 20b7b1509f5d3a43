"""Heartbeats: on a connection of their own, which no other request holds up."""

from __future__ import annotations

import threading
from typing import Any, Final

from redis import exceptions

from coordlock.errors import BackendError, SessionLost
from coordlock.runtime.promise import Promise, failed
from coordlock.runtime.worker import Worker
from coordlock_redis.errors import SERVICE, client_closed, translate
from coordlock_redis.request_thread import not_copied
from coordlock_redis.requests import Request, ScriptContext
from coordlock_redis.servers import BROKEN, Connection, Servers, packed

__all__ = ["Heartbeats"]

#: What another connection mends at once: servers may close those that are idle, and forget scripts.
_CLOSED: Final = (exceptions.ConnectionError, ConnectionError, exceptions.NoScriptError)


class Heartbeats:
    """Sends one heartbeat after the other, from a thread that ends in between.

    Args:
        replicas: how many must have a heartbeat before it counts.
    """

    def __init__(self, servers: Servers, context: ScriptContext, replicas: int) -> None:
        self._servers: Final = servers
        self._context: Final = context
        self._replicas: Final = replicas
        self._worker: Final = Worker("coordlock-redis-heartbeat", must_not_wait=True)
        self._lock: Final = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False

    def send(self, request: Request[float], patience: float) -> Promise[float]:
        """Send the heartbeat ``request``; the server and replicas have ``patience`` seconds.

        That is a part of the time-to-live, so that the lease has time for another heartbeat.
        """
        if self._is_closed:
            return failed(client_closed())
        self._worker.run(lambda: self._send(request, patience))
        return request.promise

    def move(self, run: bytes) -> None:
        """Look for the primary anew unless the server is that of ``run``."""
        if (connection := self._connection) is not None and connection.run != run:
            self._drop()

    def close(self) -> None:
        """Close the connection; what is under way fails."""
        self._is_closed = True
        self._drop()

    def _send(self, request: Request[float], patience: float) -> None:
        try:
            answer = self._ask(request, patience)
        except BackendError as error:
            request.promise.fail(error)
        except Exception as error:  # whatever it is, the heartbeat needs an answer
            self._drop()
            request.promise.fail(translate(error))
        else:
            request.answer(answer, self._context)
        finally:
            if self._is_closed:
                self._drop()

    def _ask(self, request: Request[float], patience: float) -> Any:
        if self._is_closed:
            raise client_closed()
        if self._context.failure:
            self._drop()
            raise SessionLost(SERVICE, self._context.failure)
        is_new = self._connection is None
        if (connection := self._connection) is None:
            connection = self._connection = self._servers.connect()
        data = request.command(self._context, connection)
        if self._replicas:
            seconds = min(patience, self._servers.timeout / 2)
            data += packed("WAIT", self._replicas, max(1, int(seconds * 1000)))
        try:
            connection.socket.settimeout(min(patience, self._servers.timeout))
            connection.socket.sendall(data)
            answer = connection.receive()
            copies = connection.receive() if self._replicas else 0
        except BROKEN as error:
            self._drop()
            if not is_new and isinstance(error, _CLOSED):
                return self._ask(request, patience)
            raise translate(error, connection.where) from None
        if copies < self._replicas and answer[0] == b"ok":
            raise not_copied(copies, self._replicas)
        return answer

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
