"""The kazoo client that the backend makes for one session: the usual `SessionClient`."""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, KazooException
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock_zookeeper.access import Access
from coordlock_zookeeper.connection import Connection
from coordlock_zookeeper.handler import Handler

__all__ = ["OwnClient"]

log = Log("coordlock.zookeeper")

# Pauses between rounds of attempts to reconnect: they double from the first to the longest.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# Seconds that closing waits for the server's farewell before it hangs up.
_GRACE: Final = 2.0
# How often it looks whether a new connection is there.
_LOOK: Final = 0.01
# States in which kazoo collects requests.
_USABLE: Final = {KeeperState.CONNECTED, KeeperState.CONNECTED_RO, KeeperState.CONNECTING}


class OwnClient:
    """A client of our own that lives for one session.

    When a session has expired, kazoo starts another by itself. A request sent in that moment would
    belong to the new session, and no caller would know of its znode. So the client ends with its
    first session, and takes such znodes along.
    """

    shared = False

    def __init__(self, access: Access, clock: Clock) -> None:
        self._log = _KazooLog()
        seconds = min(access.connect_timeout, access.ttl)
        self._handler = Handler(seconds, access.tls, clock)
        self.client = KazooClient(
            hosts=access.hosts,
            timeout=access.ttl,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_FIRST_PAUSE,
                max_delay=_LONGEST_PAUSE,
                sleep_func=self._handler.sleep_func,
            ),
            auth_data=[("digest", access.digest)] if access.digest else None,
            sasl_options=access.sasl,
            logger=self._log,
        )
        given = self.client._connection
        self.client._connection = self._handler.connection = Connection(
            self.client, given.retry_sleeper, given.logger, given.sasl_options
        )

    def start(self, connected: Callable[[], None], failed: Callable[[str], None]) -> None:
        self._handler.failed = failed

        def changed(state: str) -> bool:
            if state == KazooState.CONNECTED:
                connected()
            return True  # kazoo drops the listener

        self.client.add_listener(changed)
        self.client.start_async()

    def call(self, request: Any, answer: Any) -> None:
        # As kazoo's client, whose `_call` may block, and loses a request when Ctrl-C strikes it.
        if self.client._state in _USABLE:
            self.client._queue.append((request, answer))
            self._handler.connection.announce()
        if self.client._state not in _USABLE:  # perhaps it has been closed meanwhile
            answer.set_exception(ConnectionClosedError())

    def crash(self) -> BaseException | None:
        return self._log.crash

    def ttl(self) -> float:
        # May change when the client reconnects to another server.
        return self._handler.negotiated

    def born(self) -> float:
        # The session is asked for after dialling.
        return self._handler.dialled

    def stop(self) -> None:
        client, connection = self.client, self._handler.connection
        # Without a connection, as after Ctrl-C, it waits for the next one to close the session.
        until = time.monotonic() + _GRACE
        while client._session_id and not connection.is_live and time.monotonic() < until:
            time.sleep(_LOOK)
        try:
            # As kazoo's `stop`, which would wait for 10 s at least. Without a connection there is
            # no farewell to wait for.
            grace = _GRACE if client.connected else 0.0
            client._stopped.set()
            client._queue.append((CloseInstance, None))
            connection.wake()
            connection.connection_stopped.wait(grace)
            self._handler.abort()
            client._safe_close()
            client.close()
        except Exception as error:
            log.warning("closing a ZooKeeper client failed: %s", error)

    def dial(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._handler.dial((host, port), host, timeout)


class _KazooLog(Log):
    """Where one kazoo client logs: errors only unless told otherwise, and never debug messages.

    Those show whole requests, passwords among them.
    """

    def __init__(self) -> None:
        super().__init__(f"{log.name}.kazoo")
        self.crash: BaseException | None = None
        if self.logger.level == logging.NOTSET:
            self.logger.setLevel(logging.ERROR)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        return level >= logging.INFO and super().isEnabledFor(level)

    #: kazoo's word for it.
    warn = Log.warning

    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Keep the error that the I/O thread is about to die of."""
        self.crash = error = sys.exc_info()[1]
        # What the service or the network does is told to the owner of the session.
        if not isinstance(error, KazooException):
            super().exception(msg, *args, **kwargs)
