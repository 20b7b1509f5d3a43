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

__all__ = ["Connection", "Place", "Servers", "Word", "packed"]

#: A host and a port, or the path of a socket.
Place = tuple[str, int] | str
#: Of a command.
Word = bytes | str | int

#: Its own types allow one word alone.
_pack: Final[Callable[[tuple[Word, ...]], bytes]] = cast("Any", pack_command)

#: How often a node of a cluster may name another one that is to have the slot.
_MOVES: Final = 5
#: The oldest release.
_OLDEST: Final = (6, 2)
#: How many bytes are read at once.
_CHUNK: Final = 1 << 16
#: What a socket raises that must not wait.
_WOULD_WAIT: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
#: Stands for an answer that has not come.
_NOTHING: Final = object()


@dataclass(eq=False, slots=True)
class Connection:
    """A connection, and what the server said of itself when it was made.

    Attributes:
        socket: waits for answers, until it is set not to block.
        fields: what the server answers to ``INFO``.
        run: names the server's process: another one after each restart.
        started: not before it started or became the primary, in microseconds of its own clock.
        digest: names the script, which the server has loaded.
    """

    _redis_py: Any
    where: str
    fields: dict[str, str] = field(default_factory=dict)
    run: bytes = b""
    is_cluster: bool = False
    started: int = 0
    digest: bytes = b""
    socket: Any = field(init=False)
    is_encrypted: bool = field(init=False)
    _reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        self.socket = self._redis_py._sock  # there is no public name before redis-py 8
        self.is_encrypted = isinstance(self.socket, ssl.SSLSocket)
        # redis-py's own parser takes several times as long, and takes codes off errors.
        error = exceptions.ResponseError
        self._reader = Reader(ValueError, error, notEnoughData=_NOTHING)

    def read(self) -> list[Any]:
        """The answers that have come, as bytes; an error is one of them. For a readable socket."""
        try:
            self._fill()
            while self.is_encrypted:  # more than what its socket shows may have come
                self._fill()
        except _WOULD_WAIT:
            pass
        return list(iter(self._reader.gets, _NOTHING))

    def ask(self, *command: Word) -> Any:
        """The answer to ``command``. Blocks; raises redis-py's errors."""
        [answer] = self.ask_all(command)
        return answer

    def ask_all(self, *commands: Sequence[Word]) -> list[Any]:
        """The answers to ``commands``, which are sent at once."""
        self.socket.sendall(b"".join([packed(*command) for command in commands]))
        return [self._receive() for _ in commands]

    def _receive(self) -> Any:
        while (answer := self._reader.gets()) is _NOTHING:
            self._fill()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def write(self, data: bytes) -> int:
        """How many bytes of ``data`` could be sent without waiting."""
        try:
            return int(self.socket.send(data))
        except _WOULD_WAIT:
            return 0

    def _fill(self) -> None:
        if not (data := self.socket.recv(_CHUNK)):
            raise exceptions.ConnectionError("the server closed the connection")
        self._reader.feed(data)

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._redis_py.disconnect()


@dataclass
class Servers:
    """Where to look for the server.

    Attributes:
        key: whose slot counts in a cluster.
        timeout: seconds in which a connection must be made.
        script: what requests run; each connection begins with loading it.
        places: of Redis, or of Sentinels where ``sentinel`` names the primary.
        tls: whether connections to Redis are encrypted.
        arguments: what every connection to Redis is made with, for redis-py.
        sentinel_arguments: the same for Sentinels.
    """

    key: bytes
    timeout: float
    clock: Clock
    script: bytes
    places: Sequence[Place]
    sentinel: str | None = None
    tls: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sentinel_arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: What led to the primary last.
    _answered: Place | None = field(default=None, init=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """What is connected to, for people."""
        return tuple(map(_shown, self.places))

    def connect(self) -> Connection:
        """A connection to the primary. Blocks; raises coordlock's errors alone."""
        refusal: BackendError | None = None
        for place, until in self._candidates():
            try:
                connection = self._follow(place, until)
            except BackendError as error:
                # The answer of a server is worth more than the silence of the next one.
                if refusal is None or isinstance(refusal, BackendUnavailable):
                    refusal = error
            else:
                if self.sentinel is None:
                    self._answered = place
                return connection
        raise refusal or BackendUnavailable(SERVICE, "no host is known")

    def _candidates(self) -> Iterator[tuple[Place, float]]:
        """Each place to try, and until when it may answer, so that the others have time left."""
        deadline = self.clock.now() + self.timeout
        # First what answered last.
        places = sorted(self.places, key=lambda place: place != self._answered)
        if self.sentinel is not None:
            yield self._discovered(self.sentinel, places), deadline
            return
        for number, place in enumerate(places):
            now = self.clock.now()
            yield place, now + (deadline - now) / (len(places) - number)

    def _discovered(self, name: str, places: Sequence[Place]) -> Place:
        """The primary, as the first Sentinel names it that answers and sees it up."""
        arguments = _arguments(self.sentinel_arguments, self.timeout / len(places))
        kind: Any = Sentinel  # it has no types
        sentinel = kind(places, sentinel_kwargs=arguments)
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
            raise translate(error, where, is_plain=not arguments.get("ssl")) from error
        finally:
            for client in sentinel.sentinels:
                client.close()
        answered = sentinel.sentinels[0].connection_pool.connection_kwargs
        self._answered = answered["host"], answered["port"]
        return str(host), int(port)

    def _follow(self, place: Place, deadline: float) -> Connection:
        for _ in range(_MOVES):
            try:
                return self._greet(place, deadline - self.clock.now())
            except BackendError:
                raise
            except Exception as error:
                match str(error).split():
                    case ["MOVED", _, address]:
                        host, _, port = address.rpartition(":")
                        place = host or place[0], int(port)
                    case _:
                        raise translate(error, _shown(place), is_plain=not self.tls) from error
        raise BackendUnavailable(SERVICE, "each node of the cluster names another one")

    def _greet(self, place: Place, patience: float) -> Connection:
        """A connection to ``place``, which gets ``patience`` seconds for each answer."""
        arguments = _arguments(self.arguments, patience)
        kind: Any = UnixDomainSocketConnection  # it has no types
        where: dict[str, Any] = {"path": place}
        if not isinstance(place, str):
            kind = SSLConnection if self.tls else TCPConnection
            where = {"host": place[0], "port": place[1]}
        opened = kind(**where, **arguments)
        try:
            opened.connect()
            connection = Connection(opened, _shown(place))
            _learn(connection, self.script, self.key)
            self._check(connection)
        except BaseException:
            opened.disconnect()
            raise
        return connection

    def _check(self, connection: Connection) -> None:
        """Refuse one of several servers that know nothing of each other.

        If another client reached another one, two would hold a lock.
        """
        if self.sentinel is None and len(set(self.places)) > 1 and not connection.is_cluster:
            raise BackendError(
                SERVICE,
                f"{connection.where} is no node of a cluster, and several hosts must be nodes of "
                "one. For a primary and its replicas, give the Sentinels as hosts and "
                "?sentinel=NAME",
            )


def _shown(place: Place) -> str:
    return place if isinstance(place, str) else f"{place[0]}:{place[1]}"


def _arguments(given: Mapping[str, Any], patience: float) -> dict[str, Any]:
    # Else OpenSSL asks for the pass phrase of an encrypted key on the terminal.
    password = {"ssl_password": ""} if any(name.startswith("ssl_") for name in given) else {}
    patience = max(0.05, patience)
    return {
        **password,
        **given,
        "socket_connect_timeout": patience,
        "socket_timeout": patience,
        "retry": Retry(NoBackoff(), 0),  # the kernel knows what may be sent twice
        "protocol": 2,
    }


def _learn(connection: Connection, script: bytes, key: bytes) -> None:
    """Load the script, and ask what the server is; refuse one that can't be used."""
    where = connection.where
    text = connection.ask("INFO").decode("utf-8", "replace")
    lines = (line.partition(":") for line in text.splitlines())
    connection.fields = fields = {name: value for name, _, value in lines}
    mode = fields.get("redis_mode", fields.get("server_mode"))  # the latter is Valkey's
    if mode == "sentinel":
        raise BackendError(
            SERVICE, f"{where} is a Sentinel: give the primary's name as well, as ?sentinel=NAME"
        )
    version = tuple(int(part) for part in re.findall(r"\d+", fields.get("redis_version", ""))[:3])
    if version < _OLDEST:
        shown = fields.get("redis_version") or "a server of unknown version"
        raise BackendError(SERVICE, f"{where}: coordlock needs Redis 6.2 or later, not {shown}")
    if fields.get("role", "master") != "master" and mode != "cluster":  # a cluster's says who is
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
    loading = ("SCRIPT", "LOAD", script)
    time, digest, _ = connection.ask_all(("TIME",), loading, ("EXISTS", key))
    now = int(time[0]) * 1_000_000 + int(time[1])
    # Both ends of that are whole seconds of its clock, so it may be almost one too long.
    uptime = int(fields.get("uptime_in_seconds", 0))
    started = now - max(0, uptime - 1) * 1_000_000
    if fields.get("second_repl_offset", "-1") != "-1":
        started = now  # it was promoted some time ago, perhaps a moment
    connection.run, connection.is_cluster = run.encode(), mode == "cluster"
    connection.started, connection.digest = started, digest


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
