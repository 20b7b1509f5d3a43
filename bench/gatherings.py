"""Elections and groups, against a plain lock of the same client; a change that many observe."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any, Final

import coordlock
from bench.figures import Spread, ratios, spread
from bench.progress import doing
from bench.services import SERVICES, service
from bench.table import Plot, Table
from coordlock.testing.waiting import eventually

__all__ = ["measure"]

#: How many members join at once, by so many threads.
_MEMBERS: Final = 1000
_THREADS: Final = 20
#: So many processes have so many observers each.
_PROCESSES: Final = 10
_OBSERVERS: Final = 100
#: No answer takes longer.
_BOUND: Final = 120.0


def measure(rounds: int) -> Iterator[Table]:
    for name in SERVICES:
        with service(name) as server:
            url = f"{name}://{server.address}/bench?ttl=60s"
            yield _in_turns(name, url, rounds)
            yield _storm(name, url, max(2, rounds // 10), server if name == "zookeeper" else None)
            yield _observed(name, url, rounds)
    with tempfile.TemporaryDirectory(prefix="coordlock-bench-") as directory:
        url = f"local://{directory}/state"
        yield _in_turns("local", url, rounds)
        yield _storm("local", url, max(2, rounds // 10), None)


def _in_turns(where: str, url: str, rounds: int) -> Table:
    """What it takes to lead, to join, and to hear of it."""
    table = Table(
        f"An election and a group: {where}",
        ("what", "x one lock's acquire or handoff", "ms"),
        notes=[
            f"{rounds} rounds in turns",
            "handed over: from before the release, or the resignation, to the next grant, or term",
            "seen: from before the resignation to the next leader that an observer elsewhere gets",
        ],
        plot=Plot("x one lock's acquire or handoff", "what"),
    )
    with (
        coordlock.connect(url) as one,
        coordlock.connect(url) as two,
        coordlock.connect(url) as third,
        ThreadPoolExecutor(1) as pool,
        third.election("e").observe() as leaders,
    ):
        group = one.group("g")
        begins: dict[str, Callable[[], Any]] = {
            "lock": one.lock("l").acquire,
            "lead": one.election("e").campaign,
            "join": lambda: group.join(b"10.0.0.5:8080"),
        }
        passes: dict[str, tuple[Any, Any]] = {
            "lock, handed over": (one.lock("l").acquire, two.lock("l").acquire),
            "lead, handed over": (one.election("e").campaign, two.election("e").campaign),
        }
        times: dict[str, list[float]] = {what: [] for what in (*begins, *passes, "lead, seen")}
        for number in range(rounds):
            doing(where, number, rounds)
            for what, begin in begins.items():
                began = time.perf_counter()
                grant = begin()
                times[what].append(time.perf_counter() - began)
                grant.release()
            for what, (mine, theirs) in passes.items():
                times[what].append(_handoff(mine, theirs, one, "le"["lead" in what], pool))
            term = one.election("e").campaign()
            wanted = leaders.next(_BOUND)
            while wanted is None or wanted.token != term.token:
                wanted = leaders.next(_BOUND)
            began = time.perf_counter()
            term.resign()
            leaders.next(_BOUND)
            times["lead, seen"].append(time.perf_counter() - began)
    for what in times:
        base = times["lock, handed over" if "," in what else "lock"]
        table.add(what, ratios(times[what], base), spread(times[what]).median * 1e3)
    return table


def _handoff(
    mine: Callable[[], Any],
    theirs: Callable[[], Any],
    client: coordlock.Client,
    name: str,
    pool: ThreadPoolExecutor,
) -> float:
    def wait() -> float:
        with theirs():
            return time.perf_counter()

    grant = mine()
    waiting = pool.submit(wait)
    eventually(lambda: len(client.contenders(name)) == 2)
    time.sleep(0.002)  # its watch is set behind that
    began = time.perf_counter()
    grant.release()
    return waiting.result(_BOUND) - began


def _storm(where: str, url: str, rounds: int, peer: Any) -> Table:
    """A thousand that join at once."""
    table = Table(
        f"{_MEMBERS:,} members join at once: {where}",
        ("who", "ms per member", "members read, ms"),
        notes=[f"{rounds} rounds; one client, {_THREADS} threads; the observer has its own"],
    )
    joins: list[float] = []
    reads: list[float] = []
    with (
        coordlock.connect(url) as client,
        coordlock.connect(url) as other,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        for number in range(rounds):
            doing(f"{where}: a storm", number, rounds)
            group = client.group(f"g{number}")
            with other.group(f"g{number}").observe() as views:
                began = time.perf_counter()
                members = list(pool.map(group.join, [b"%d" % one for one in range(_MEMBERS)]))
                while len(views.next(_BOUND).members) < _MEMBERS:
                    pass
                joins.append((time.perf_counter() - began) / _MEMBERS)
                began = time.perf_counter()
                assert len(other.group(f"g{number}").members()) == _MEMBERS
                reads.append(time.perf_counter() - began)
                list(pool.map(lambda one: one.release(), members))
    table.add("coordlock, until an observer has seen all", _ms(joins), _ms(reads))
    if peer is not None:
        table.add("kazoo's Party", *_parties(peer, rounds))
    return table


def _parties(server: Any, rounds: int) -> tuple[Spread, Spread]:
    """What kazoo's recipe for groups takes: each member is an object of its own."""
    from kazoo.client import KazooClient

    joins: list[float] = []
    reads: list[float] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for number in range(rounds):
            client = KazooClient(server.address)
            client.start()
            try:
                parties = [client.Party(f"/party{number}", str(one)) for one in range(_MEMBERS)]
                began = time.perf_counter()
                list(pool.map(lambda one: one.join(), parties))
                joins.append((time.perf_counter() - began) / _MEMBERS)
                began = time.perf_counter()
                assert len(list(parties[0])) == _MEMBERS
                reads.append(time.perf_counter() - began)
            finally:
                client.stop()
                client.close()
    return _ms(joins), _ms(reads)


def _ms(samples: list[float]) -> Spread:
    return spread([one * 1e3 for one in samples])


def _observed(where: str, url: str, rounds: int) -> Table:
    """A change of a leader's proposal, which many observe."""
    everybody = _PROCESSES * _OBSERVERS
    table = Table(
        f"A proclamation reaches {everybody:,} observers: {where}",
        ("what", "ms"),
        notes=[
            f"{rounds} rounds; {_PROCESSES} processes of {_OBSERVERS} observers, one client each"
        ],
    )
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        client = stack.enter_context(coordlock.connect(url))
        term = stack.enter_context(client.election("many").campaign(b"0"))
        pipes = []
        for _ in range(_PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=_watch, args=(url, theirs), daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)  # it waits for changes
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        writes: list[float] = []
        arrivals: list[float] = []
        for number in range(1, rounds + 1):
            doing(f"{where}: observers", number - 1, rounds)
            began = time.monotonic()
            term.proclaim(b"%d" % number)
            writes.append(time.monotonic() - began)
            arrivals.append(max(pipe.recv() for pipe in pipes) - began)
    table.add("the proclamation's own answer", _ms(writes))
    table.add("until the last observer has it", _ms(arrivals))
    return table


def _watch(url: str, pipe: Connection) -> None:
    """One process: it tells when the last of its observers was given each new leader."""
    with coordlock.connect(url) as client, ThreadPoolExecutor(_OBSERVERS) as pool:
        observers = [client.election("many").observe() for _ in range(_OBSERVERS)]

        def turn(observer: coordlock.Observer[Any]) -> float:
            observer.next()
            return time.monotonic()

        list(pool.map(turn, observers))
        pipe.send(True)
        while True:
            pipe.send(max(pool.map(turn, observers)))
