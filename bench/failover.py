"""Elections whose leader's process is killed: when the next one leads."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import coordlock
from bench.contestants import Entrant
from bench.contestants.candidates import ETCDCTL_TTL, TTL, url_of
from bench.environments import ETCDCTL, NotInstalled
from bench.figures import spread
from bench.handoff import hand_over
from bench.progress import doing
from bench.services import SERVICES, service
from bench.table import Plot, Table
from bench.workers import Worker, WorkerFailed

__all__ = ["CANDIDATES", "Pair", "measure"]

#: The candidates. A slow one has a long time-to-live, and takes part in fewer rounds.
CANDIDATES: Final = (
    Entrant("coordlock", "zookeeper", "coordlock", "candidates:ZooKeeperCandidate"),
    Entrant("kazoo's Election", "zookeeper", "peer", "candidates:KazooCandidate"),
    Entrant("coordlock", "etcd", "coordlock", "candidates:EtcdCandidate"),
    Entrant(
        *("etcdctl elect", "etcd", "peer", "candidates:EtcdctlCandidate", ETCDCTL),
        slow=ETCDCTL_TTL > TTL,
    ),
    Entrant("coordlock", "local", "coordlock", "candidates:LocalCandidate"),
)
#: The election, as `hand_over` names it.
_NAME: Final = "handed"
#: Seconds after which a candidate that was told to campaign certainly waits.
_SETTLE: Final = 0.15
#: No failover takes longer.
_BOUND: Final = 180.0


def measure(rounds: int) -> Iterator[Table]:
    for where in (*SERVICES, "local"):
        unit = "ms" if where == "local" else "s"  # there is no time-to-live to wait for
        table = Table(
            f"The leader's process is killed: {where}",
            (
                "who",
                "time-to-live, s",
                f"kill to the next term, {unit}",
                f"kill to the leader's removal, {unit}",
                "removal to the next term, ms",
                "a resignation's handoff, ms",
            ),
            plot=Plot(f"kill to the next term, {unit}", "who"),
        )
        yield table
        with _place(where) as address, ExitStack() as stack:
            pairs = []
            for number, one in enumerate(CANDIDATES):
                if one.service == where:
                    pair = Pair(one, address, f"/bench-{number}")
                    stack.callback(pair.stop)
                    try:
                        pair.start()
                    except (NotInstalled, WorkerFailed) as reason:
                        table.notes.append(f"{one.name} was left out: {reason}")
                    else:
                        pairs.append(pair)
            _fill(table, pairs, rounds)


@contextmanager
def _place(where: str) -> Iterator[str]:
    """The address of a service."""
    if where != "local":
        with service(where) as server:
            yield server.address
        return
    with tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory:
        Path(directory).chmod(0o700)
        yield directory


@dataclass(frozen=True)
class _Failover:
    """When it came to what, in seconds after the kill; and a handoff before that."""

    removed: float
    led: float
    handoff: float


class Pair:
    """A leader, the one that comes after it, and a witness that sees who leads."""

    def __init__(self, entrant: Entrant, address: str, root: str) -> None:
        self.entrant: Final = entrant
        self._address = address
        self._root = root
        self._workers: list[Worker] = []

    def start(self) -> None:
        """Start what is missing of the two processes. Raises what `Worker` raises."""
        while len(self._workers) < 2:
            self._workers.append(self._started())

    def _started(self) -> Worker:
        one = self.entrant
        subject = f"bench.contestants.{one.subject}"
        arguments = (subject, self._address, self._root)
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
        url = url_of(self.entrant.service, self._address, self._root)
        with (
            coordlock.connect(url) as client,
            client.election(_NAME).observe() as leaders,
            ThreadPoolExecutor(1) as pool,
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
        few = max(1, rounds // 15) if pair.entrant.slow else rounds
        found = []
        for number in range(few):
            doing(f"{pair.entrant.service}, {pair.entrant.name}", number, few)
            found.append(pair.failover())
        return found

    with ThreadPoolExecutor(len(pairs)) as pool:
        found = dict(zip(pairs, pool.map(all_of, pairs), strict=True))
    for pair, failovers in found.items():
        one = pair.entrant
        is_local = one.service == "local"
        unit = 1e3 if is_local else 1.0
        table.add(
            one.name,
            None if is_local else ETCDCTL_TTL if one.environment is ETCDCTL else TTL,
            spread([each.led * unit for each in failovers]),
            spread([each.removed * unit for each in failovers]),
            spread([(each.led - each.removed) * 1e3 for each in failovers]),
            spread([each.handoff * 1e3 for each in failovers]),
        )
        table.notes.append(f"{one.name}: {len(failovers)} rounds")
    table.notes += [
        "a kill comes at any moment between two heartbeats, so up to a third of the time-to-live "
        "has passed by then; on local there is none",
        "removal: when a third process sees that the leader has gone from the service; it may be "
        "told later than the next leader",
    ]
