"""Which server has the data, and a connection to it.

A client connects to one server at a time: the primary, or in a cluster the node that has the slot
of its root, because all keys of a root have the same hash tag.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hiredis import Reader
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from coordlock.errors import BackendError, BackendUnavailable
from coordlock.runtime.clock import Clock
from coordlock_redis.errors import SERVICE, translate

__all__ = ["BROKEN", "Host", "Link", "Servers", "Word", "encoded", "info", "packed"]

Host = tuple[str, int]
#: Of a command.
Word = bytes | str | int

#: What reading and writing a connection raise.
BROKEN: Final = (exceptions.RedisError, OSError, ValueError, AttributeError)
#: How often a node of a cluster may name another one that is to have the slot.
_MOVES: Final = 5
#: The oldest release.
_OLDEST: Final = (6, 2)
#: Of Redis, which hosts without one get, Sentinels as well.
_USUAL_PORT: Final = 6379
#: How many bytes are read at once.
_CHUNK: Final = 1 << 16


@dataclass(slots=True)
class Link:
    """A connection, and what the server said of itself when it was made.

    Attributes:
        run: names the server's process: another one after each restart.
        version: of the server, or of the Redis that it is compatible with.
        is_encrypted: by TLS.
        is_direct: whether the descriptor can be written and read without waiting.
        number: of the descriptor. It may be another's once the connection is closed, which the
            thread for I/O does.
        started: not before it started or became the primary, in microseconds of its own clock.
    """

    connection: Any
    where: str
    run: bytes
    version: tuple[int, ...]
    is_cluster: bool
    started: int
    is_encrypted: bool
    is_direct: bool = field(init=False)
    number: int = field(init=False)
    #: What requests to it begin with, for `Header`.
    beginnings: dict[object, tuple[int, bytes]] = field(default_factory=dict)
    #: Called before it is closed.
    leave: Callable[[], object] | None = None
    _reader: Reader = field(init=False)
    _ready: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_direct = not self.is_encrypted and os.name == "posix"
        self.number = self.socket.fileno()
        # redis-py's own parser takes several times as long.
        error = self.connection._parser.parse_error
        self._reader = Reader(protocolError=ValueError, replyError=error)

    @property
    def socket(self) -> Any:
        """The socket, to wait for what comes; None once it is closed."""
        return self.connection._sock  # there is no public name before redis-py 8

    def send(self, *commands: Sequence[Word]) -> None:
        """Send all of ``commands`` at once."""
        self.socket.sendall(b"".join([packed(*one) for one in commands]))

    def read(self) -> list[Any]:
        """The answers that have come, as bytes; an error is one of them.

        It waits only where there is nothing to read and it is not `is_direct`.
        """
        if not self._ready:
            self._fill()
        while self.is_encrypted and self.socket.pending():
            self._fill()
        found, self._ready = self._ready, []
        return found

    def receive(self) -> Any:
        """Wait for the next answer, as bytes; raises redis-py's errors."""
        while not self._ready:
            self._fill(waits=True)
        answer = self._ready.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _fill(self, *, waits: bool = False) -> None:
        try:
            if waits or not self.is_direct:
                data = self.socket.recv(_CHUNK)
            else:
                data = os.read(self.number, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            raise exceptions.ConnectionError("the server closed the connection")
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not False:
            self._ready.append(answer)

    def has_more(self) -> bool:
        """Whether `read` has something that no selector tells of."""
        return bool(self._ready or (self.is_encrypted and self.socket.pending()))

    def close(self) -> None:
        """Close the socket. Idempotent."""
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()
        self.connection.disconnect()


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
    """

    hosts: Sequence[Host]
    key: bytes
    timeout: float
    clock: Clock
    path: str | None = None
    sentinel: str | None = None
    tls: bool = False
    sentinel_tls: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sentinel_arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: The host that led to the primary last.
    _answered: Host | None = field(default=None, init=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """What is connected to, for people."""
        return (self.path,) if self.path else tuple(f"{host}:{port}" for host, port in self.hosts)

    def connection(self, host: Host, patience: float) -> Any:
        """A connection of redis-py to ``host``, whatever that is; not connected yet.

        It waits for ``patience`` seconds to connect, and for each answer.
        """
        return self._connection(host, self.arguments, self.clock.now() + patience, self.tls)

    def connect(self) -> Link:
        """A connection to the primary. Blocks; raises coordlock's errors alone."""
        refusal: BackendError | None = None
        for asked, host, deadline in self._candidates(self.clock.now() + self.timeout):
            try:
                link = self._follow(host, deadline)
            except BackendError as error:
                # The answer of a server tells more than the silence of the next one.
                if refusal is None or isinstance(refusal, BackendUnavailable):
                    refusal = error
            else:
                self._answered = asked
                return link
        raise refusal or BackendUnavailable(SERVICE, "no host is known")

    def _candidates(self, deadline: float) -> Iterator[tuple[Host | None, Host | None, float]]:
        """For each try: the host to remember, the host to connect to, and until when it may answer.

        Without a host, the socket's path.
        """
        if self.path:
            yield None, None, deadline
        elif self.sentinel is None:
            for host, until in self._shares(deadline):
                yield host, host, until
        else:
            yield from self._ask_sentinels(self.sentinel, deadline)

    def _shares(self, deadline: float) -> Iterator[tuple[Host, float]]:
        """Each host, and until when it may answer: one that is silent must not cost the others.

        The first is the one that answered last.
        """
        hosts = sorted(self.hosts, key=lambda host: host != self._answered)
        for number, host in enumerate(hosts):
            now = self.clock.now()
            yield host, now + (deadline - now) / (len(hosts) - number)

    def _ask_sentinels(self, name: str, deadline: float) -> Iterator[tuple[Host, Host, float]]:
        """What each Sentinel names: one that was cut off may name an earlier primary."""
        failure: BackendError | None = None
        named: list[Host] = []
        for host, until in self._shares(deadline):
            try:
                found = self._ask_sentinel(host, name, until)
            except Exception as error:
                where = f"Sentinel {host[0]}:{host[1]}"
                if host[1] == _USUAL_PORT:
                    where += " (a Sentinel's port is usually 26379)"
                failure = translate(error, where, is_plain=not self.sentinel_tls)
                continue
            if not found:
                reason = f"the Sentinel {host[0]}:{host[1]} knows no primary {name!r}"
                failure = BackendUnavailable(SERVICE, reason)
            elif (primary := (found[0].decode(), int(found[1]))) not in named:
                named.append(primary)
                # Half of the time, because the other Sentinels may name another one.
                now = self.clock.now()
                yield host, primary, (now + deadline) / 2 if len(self.hosts) > 1 else deadline
        if failure is not None and not named:
            raise failure

    def _ask_sentinel(self, host: Host, name: str, deadline: float) -> Any:
        arguments, tls = self.sentinel_arguments, self.sentinel_tls
        connection = self._connection(host, arguments, deadline, tls)
        try:
            connection.connect()
            connection.send_command("SENTINEL", "get-master-addr-by-name", name)
            return connection.read_response(disable_decoding=True)
        finally:
            connection.disconnect()

    def _follow(self, host: Host | None, deadline: float) -> Link:
        for _ in range(_MOVES):
            where = self.path if host is None else f"{host[0]}:{host[1]}"
            assert where is not None
            try:
                connection = self._connection(host, self.arguments, deadline, self.tls)
                return self._greet(connection, where)
            except exceptions.MovedError as moved:
                host = (moved.host or (host[0] if host else ""), int(moved.port))
            except BackendError:
                raise
            except (exceptions.RedisError, OSError, ValueError) as error:
                raise translate(error, where, is_plain=not self.tls) from None
            except Exception as error:
                raise translate(error, where) from error
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
            self._check(link)
            link.socket.settimeout(self.timeout)
        except BaseException:
            connection.disconnect()
            raise
        return link

    def _check(self, link: Link) -> None:
        """Refuse one of several servers that know nothing of each other.

        If another client reached another one, two would hold a lock.
        """
        if self.sentinel is None and len(set(self.hosts)) > 1 and not link.is_cluster:
            raise BackendError(
                SERVICE,
                f"{link.where} is no node of a cluster, and several hosts must be nodes of one: "
                "for a primary and its replicas, give the Sentinels as hosts and ?sentinel=NAME",
            )

    def _connection(
        self, host: Host | None, arguments: Mapping[str, Any], deadline: float, tls: bool
    ) -> Any:
        left = max(0.05, min(self.timeout, deadline - self.clock.now()))
        common = {
            **arguments,
            "socket_connect_timeout": left,
            "socket_timeout": left,
            "retry": Retry(NoBackoff(), 0),  # the kernel knows what may be sent twice
            "protocol": 2,
        }
        if host is None:
            unix: Any = UnixDomainSocketConnection
            return unix(path=self.path or "", **common)
        if tls:
            # Else OpenSSL asks for it on the terminal.
            common = {"ssl_password": "", **common}
        kind = SSLConnection if tls else Connection
        return kind(host=host[0], port=host[1], **common)


def _link(connection: Any, where: str, answers: list[Any]) -> Link:
    if isinstance(answers[0], bytes) and _mode(info(answers[0])) == "sentinel":
        raise BackendError(
            SERVICE, f"{where} is a Sentinel: give the primary's name as well, as ?sentinel=NAME"
        )
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
    if not (run := fields.get("run_id")):
        raise BackendError(
            SERVICE,
            f"{where} tells no run_id, by which coordlock notices that Redis has lost its data: "
            "connect to Redis or Valkey itself, not to a proxy or another server",
        )
    now = int(time[0]) * 1_000_000 + int(time[1])
    # Both ends of that are whole seconds of its clock, so it may be almost one too long.
    uptime = int(fields.get("uptime_in_seconds", 0))
    started = now - max(0, uptime - 1) * 1_000_000
    if fields.get("second_repl_offset", "-1") != "-1":
        started = now  # it was promoted some time ago, perhaps a moment
    return Link(
        connection,
        where,
        run.encode(),
        version,
        _mode(fields) == "cluster",
        started,
        isinstance(connection, SSLConnection),
    )


def _mode(fields: Mapping[str, str]) -> str | None:
    return fields.get("redis_mode", fields.get("server_mode"))  # the latter is Valkey's


def packed(*words: Word) -> bytes:
    """The command of these ``words`` as Redis takes it."""
    return b"*%d\r\n%b" % (len(words), encoded(words))


def encoded(words: Sequence[Word]) -> bytes:
    """A part of a command. redis-py takes five times as long for that.

    Queues of coordlock's own have names with lone surrogates.
    """
    parts: list[bytes] = []
    for word in words:
        if isinstance(word, str):
            text = word.encode("utf-8", "surrogatepass")
        else:
            text = word if isinstance(word, bytes) else b"%d" % word
        count = len(text)
        parts += (_COUNTS[count] if count < len(_COUNTS) else b"$%d\r\n" % count, text, b"\r\n")
    return b"".join(parts)


#: Looked up in half the time that it takes to format them.
_COUNTS: Final = [b"$%d\r\n" % count for count in range(512)]


def info(text: bytes) -> dict[str, str]:
    """The fields of an answer to ``INFO``."""
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines}
