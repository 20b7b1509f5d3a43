"""Which server has the data, and a connection to it.

A client connects to one server at a time: the primary, or in a cluster the node that has the slot
of its root, because all keys of a root have the same hash tag.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from coordlock.errors import BackendError, BackendUnavailable
from coordlock.runtime.clock import Clock
from coordlock_redis.errors import SERVICE, translate

__all__ = ["Host", "Link", "Servers", "info", "packed"]

Host = tuple[str, int]

#: How often a node of a cluster may name another one that is to have the slot.
_MOVES: Final = 5
#: The oldest release.
_OLDEST: Final = (6, 2)


@dataclass(slots=True)
class Link:
    """A connection, and what the server said of itself when it was made.

    Attributes:
        run: names the server's process: another one after each restart.
        version: of the server, or of the Redis that it is compatible with.
        is_encrypted: by TLS.
        started: not before it started or became the primary, in microseconds of its own clock.
    """

    connection: Any
    where: str
    run: bytes
    version: tuple[int, ...]
    is_cluster: bool
    started: int
    is_encrypted: bool

    @property
    def socket(self) -> Any:
        """The socket, to wait for what comes; None once it is closed."""
        return self.connection._sock  # there is no public name before redis-py 8

    def send(self, commands: Sequence[tuple[Any, ...]]) -> None:
        """Send all of ``commands`` at once."""
        self.socket.sendall(packed(commands))

    def send_now(self, data: bytes) -> int:
        """Send what can be sent without waiting, and say how much that is.

        Nothing over TLS, where it cannot be told.
        """
        if self.is_encrypted or os.name != "posix":
            return 0
        try:
            return os.write(self.socket.fileno(), data)
        except BlockingIOError:
            return 0

    def receive(self) -> Any:
        """The next answer, as bytes; raises redis-py's errors.

        It closes nothing: another thread may be about to write to the descriptor.
        """
        return self.connection.read_response(disable_decoding=True, disconnect_on_error=False)

    def has_more(self) -> bool:
        """Whether there is something to read now, be it the end of the connection."""
        try:
            return bool(self.connection.can_read(0))
        except (exceptions.ConnectionError, OSError):
            return True

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self.connection.disconnect()


@dataclass(frozen=True)
class Servers:
    """Where to look for the server.

    Attributes:
        hosts: of Redis, or of Sentinels where ``sentinel`` names the primary.
        path: the socket, instead of hosts.
        arguments: what every connection to Redis is made with, for redis-py.
        sentinel_arguments: the same for Sentinels.
        tls: whether connections are encrypted.
        key: whose slot counts in a cluster.
    """

    hosts: Sequence[Host]
    key: bytes
    timeout: float
    clock: Clock
    path: str | None = None
    sentinel: str | None = None
    tls: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sentinel_arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """What is connected to, for people."""
        return (self.path,) if self.path else tuple(f"{host}:{port}" for host, port in self.hosts)

    def connection(self, host: Host, patience: float) -> Any:
        """A connection of redis-py to ``host``, whatever that is; not connected yet.

        It waits for ``patience`` seconds to connect, and for each answer.
        """
        arguments = {**self.arguments, "socket_timeout": patience}
        return self._connection(host, arguments, self.clock.now() + patience)

    def connect(self) -> Link:
        """A connection to the primary. Blocks; raises coordlock's errors alone."""
        refusal: BackendError | None = None
        deadline = self.clock.now() + self.timeout
        for host in self._candidates(deadline):
            try:
                return self._follow(host, deadline)
            except BackendError as error:
                # The answer of a server tells more than the silence of the next one.
                if refusal is None or isinstance(refusal, BackendUnavailable):
                    refusal = error
        raise refusal or BackendUnavailable(SERVICE, "no host is known")

    def _candidates(self, deadline: float) -> Iterator[Host | None]:
        if self.path:
            yield None
        elif self.sentinel is None:
            yield from self.hosts
        else:
            yield from self._ask_sentinels(self.sentinel, deadline)

    def _ask_sentinels(self, name: str, deadline: float) -> Iterator[Host]:
        """What each Sentinel names: one that was cut off may name an earlier primary."""
        failure: BackendError | None = None
        named: list[Host] = []
        for host in self.hosts:
            connection = self._connection(host, self.sentinel_arguments, deadline)
            try:
                connection.connect()
                connection.send_command("SENTINEL", "get-master-addr-by-name", name)
                found = connection.read_response(disable_decoding=True)
            except (exceptions.RedisError, OSError) as error:
                failure = translate(error, f"Sentinel {host[0]}:{host[1]}")
                continue
            finally:
                connection.disconnect()
            if not found:
                reason = f"the Sentinel {host[0]}:{host[1]} knows no primary {name!r}"
                failure = BackendUnavailable(SERVICE, reason)
            elif (primary := (found[0].decode(), int(found[1]))) not in named:
                named.append(primary)
                yield primary
        if failure is not None and not named:
            raise failure

    def _follow(self, host: Host | None, deadline: float) -> Link:
        for _ in range(_MOVES):
            where = self.path if host is None else f"{host[0]}:{host[1]}"
            assert where is not None
            connection = self._connection(host, self.arguments, deadline)
            try:
                return self._greet(connection, where)
            except exceptions.MovedError as moved:
                host = (moved.host or (host[0] if host else ""), int(moved.port))
            except (exceptions.RedisError, OSError, ValueError) as error:
                raise translate(error, where) from None
        raise BackendUnavailable(SERVICE, "each node of the cluster names another one")

    def _greet(self, connection: Any, where: str) -> Link:
        try:
            connection.connect()
            commands: list[tuple[str | bytes, ...]]
            commands = [("INFO", "server"), ("INFO", "replication"), ("TIME",)]
            commands.append(("EXISTS", self.key))
            connection.send_packed_command(connection.pack_commands(commands))
            answers: list[Any] = []
            for _ in commands:
                try:
                    answers.append(connection.read_response(disable_decoding=True))
                except exceptions.ResponseError as error:
                    answers.append(error)
            link = _link(connection, where, answers)
        except BaseException:
            connection.disconnect()
            raise
        return link

    def _connection(self, host: Host | None, arguments: Mapping[str, Any], deadline: float) -> Any:
        left = max(0.05, min(self.timeout, deadline - self.clock.now()))
        common = {
            "socket_timeout": self.timeout,
            **arguments,
            "socket_connect_timeout": left,
            "retry": Retry(NoBackoff(), 0),  # the kernel knows what may be sent twice
            "protocol": 2,
        }
        if host is None:
            unix: Any = UnixDomainSocketConnection
            return unix(path=self.path or "", **common)
        kind = SSLConnection if self.tls else Connection
        return kind(host=host[0], port=host[1], **common)


def _link(connection: Any, where: str, answers: list[Any]) -> Link:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    server, replication, time, _ = answers
    fields = info(server) | info(replication)
    version = tuple(int(part) for part in re.findall(r"\d+", fields.get("redis_version", ""))[:3])
    if version < _OLDEST:
        shown = fields.get("redis_version") or "a server that tells no version"
        raise BackendError(SERVICE, f"{where}: coordlock needs Redis 6.2 or later, not {shown}")
    if fields.get("role", "master") != "master":
        primary = f"{fields.get('master_host')}:{fields.get('master_port')}"
        raise BackendUnavailable(
            SERVICE, f"{where} is a replica, and its primary is {primary}: give that one's address"
        )
    now = int(time[0]) * 1_000_000 + int(time[1])
    started = now - int(fields.get("uptime_in_seconds", 0)) * 1_000_000
    if fields.get("second_repl_offset", "-1") != "-1":
        started = now  # it was promoted some time ago, perhaps a moment
    return Link(
        connection,
        where,
        fields["run_id"].encode(),
        version,
        fields.get("redis_mode", fields.get("server_mode")) == "cluster",  # the latter is Valkey's
        started,
        isinstance(connection, SSLConnection),
    )


def packed(commands: Sequence[tuple[Any, ...]]) -> bytes:
    """``commands`` as Redis takes them. redis-py takes five times as long for that."""
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for word in command:
            data = word if type(word) is bytes else str(word).encode()
            parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def info(text: bytes) -> dict[str, str]:
    """The fields of an answer to ``INFO``."""
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines}
