"""Requests of a client: one after the other, over one connection, from a thread of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from psycopg import Connection, errors
from psycopg.types.json import Jsonb

from coordlock.errors import BackendError, ClientClosed, CoordlockError
from coordlock.runtime.clock import Timers
from coordlock.runtime.promise import Promise, failed
from coordlock.runtime.worker import Worker
from coordlock_postgresql.access import Server, interrupt
from coordlock_postgresql.errors import client_closed, translate

__all__ = ["Requests"]

T = TypeVar("T")

#: Seconds without requests after which the thread ends. The connection stays.
_IDLE_S: Final = 5.0
#: How often a request is repeated that the server has rolled back.
_REPETITIONS: Final = 10
_ROLLED_BACK: Final = (errors.SerializationFailure, errors.DeadlockDetected)


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
        self._connection: Connection[Any] | None = None
        self._is_closed = False

    def ask(
        self,
        verb: str,
        arguments: Mapping[str, object],
        read: Callable[[int, Any], T],
        patience: float,
    ) -> Promise[T]:
        """What ``read`` makes of the revision and the answer, which has ``patience`` seconds."""
        if self._is_closed:
            return failed(client_closed())
        promise: Promise[T] = Promise()

        def answer() -> None:
            try:
                promise.resolve(read(*self._answer(verb, arguments, patience)))
            except CoordlockError as error:
                promise.fail(error)
            except Exception as error:
                promise.fail(translate(error))

        self._worker.run(answer)
        return promise

    def close(self) -> Promise[None]:
        """Close once the waiting requests have answers. Together they have the time of one."""
        done: Promise[None] = Promise()
        self._is_closed = True

        def end() -> None:
            self._drop()
            timer.cancel()
            done.resolve(None)

        def give_up() -> None:
            self.interrupt()
            done.resolve(None)

        timer = self._timers.call_at(self._timers.clock.now() + self._server.timeout, give_up)
        self._worker.run(end)
        self._worker.end()
        return done

    def interrupt(self) -> None:
        """Let the request fail that is under way."""
        if (connection := self._connection) is not None:
            interrupt(connection)

    def _answer(self, verb: str, arguments: Mapping[str, object], patience: float) -> Any:
        timer = None
        try:
            if self._connection is None:
                self._connection = self._server.connect()
            with suppress(ClientClosed):
                when = self._timers.clock.now() + patience
                timer = self._timers.call_at(when, self.interrupt)
            statement = f"CALL coordlock.request('{verb}', %s)".encode()
            for repetition in range(_REPETITIONS + 1):
                try:
                    given = Jsonb({**self._common, **arguments})
                    [[answer]] = self._connection.execute(statement, (given,))
                except _ROLLED_BACK:
                    if repetition == _REPETITIONS:
                        raise
                else:
                    revision, result, self._common["clock"] = answer
                    return revision, result
        finally:
            if timer is not None:
                timer.cancel()
            if self._connection is not None and self._connection.broken:
                self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(BackendError, OSError):
                connection.close()
