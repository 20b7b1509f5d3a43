"""How the network between a party and each service is disturbed, for `DisturbedSuite`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, Final

import pytest
from coordlock_local import LocalBackend
from coordlock_memory import Fault, MemoryBackend

import coordlock
from coordlock.backend import Backend
from coordlock.errors import BackendUnavailable
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.promise import Promise, failed
from coordlock.testing.backend_contract import BOUND, Party, backend_for
from coordlock.testing.connection import Connection
from coordlock.testing.disturbed_suite import DisturbedSuite
from coordlock.testing.frames import Framer, Message
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.postgres_frames import PostgresFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.redis_frames import RedisFrames
from coordlock.testing.zookeeper_frames import ZooKeeperFrames

__all__ = ["DISTURBED", "PARTY_OPTIONS", "InMemory"]

#: A party sends no heartbeats by itself, and a busy machine takes long for a test.
PARTY_OPTIONS: Final[dict[str, object]] = {"ttl": "60s"}

Connect = Callable[..., coordlock.Client]


@contextmanager
def connecting(url: str) -> Iterator[Connect]:
    """Makes clients of the service at ``url``, which close with the block."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(coordlock.connect(url, **options))


class InMemory(DisturbedSuite):
    """The memory backend has faults of its own."""

    @pytest.fixture
    def connect(self, url: str) -> Iterator[Connect]:
        with connecting(url) as connect:
            yield connect

    def lose_reply(self, party: Party, method: str) -> None:
        assert isinstance(party.backend, MemoryBackend)
        party.backend.faults.inject(method, Fault.LOSE_REPLY)

    @contextmanager
    def cut_off(self, party: Party) -> Iterator[None]:
        assert isinstance(party.backend, MemoryBackend)
        party.backend.faults.partition()
        yield
        party.backend.faults.heal()


class OnFiles(DisturbedSuite):
    """There is no network."""

    @pytest.fixture
    def connect(self, url: str) -> Iterator[Connect]:
        with connecting(url) as connect:
            yield connect

    def lose_reply(self, party: Party, method: str) -> None:
        """Throw the answer away."""
        request = getattr(party.backend, method)

        def lost(*arguments: Any, **options: Any) -> Promise[Any]:
            request(*arguments, **options).result(30)
            delattr(party.backend, method)
            return failed(BackendUnavailable("local", "the reply was lost"))

        setattr(party.backend, method, lost)

    @contextmanager
    def cut_off(self, party: Party) -> Iterator[None]:
        """Let nothing that is followed be read for a while."""
        assert isinstance(party.backend, LocalBackend)
        followers = party.backend._followers
        assert followers is not None
        reads = {one: one.read for one in followers._observers._observed.values()}
        for one in reads:
            one.read = lambda: failed(BackendUnavailable("local", "the files cannot be read"))
        followers._observers.gap(SYSTEM_CLOCK.now(), is_over=True)
        yield
        for one, read in reads.items():
            one.read = read


class BehindProxies(DisturbedSuite):
    """Each party reaches its server through a proxy of its own."""

    frames: ClassVar[type[Framer]]

    @pytest.fixture
    def party(self, request: pytest.FixtureRequest, root: str) -> Iterator[Callable[[], Party]]:
        with ExitStack() as stack:

            def make() -> Party:
                proxy, url = self._behind_proxy(request, root, stack, **PARTY_OPTIONS)
                party = Party(backend_for(self.backend, url))
                self.proxies[party.backend] = proxy
                return party

            yield make
            for one in self.proxies:
                one.close().result(BOUND)

    @pytest.fixture
    def connect(self, request: pytest.FixtureRequest, root: str) -> Iterator[Connect]:
        with ExitStack() as stack:

            def connect(**options: Any) -> coordlock.Client:
                proxy, url = self._behind_proxy(request, root, stack)
                client = stack.enter_context(coordlock.connect(url, **options))
                self.proxies[client._access.engine.backend] = proxy
                return client

            yield connect

    def _behind_proxy(
        self, request: pytest.FixtureRequest, root: str, stack: ExitStack, **options: object
    ) -> tuple[FaultProxy, str]:
        """A proxy, and the URL through it."""
        self.proxies: dict[Backend, FaultProxy] = vars(self).get("proxies", {})
        server = request.getfixturevalue(self.backend.scheme)
        proxy = stack.enter_context(FaultProxy(server.host, server.port, self.frames))
        place = f"{server.host}:{server.port}"
        return proxy, server.url_for(root, **options).replace(place, f"127.0.0.1:{proxy.port}")

    @contextmanager
    def cut_off(self, party: Party) -> Iterator[None]:
        proxy = self.proxies[party.backend]
        proxy.refuse()
        proxy.drop_connections()
        yield
        proxy.heal()


class OnEtcd(BehindProxies):
    """Every request that changes something is a transaction."""

    frames = GrpcFrames

    def lose_reply(self, party: Party, method: str) -> None:
        self.proxies[party.backend].on_request("*Txn", Connection.lose_reply)


class OnZooKeeper(BehindProxies):
    """Requests differ by the method."""

    frames = ZooKeeperFrames

    def lose_reply(self, party: Party, method: str) -> None:
        # A single entry is created by itself, and a set in a multi.
        operations = {
            "publish": ["setData"],
            "enqueue": ["create2", "multi"],
            "withdraw": ["delete", "multi"],
        }
        # The first of a key in a new folder does nothing: it finds out that there is no folder.
        nth = 2 if method == "write" else 1
        lost: list[Message] = []

        def lose(connection: Connection, message: Message) -> None:
            if not lost:
                connection.lose_reply(message)
                lost.append(message)

        for operation in operations.get(method, ["multi"]):
            self.proxies[party.backend].on_request(operation, lose, nth=nth)


class OnRedis(BehindProxies):
    """Every request is a script, and has its name."""

    frames = RedisFrames

    def lose_reply(self, party: Party, method: str) -> None:
        self.proxies[party.backend].on_request(method, Connection.lose_reply)


class OnPostgresql(BehindProxies):
    """Every request calls a function, and has its name."""

    frames = PostgresFrames

    def lose_reply(self, party: Party, method: str) -> None:
        self.proxies[party.backend].on_request(method, Connection.lose_reply)


DISTURBED: Final[dict[str, type[DisturbedSuite]]] = {
    "etcd": OnEtcd,
    "local": OnFiles,
    "memory": InMemory,
    "postgresql": OnPostgresql,
    "redis": OnRedis,
    "zookeeper": OnZooKeeper,
}
