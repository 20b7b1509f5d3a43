"""The connection that listens, and whether what it should receive arrives.

Transaction poolers accept LISTEN, and nothing ever arrives. So after each connect, another
connection of the client sends it a message, and nothing counts as listening before that has come.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any, Final, Protocol

import psycopg
from psycopg import Connection, sql

from coordlock.backend.poll import ready
from coordlock.errors import BackendError
from coordlock.runtime.clock import Timers
from coordlock.runtime.log import Log
from coordlock.runtime.process import THREAD
from coordlock_postgresql.access import Server
from coordlock_postgresql.errors import SERVICE, translate

__all__ = ["ARRIVAL_S", "PROBE", "Listening", "NewsListener"]

log = Log("coordlock")

#: The message by which a connection is tried.
PROBE: Final = "probe"
#: Seconds before another connection after one that was lost, at most.
RECONNECT_DELAY_S: Final = 0.5
#: Seconds within which the first message should arrive.
ARRIVAL_S: Final = 2.0


class NewsListener(Protocol):
    """Called by the thread that listens."""

    def on_listening(self) -> None:
        """The connection listens: send it `PROBE`."""

    def on_live(self) -> None:
        """From now on messages arrive."""

    def on_message(self, message: str) -> None:
        """A message came."""

    def on_silence(self, reason: str) -> None:
        """Messages may be missed from now on."""


class Listening:
    """A thread with a connection that listens on ``channel``, from `start` to `close`.

    Attributes:
        is_live: whether messages arrive.
        problem: why messages do not arrive, for people; empty where they do.
        tested: set once one of them is known.
    """

    def __init__(
        self, server: Server, channel: str, listener: NewsListener, timers: Timers
    ) -> None:
        self.is_live = False
        self.problem = ""
        self.tested: Final = threading.Event()
        self._server: Final = server
        self._channel: Final = channel
        self._listener: Final = listener
        self._timers: Final = timers
        self._lock: Final = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connection: Connection[Any] | None = None
        self._closed: Final = threading.Event()

    def start(self) -> None:
        """Begin; idempotent."""
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                name = "coordlock-postgresql-listening"
                self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread, soon."""
        self._closed.set()
        if (connection := self._connection) is None:
            return
        # What the thread waits for fails now. Only that thread may close the connection.
        with (
            suppress(psycopg.Error, OSError),
            socket.socket(fileno=os.dup(connection.fileno())) as copy,
        ):
            copy.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        THREAD.must_not_wait = True
        while not self._closed.is_set():
            try:
                connection = self._connection = self._server.connect(listens=True)
                try:
                    self._listen(connection)
                finally:
                    self._connection = None
                    connection.close()
            except (psycopg.Error, BackendError, OSError) as error:
                reason = translate(error).reason
                if not self._closed.is_set():
                    log.debug("%s: the connection that listens: %s", SERVICE, reason)
                self.problem = reason
                self.tested.set()
                was_live, self.is_live = self.is_live, False
                if was_live and not self._closed.is_set():
                    self._listener.on_silence(reason)
            except Exception:
                self.is_live = False
                log.exception("%s: the thread that listens failed", SERVICE)
            self._closed.wait(self._timers.jitter(RECONNECT_DELAY_S))

    def _listen(self, connection: Connection[Any]) -> None:
        if connection.info.server_version >= 140000:
            connection.execute("SET idle_session_timeout = 0")
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        self._listener.on_listening()
        # Not psycopg's own wait, which wakes up ten times a second.
        own = connection.pgconn
        while not self._closed.is_set():
            arrived = ready([connection], timeout=None if self.is_live else ARRIVAL_S)
            if arrived:
                own.consume_input()
            while (notice := own.notifies()) is not None:
                message = notice.extra.decode(errors="replace")
                if message != PROBE:
                    self._listener.on_message(message)
                elif not self.is_live:
                    self.is_live, self.problem = True, ""
                    self.tested.set()
                    self._listener.on_live()
            if not (arrived or self.is_live or self.problem):
                self.problem = (
                    "notifications do not arrive, as behind a pooler in transaction mode: locks "
                    "work, and clients look for departures every 20 ms to 1 s; to be notified, "
                    "give the server itself as listen=host:port"
                )
                self.tested.set()
                log.warning("%s: %s", SERVICE, self.problem)
