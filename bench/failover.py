"""Elections whose leader's process is killed: when the next one leads."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event
from typing import Final

import coordlock
from bench.contestants import Entrant
from bench.contestants.candidates import ETCDCTL_TTL, TTL
from bench.environments import ETCDCTL, NotInstalled
from bench.figures import spread
from bench.handoff import hand_over
from bench.progress import doing
from bench.services import CLUSTERS, Service, service
from bench.table import Plot, Table
from bench.workers import Worker, WorkerFailed

__all__ = ["CANDIDATES", "Pair", "measure"]

#: The candidates.
CANDIDATES: Final = (
    Entrant("coordlock", "zookeeper", "coordlock", "candidates:ZooKeeperCandidate"),
    Entrant("kazoo's Election", "zookeeper", "peer", "candidates:KazooCandidate"),
    Entrant("coordlock", "etcd", "coordlock", "candidates:EtcdCandidate"),
    Entrant("etcdctl elect", "etcd", "peer", "candidates:EtcdctlCandidate", ETCDCTL),
    Entrant("coordlock", "local", "coordlock", "candidates:LocalCandidate"),
)
#: The election, as `hand_over` names it.
_NAME: Final = "handed"
#: Seconds after which a candidate that was told to campaign certainly waits.
_SETTLE: Final = 0.15
#: No failover takes longer.
_BOUND: Final = 180.0


def measure(rounds: int) -> Iterator[Table]:
    table = Table(
        "The leader's process is killed",
        (
            *("who", "time-to-live, s", "kill to the next term, ms"),
            *("kill to the leader's removal, ms", "removal to the next term, ms"),
            "a resignation's handoff, ms",
        ),
        plot=Plot("kill to the next term, ms", "who", log=True),
    )
    yield table
    with ExitStack() as stack:
        servers = {name: stack.enter_context(service(name)) for name in (*CLUSTERS, "local")}
        pairs = []
        for number, one in enumerate(CANDIDATES):
            pair = Pair(one, servers[one.service], f"/bench-{number}")
            stack.callback(pair.stop)
            try:
                pair.start()
            except (NotInstalled, WorkerFailed) as reason:
                table.notes.append(f"{one.name} was left out: {reason}")
            else:
                pairs.append(pair)
        _fill(table, pairs, rounds)


@dataclass(frozen=True)
class _Failover:
    """When it came to what, in seconds after the kill; and a handoff before that."""

    removed: float
    led: float
    handoff: float


class Pair:
    """A leader, the one that comes after it, and a witness that sees who leads."""

    def __init__(self, entrant: Entrant, server: Service, root: str) -> None:
        self.entrant: Final = entrant
        self._server = server
        self._root = root
        self._workers: list[Worker] = []
        #: Seconds that the service waits for the leader.
        self.ttl: Final = ETCDCTL_TTL if entrant.environment is ETCDCTL else TTL

    def start(self) -> None:
        """Start what is missing of the two processes. Raises what `Worker` raises."""
        while len(self._workers) < 2:
            self._workers.append(self._started())

    def _started(self) -> Worker:
        one = self.entrant
        subject = f"bench.contestants.{one.subject}"
        arguments = (subject, self._server.address, self._root)
        worker = Worker(*arguments, environment=one.environment, quiet=one.role == "peer")
        return worker.__enter__()

    def stop(self) -> None:
        """End both processes."""
        for worker in self._workers:
            worker.stop()

    def failover(self) -> _Failover:
        """Hand over once, and kill the leader then. The killed one is replaced."""
        self.start()
        leader, successor = self._workers
        handoff = hand_over(leader, successor)
        with (
            ThreadPoolExecutor(1) as pool,
            coordlock.connect(self._server.url(self._root)) as client,
            client.election(_NAME).observe() as leaders,
        ):
            leader.do("hold", name=_NAME)
            first = leaders.next(_BOUND)
            while first is None:
                first = leaders.next(_BOUND)
            successor.tell("wait", name=_NAME)
            # The next heartbeat may be about to come, or just have been.
            time.sleep(_SETTLE + random.uniform(0, TTL / 3))

            def witness() -> float:
                while (now := leaders.next(_BOUND)) is not None and now.id == first.id:
                    pass
                return time.monotonic()

            seen = pool.submit(witness)
            killed = time.monotonic()
            os.killpg(leader.pid, signal.SIGKILL)  # with the process that it has started, if any
            led = successor.answer()
            removed = seen.result(_BOUND)
        successor.do("let_go", name=_NAME)
        leader.stop()
        self._workers = [successor]
        return _Failover(removed - killed, led - killed, handoff)


def _fill(table: Table, pairs: list[Pair], rounds: int) -> None:
    """All pairs at the same time: they wait for a time-to-live to pass, and do little else."""

    def all_of(pair: Pair) -> list[_Failover]:
        found = []
        for number in range(rounds if pair.ttl == TTL else 1):
            if not over.is_set():
                doing("all at the same time", number, rounds)
                found.append(pair.failover())
        return found

    over = Event()
    with ThreadPoolExecutor(len(pairs)) as pool:
        running = [pool.submit(all_of, pair) for pair in pairs]
        try:
            found = [one.result() for one in running]
        except BaseException:
            over.set()
            for pair in pairs:
                pair.stop()  # which ends what its thread waits for
            raise
    for pair, failovers in zip(pairs, found, strict=True):
        one = pair.entrant
        table.add(
            f"{one.name}, {one.service}",
            None if one.service == "local" else pair.ttl,
            spread([each.led * 1e3 for each in failovers]),
            spread([each.removed * 1e3 for each in failovers]),
            spread([(each.led - each.removed) * 1e3 for each in failovers]),
            spread([each.handoff * 1e3 for each in failovers]),
        )
    table.notes += [
        f"{rounds} rounds, and one where the time-to-live is longer than {TTL:g} s",
        "a kill comes at any moment between two heartbeats, so up to a third of the time-to-live "
        "has passed by then; on local there is none",
        "removal: when a third process sees that the leader has gone from the service; it may be "
        "told later than the next leader",
    ]
