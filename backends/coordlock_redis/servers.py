"""Which server has the data, and a connection to it.

A client connects to one server at a time: the primary, or in a cluster the node that has the slot
of its root, because all keys of a root have the same hash tag.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from hiredis import Reader, pack_command
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection as TCPConnection
from redis.connection import SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from coordlock.errors import BackendError, BackendUnavailable
from coordlock.runtime.clock import Clock
from coordlock_redis.errors import SERVICE, translate

__all__ = ["BROKEN", "Connection", "Host", "Servers", "Word", "info", "packed"]

Host = tuple[str, int]
#: Of a command.
Word = bytes | str | int

#: Its own types allow one word alone.
_pack: Final[Callable[[tuple[Word, ...]], bytes]] = cast("Any", pack_command)

#: What reading and writing a connection raise.
BROKEN: Final = (exceptions.RedisError, OSError, ValueError, AttributeError)
#: How often a node of a cluster may name another one that is to have the slot.
_MOVES: Final = 5
#: The oldest release.
_OLDEST: Final = (6, 2)
#: How many bytes are read at once.
_CHUNK: Final = 1 << 16
#: What a socket raises that does not wait; of TLS also where a part of a record has come.
_WOULD_WAIT: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(eq=False, slots=True)
class Connection:
    """A connection, and what the server said of itself when it was made.

    Attributes:
        run: names the server's process: another one after each restart.
        is_encrypted: by TLS.
        started: not before it started or became the primary, in microseconds of its own clock.
        digest: names the script, which the server has loaded.
        socket: where its answers arrive. It blocks until `setblocking` is called.
    """

    _redis_py: Any
    where: str
    is_encrypted: bool
    run: bytes = b""
    is_cluster: bool = False
    started: int = 0
    digest: bytes = b""
    socket: Any = field(init=False)
    _reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        self.socket = self._redis_py._sock  # there is no public name before redis-py 8
        # redis-py's own parser takes several times as long.
        error = self._redis_py._parser.parse_error
        self._reader = Reader(protocolError=ValueError, replyError=error)

    def ask(self, *commands: Sequence[Word]) -> Iterator[Any]:
        """The answers to all of ``commands``, as bytes. Blocks; raises redis-py's errors."""
        self.socket.sendall(b"".join([packed(*command) for command in commands]))
        found: list[Any] = []
        for _ in commands:
            while not found:
                found += self.read()
            if isinstance(answer := found.pop(0), Exception):
                raise answer
            yield answer

    def read(self) -> list[Any]:
        """The answers that have come, as bytes; an error is one of them.

        It waits for one if the socket blocks. Of TLS, it reads all that poll does not know of: a
        record has 16 KB at most.
        """
        try:
            data = self.socket.recv(_CHUNK)
        except _WOULD_WAIT:
            return []
        if not data:
            raise exceptions.ConnectionError("the server closed the connection")
        self._reader.feed(data)
        found: list[Any] = []
        while (answer := self._reader.gets()) is not False:  # which 0 equals
            found.append(answer)
        return found

    def write(self, data: bytes) -> int:
        """How many bytes of ``data`` could be sent. For the thread for I/O."""
        try:
            return int(self.socket.send(data))
        except _WOULD_WAIT:
            return 0

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._redis_py.disconnect()


@dataclass
class Servers:
    """Where to look for the server.

    Attributes:
        hosts: of Redis, or of Sentinels where ``sentinel`` names the primary.
        path: the socket, instead of hosts.
        arguments: what every connection to Redis is made with, for redis-py.
        sentinel_arguments: the same for Sentinels.
        tls: whether connections to Redis are encrypted.
        sentinel_tls: the same for Sentinels.
        key: whose slot counts in a cluster.
        script: what requests run; each connection begins with loading it.
    """

    hosts: Sequence[Host]
    key: bytes
    timeout: float
    clock: Clock
    script: bytes
    path: str | None = None
    sentinel: str | None = None
    tls: bool = False
    sentinel_tls: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sentinel_arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Which server's process was reached last; all connections of a client go there.
    run: bytes = field(default=b"", init=False, repr=False)
    #: The host that led to the primary last.
    _answered: Host | None = field(default=None, init=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """What is connected to, for people."""
        return (self.path,) if self.path else tuple(f"{host}:{port}" for host, port in self.hosts)

    def connect(self, patience: float | None = None) -> Connection:
        """A connection to the primary. Blocks; raises coordlock's errors alone.

        It gives up after ``patience`` seconds, or the ``timeout``.
        """
        refusal: BackendError | None = None
        patience = self.timeout if patience is None else patience
        deadline = self.clock.now() + patience
        for host, until in self._candidates(deadline):
            try:
                connection = self._follow(host, until)
            except BackendError as error:
                # The answer of a server is worth more than the silence of the next one.
                if refusal is None or isinstance(refusal, BackendUnavailable):
                    refusal = error
            else:
                if self.sentinel is None:
                    self._answered = host
                self.run = connection.run
                return connection
        raise refusal or BackendUnavailable(SERVICE, "no host is known")

    def _candidates(self, deadline: float) -> Iterator[tuple[Host | None, float]]:
        """Each host to try, and until when it may answer, so that the others have time left.

        Without a host, the socket's path.
        """
        if self.path:
            yield None, deadline
        elif self.sentinel is not None:
            patience = deadline - self.clock.now()
            yield self._discovered(self.sentinel, patience), deadline
        else:
            hosts = self._hosts()
            for number, host in enumerate(hosts):
                now = self.clock.now()
                yield host, now + (deadline - now) / (len(hosts) - number)

    def _hosts(self) -> list[Host]:
        """All hosts; the first is the one that answered last."""
        return sorted(self.hosts, key=lambda host: host != self._answered)

    def _discovered(self, name: str, patience: float) -> Host:
        """The primary, as the first Sentinel names it that answers and sees it up."""
        arguments = self._arguments(self.sentinel_arguments, patience / len(self.hosts))
        kind: Any = Sentinel  # it has no types
        sentinel = kind(self._hosts(), sentinel_kwargs={**arguments, "ssl": self.sentinel_tls})
        where = ", ".join(self.names)
        try:
            host, port = sentinel.discover_master(name)
        except MasterNotFoundError as error:
            _, _, details = str(error).partition(" : ")
            raise BackendUnavailable(
                SERVICE,
                f"no Sentinel of {where} knows a primary {name!r} that it can reach"
                + (f" (a Sentinel's port is usually 26379): {details}" if details else ""),
            ) from None
        except Exception as error:
            raise translate(error, where, is_plain=not self.sentinel_tls) from None
        finally:
            for client in sentinel.sentinels:
                client.close()
        answered = sentinel.sentinels[0].connection_pool.connection_kwargs
        self._answered = answered["host"], answered["port"]
        return str(host), int(port)

    def _follow(self, host: Host | None, deadline: float) -> Connection:
        for _ in range(_MOVES):
            kind: Any = UnixDomainSocketConnection
            where, place = str(self.path), dict[str, Any](path=self.path)
            if host is not None:
                kind = SSLConnection if self.tls else TCPConnection
                where, place = f"{host[0]}:{host[1]}", {"host": host[0], "port": host[1]}
            arguments = self._arguments({**self.arguments, **place}, deadline - self.clock.now())
            try:
                opened = kind(**arguments)
                return self._greet(opened, where)
            except exceptions.MovedError as moved:
                host = (moved.host or (host[0] if host else ""), int(moved.port))
            except BackendError:
                raise
            except (exceptions.RedisError, OSError, ValueError) as error:
                raise translate(error, where, is_plain=not self.tls) from None
            except Exception as error:
                raise translate(error, where) from error
        raise BackendUnavailable(SERVICE, "each node of the cluster names another one")

    def _greet(self, opened: Any, where: str) -> Connection:
        try:
            opened.connect()
            connection = Connection(opened, where, isinstance(opened, SSLConnection))
            answers = connection.ask(
                *(("INFO", "server"), ("INFO", "replication"), ("TIME",)),
                *(("SCRIPT", "LOAD", self.script), ("EXISTS", self.key)),
            )
            _learn(connection, answers)
            self._check(connection)
        except BaseException:
            opened.disconnect()
            raise
        return connection

    def _check(self, connection: Connection) -> None:
        """Refuse one of several servers that know nothing of each other.

        If another client reached another one, two would hold a lock.
        """
        if self.sentinel is None and len(set(self.hosts)) > 1 and not connection.is_cluster:
            raise BackendError(
                SERVICE,
                f"{connection.where} is no node of a cluster, and several hosts must be nodes of "
                "one. For a primary and its replicas, give the Sentinels as hosts and "
                "?sentinel=NAME",
            )

    def _arguments(self, given: Mapping[str, Any], patience: float) -> dict[str, Any]:
        # Else OpenSSL asks for the pass phrase of an encrypted key on the terminal.
        password = {"ssl_password": ""} if any(name.startswith("ssl_") for name in given) else {}
        patience = max(0.05, min(self.timeout, patience))
        return {
            **password,
            **given,
            "socket_connect_timeout": patience,
            "socket_timeout": patience,
            "retry": Retry(NoBackoff(), 0),  # the kernel knows what may be sent twice
            "protocol": 2,
        }


def _learn(connection: Connection, answers: Iterator[Any]) -> None:
    """Take the ``answers`` to what a connection begins with; refuse a server that can't be used."""
    where = connection.where
    fields = info(next(answers))
    if _mode(fields) == "sentinel":
        raise BackendError(
            SERVICE, f"{where} is a Sentinel: give the primary's name as well, as ?sentinel=NAME"
        )
    fields |= info(next(answers))
    time, digest, _ = answers
    version = tuple(int(part) for part in re.findall(r"\d+", fields.get("redis_version", ""))[:3])
    if version < _OLDEST:
        shown = fields.get("redis_version") or "a server of unknown version"
        raise BackendError(SERVICE, f"{where}: coordlock needs Redis 6.2 or later, not {shown}")
    if fields.get("role", "master") != "master":
        primary = f"{fields.get('master_host')}:{fields.get('master_port')}"
        raise BackendUnavailable(
            SERVICE, f"{where} is a replica, and its primary is {primary}: give that one's address"
        )
    if not (run := fields.get("run_id")):
        raise BackendError(
            SERVICE,
            f"{where} gives no run_id, by which coordlock notices that Redis has lost its data: "
            "connect to Redis or Valkey itself, not to a proxy or another server",
        )
    now = int(time[0]) * 1_000_000 + int(time[1])
    # Both ends of that are whole seconds of its clock, so it may be almost one too long.
    uptime = int(fields.get("uptime_in_seconds", 0))
    started = now - max(0, uptime - 1) * 1_000_000
    if fields.get("second_repl_offset", "-1") != "-1":
        started = now  # it was promoted some time ago, perhaps a moment
    connection.run, connection.is_cluster = run.encode(), _mode(fields) == "cluster"
    connection.started, connection.digest = started, digest


def _mode(fields: Mapping[str, str]) -> str | None:
    return fields.get("redis_mode", fields.get("server_mode"))  # the latter is Valkey's


def packed(*words: Word) -> bytes:
    """The command of these ``words`` as Redis takes it."""
    try:
        return _pack(words)
    except UnicodeEncodeError:  # queues of coordlock's own have names with lone surrogates
        encoded = (
            word.encode("utf-8", "surrogatepass") if isinstance(word, str) else word
            for word in words
        )
        return _pack(tuple(encoded))


def info(text: bytes) -> dict[str, str]:
    """The fields of an answer to ``INFO``."""
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines}
