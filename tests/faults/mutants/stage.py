"""A small run on one real server, played step by step, with a journal of everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from coordlock_faults.bounds import Bounds
from coordlock_faults.events import (
    FaultBegan,
    FaultHealed,
    Kind,
    OperationAccepted,
    OperationFailed,
    OperationOffered,
    Quiesced,
    Reach,
    RunBegan,
    RunEnded,
)
from coordlock_faults.journal import Journal, read
from coordlock_faults.verdict import Verdict, judge
from kazoo.client import KazooClient

import coordlock
from coordlock.backend import VersionedValue
from coordlock.errors import CoordlockError
from coordlock.model.claim import Claim, Mode, Permit
from coordlock.model.contender import Contender
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.scribe import Scribe
from testbed.resource.protocol import Request
from testbed.resource.resource import Resource
from testbed.servers.endpoint import Endpoint
from testbed.servers.etcd import EtcdServer
from testbed.servers.zookeeper import ZooKeeperServer
from testbed.truth.etcd import EtcdObserver
from testbed.truth.observer import Observer
from testbed.truth.zookeeper import ZooKeeperObserver

__all__ = ["LOCK", "PATIENCE", "Player", "Server", "Stage"]

Server = EtcdServer | ZooKeeperServer

LOCK: Final = "a"
#: Seconds that nobody waits longer for: more than the bound of the run allows.
PATIENCE: Final = 3.7
#: Seconds for all that is to happen at once.
_SOON: Final = 2.5
#: Seconds that a release waits for the service.
_AT_MOST: Final = 1.0


class Player:
    """One client of the run, under a name of its own."""

    def __init__(
        self, url: str, journal: Journal, pool: ThreadPoolExecutor, given: object = None
    ) -> None:
        self.client: Final = coordlock.connect(url, client=given)
        self.journal: Final = journal
        #: Those that were granted and not released.
        self.attempts: Final[list[AttemptLog]] = []
        self._scribe = Scribe(journal)
        self._pool = pool

    def acquire(self, claim: Claim = Mode.EX, timeout: float = 30) -> AttemptLog | None:
        """The attempt, when it was granted."""
        client = self.client
        lock = (
            client.semaphore(LOCK, claim.of)
            if isinstance(claim, Permit)
            else client.lock(LOCK, mode=claim)
        )
        attempt = self._scribe.attempt(LOCK, claim)
        try:
            grant = lock.acquire(timeout)
        except CoordlockError as error:
            attempt.failed(type(error).__name__, str(error))
            return None
        attempt.granted(grant)
        self.attempts.append(attempt)
        return attempt

    def holding(self, claim: Claim = Mode.EX) -> AttemptLog:
        """The attempt, which is granted."""
        attempt = self.acquire(claim)
        assert attempt is not None
        return attempt

    def asking(self, claim: Claim = Mode.EX, timeout: float = 30) -> Future[AttemptLog | None]:
        """The same in the background."""
        return self._pool.submit(self.acquire, claim, timeout)

    def patient(self, waiting: Future[AttemptLog | None]) -> AttemptLog | None:
        """Wait for it from now on; a client that is closed is what answers it in the end."""
        wait([waiting], PATIENCE)
        if not waiting.done():
            self.client.close()
        return waiting.result()

    def visiting(self) -> Future[None]:
        """Acquire and release in the background."""
        return self._pool.submit(lambda: self.release(self.acquire()))

    def release(self, attempt: AttemptLog | None) -> None:
        """Release what was granted, unless it was lost."""
        if attempt is not None and not attempt.lost:
            self.attempts.remove(attempt)
            attempt.releasing(_AT_MOST)
            attempt.released(bool(attempt.grant.release(_AT_MOST)))

    def leave(self, attempt: AttemptLog) -> None:
        """Close the client while it holds."""
        self.attempts.remove(attempt)
        attempt.releasing(_AT_MOST)
        self.client.close()
        attempt.release_failed(coordlock.errors.ClientClosed())

    def offer(self, attempt: AttemptLog, resource: Resource, kind: Kind) -> None:
        """Go to the resource with the token of ``attempt``."""
        value = None if kind is Kind.READ else self._scribe.value()
        operation, shared = self._scribe.operation(), attempt.shared
        self.journal.log(
            OperationOffered,
            operation,
            resource.name,
            attempt.name,
            attempt.token,
            shared,
            kind,
            value,
        )
        resource.take(Request(operation, resource.name, attempt.token, shared, kind, value))

    def read(self, attempt: AttemptLog, key: str) -> VersionedValue:
        """The list of values that the service keeps under ``key``, read by the grant."""
        return self._trusting(attempt).read(key) or VersionedValue(b"[]", 0)

    def add(self, attempt: AttemptLog, key: str, stored: VersionedValue) -> None:
        """Write one value more than in ``stored``, guarded by the grant."""
        value, operation = self._scribe.value(), self._scribe.operation()
        offered = operation, key, attempt.name, attempt.token, False, Kind.ADD, value
        transaction = self._trusting(attempt).transaction()
        transaction.put(key, json.dumps([*json.loads(stored.data), value]).encode())
        self.journal.log(OperationOffered, *offered)
        try:
            transaction.commit()
        except CoordlockError as error:
            self.journal.log(OperationFailed, operation, type(error).__name__, str(error))
        else:
            self.journal.log(OperationAccepted, operation, stored.version + 1)

    def _trusting(self, attempt: AttemptLog) -> coordlock.Grant:
        """The grant, which leaves it to the service to say whether it is lost."""
        grant = attempt.grant
        assert isinstance(grant, coordlock.Grant)
        vars(grant)["check"] = lambda: None
        return grant


class Stage:
    """A context manager. What its scenario does is judged by `verdict`, once it is over."""

    def __init__(self, server: Server, root: str, directory: Path) -> None:
        self.server: Final = server
        self._root = root
        self._directory = directory
        self._stack = ExitStack()
        self._players: list[Player] = []
        self._resources: list[Resource] = []
        self._faults = 0
        self._keeps_data = False
        self._journal = self._new_journal("runner")
        self._journal.log(RunBegan, 0, server.endpoint.scheme, truth=True)
        self.truth: Final[Observer] = self._observer()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(16))

    def player(self, *proxies: FaultProxy, given: object = None, **options: object) -> Player:
        """One more client, c1, c2 and so on; ``options`` are of its URL."""
        endpoint = self.server.endpoint
        if proxies:
            hosts = tuple(f"127.0.0.1:{proxy.port}" for proxy in proxies)
            endpoint = Endpoint(endpoint.scheme, hosts)
        journal = self._new_journal(f"c{len(self._players) + 1}")
        url = endpoint.url(self._root, **{"ttl": "30s", "request_timeout": "1s"} | options)
        player = Player(url, journal, self._pool, given)
        self._stack.callback(player.client.close)
        self._players.append(player)
        return player

    def proxy(self) -> FaultProxy:
        """A proxy to the server."""
        framer = GrpcFrames if isinstance(self.server, EtcdServer) else ZooKeeperFrames
        proxy = FaultProxy(self.server.host, self.server.port, framer)
        return self._stack.enter_context(proxy)

    def given(self, proxy: FaultProxy) -> KazooClient:
        """An application's own client of ZooKeeper, which reaches it through ``proxy``."""
        hosts = f"127.0.0.1:{proxy.port}"
        client = KazooClient(
            hosts, timeout=30, connection_retry={"max_tries": -1, "max_delay": 0.2}
        )
        client.start()
        self._stack.callback(client.close)
        self._stack.callback(client.stop)
        return client

    def resource(self) -> Resource:
        """What the lock protects, behind a fence."""
        resource = Resource("ledger", self._new_journal("resource"))
        self._resources.append(resource)
        return resource

    @property
    def path(self) -> str:
        """Where the lock's queue is."""
        return f"{self._root}/{LOCK}"

    @property
    def key(self) -> str:
        """A key of the service that the lock guards."""
        self._keeps_data = True
        return f"{self._root}-data"

    @contextmanager
    def fault(self, *targets: str, reach: Reach = Reach.NETWORK) -> Iterator[None]:
        """There is a fault as long as the block lasts."""
        self._faults += 1
        fault = f"f{self._faults}"
        self._journal.log(FaultBegan, fault, reach.value, reach, targets)
        try:
            yield
        finally:
            self._journal.log(FaultHealed, fault)

    @contextmanager
    def outage(self, proxy: FaultProxy) -> Iterator[None]:
        """Nobody reaches the server through ``proxy`` as long as the block lasts."""
        with self.fault():
            proxy.refuse()
            proxy.drop_connections()
            yield
            proxy.heal()

    def evict(self, contender: Contender) -> None:
        """Remove a contender, as an operator does, with the service's own tools."""
        with self.fault(contender.key, reach=Reach.OPERATOR):
            if isinstance(self.server, EtcdServer):
                self.server.etcdctl("del", contender.key)
            else:
                with self.server.kazoo() as client:
                    client.delete(contender.key)

    def queue(self) -> list[Contender]:
        """The contenders now, as anybody sees them."""
        client = self._observing_client
        return [one.contender for one in client.admin.contenders(LOCK)]

    def queued(self, number: int) -> None:
        """Wait until there are so many contenders."""
        eventually(lambda: len(self.queue()) == number, f"{number} contenders")

    def verdict(self, bounds: Bounds) -> Verdict:
        """End the run: release what is held, see what is left, and judge."""
        for player in self._players:
            for attempt in player.attempts.copy():
                player.release(attempt)
        self._journal.log(Quiesced)
        with suppress(TimeoutError):  # what does not go is a leak
            eventually(lambda: not self.queue(), within=_SOON)
        for resource in self._resources:
            resource.finish()
        if self._keeps_data:
            with self._observing_client.lock("final") as grant:
                found = grant.read(self.key)
            self._journal.final_set(self.key, json.loads(found.data) if found else [])
        self.truth.survey()
        for player in self._players:
            for attempt in player.attempts:
                attempt.forget()
        self._journal.log(RunEnded)
        return judge(read(sorted(self._directory.glob("*.jsonl"))), bounds)

    @cached_property
    def _observing_client(self) -> coordlock.Client:
        client = coordlock.connect(self.server.url_for(self._root))
        self._stack.callback(client.close)
        return client

    def _observer(self) -> Observer:
        journal = self._new_journal("truth")
        truth: Observer = (
            EtcdObserver([self.server], self._root, journal)
            if isinstance(self.server, EtcdServer)
            else ZooKeeperObserver([self.server], self._root, journal)
        )
        return self._stack.enter_context(truth)

    def _new_journal(self, name: str) -> Journal:
        return self._stack.enter_context(Journal(self._directory / f"{name}.jsonl", name))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
