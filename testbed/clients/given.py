"""The application's own client of the service, given to coordlock: `coordlock.connect(client=...)`.

Both clients of a process share it, and whatever it has is the application's: on ZooKeeper a
`KazooClient` and its session, on etcd a channel, on Redis a client that shows how to connect. When
coordlock's have closed, it is as it was.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, Protocol

import grpc
import redis
from coordlock_faults.events import Counted
from coordlock_faults.journal import Journal
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from coordlock.backend.config import configure
from coordlock.settings import Settings
from coordlock.testing.waiting import eventually

__all__ = ["SHARING", "Given", "start"]

log = logging.getLogger("testbed")

#: Services whose given client brings its own session, one for all whom it is given to.
SHARING: Final = frozenset({"zookeeper"})
#: Seconds between two attempts to reconnect, at most. Both libraries wait for minutes by default.
_LONGEST_PAUSE: Final = 1.0
#: Seconds for a first connection, and for what closing leaves to be done in the background.
_PATIENCE: Final = 10.0


class Given(Protocol):
    """A client of the application's."""

    #: What `coordlock.connect` takes.
    client: Any

    def end(self, journal: Journal) -> None:
        """Log a `Counted` for what coordlock, which has closed, has left in it; close it.

        An error when coordlock has closed it.
        """


class _Kazoo:
    def __init__(self, settings: Settings) -> None:
        self._root = settings.root
        self.client = KazooClient(
            ",".join(settings.hosts),
            timeout=settings.ttl,
            connection_retry={"max_tries": -1, "max_delay": _LONGEST_PAUSE},
        )
        self.client.add_listener(self._mind)
        self._start()

    def _start(self) -> None:
        # Faults may be under way.
        while True:
            try:
                self.client.start(_PATIENCE)
            except KazooTimeoutError as error:
                log.warning("once more: %s", error)
            else:
                return

    def _mind(self, _: str) -> None:
        """Start it again when its thread has died, as it does where a server leaves out an answer.

        Not when somebody has stopped it.
        """
        client = self.client
        if client.client_state == KeeperState.CLOSED and not client._stopped.is_set():
            threading.Thread(target=self._restart, name="given-restart", daemon=True).start()

    def _restart(self) -> None:
        self.client.stop()
        self._start()

    def end(self, journal: Journal) -> None:
        client = self.client
        eventually(lambda: client.connected, "the given KazooClient to go on", within=_PATIENCE)
        client.remove_listener(self._mind)
        _log_left(journal, "listeners", lambda: client.state_listeners)
        _log_left(journal, "contenders", self._contenders)
        client.stop()
        client.close()

    def _contenders(self) -> list[str]:
        """Those that its session has."""
        return [
            f"{queue}/{child}"
            for queue in self._children(self._root)
            for child in self._children(f"{self._root}/{queue}")
            if self._is_ours(f"{self._root}/{queue}/{child}")
        ]

    def _children(self, path: str) -> list[str]:
        try:
            return list(self.client.retry(self.client.get_children, path))
        except NoNodeError:
            return []

    def _is_ours(self, path: str) -> bool:
        found = self.client.retry(self.client.exists, path)
        if found is None or found.ephemeralOwner != self.client.client_id[0]:
            return False
        return bool(self.client.retry(self._leader_has, path))

    def _leader_has(self, path: str) -> bool:
        """A member of 3.8.0 may show for good what the leader has lost, and then nobody removes."""
        question = self.client.transaction()
        question.check(path, version=-1)
        [answer] = question.commit()
        if isinstance(answer, Exception) and not isinstance(answer, NoNodeError):
            raise answer
        return answer is True


class _Etcd3Client:
    """What coordlock uses of an ``etcd3.Etcd3Client``: see tests/integration/etcd/conftest.py."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.metadata: tuple[tuple[str, str], ...] | None = None


# By this coordlock knows whose client it is.
_Etcd3Client.__module__ = "etcd3.client"


class _Channel:
    def __init__(self, settings: Settings, seed: int) -> None:
        # It stays with the first that it reaches, which shall not be the same for all.
        hosts = random.Random(seed).sample(settings.hosts, len(settings.hosts))
        channel = grpc.insecure_channel(
            f"ipv4:{','.join(hosts)}",
            options=[("grpc.max_reconnect_backoff_ms", round(_LONGEST_PAUSE * 1000))],
        )
        self.client = _Etcd3Client(channel)

    def end(self, journal: Journal) -> None:
        # A ValueError where it was closed.
        channel: grpc.Channel = self.client.channel
        status: grpc.UnaryUnaryMultiCallable[bytes, bytes]
        status = channel.unary_unary("/etcdserverpb.Maintenance/Status")
        status(b"", timeout=_PATIENCE, wait_for_ready=True)
        channel.close()


class _Redis:
    def __init__(self, settings: Settings) -> None:
        hosts = [(host, int(port)) for host, _, port in map(_parted, settings.hosts)]
        self.client: redis.Redis
        if name := settings.options["sentinel"]:
            sentinel: Any = redis.sentinel  # it has no types
            self.client = sentinel.Sentinel(hosts).master_for(name)
        else:
            self.client = redis.Redis(*hosts[0])

    def end(self, journal: Journal) -> None:
        self.client.ping()
        self.client.close()


def _parted(host: str) -> tuple[str, str, str]:
    return host.rpartition(":")


def _log_left(journal: Journal, what: str, left: Callable[[], Collection[object]]) -> None:
    """There are to be none, once closing has had its time."""
    what = f"{what} in what was given to {journal.process}"
    with suppress(TimeoutError):
        eventually(lambda: not left(), within=_PATIENCE)
    journal.log(Counted, what, 0, True)
    journal.log(Counted, what, len(left()), False)


def start(url: str, seed: int) -> Given:
    """The application's client of the service at ``url``, with a session timeout as that says.

    Blocks until it is connected, where that is needed before it is given. Raises KeyError for a
    service that has no such client.
    """
    settings = configure(url)
    match settings.scheme:
        case "zookeeper":
            return _Kazoo(settings)
        case "etcd":
            return _Channel(settings, seed)
        case "redis":
            return _Redis(settings)
        case other:
            raise KeyError(f"nobody has a client of {other} to give")
