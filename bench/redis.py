"""Redis beside redis-py and python-redis-lock: alone, handing over, with many who want it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

import coordlock
from bench.contestants import Entrant, entrants
from bench.field import field, turns
from bench.figures import spread
from bench.handoff import timed as handoff
from bench.processor import cpu_of
from bench.progress import doing
from bench.services import Service, service
from bench.table import Plot, Table
from bench.uncontended import timed as uncontended
from bench.workers import Worker, WorkerFailed

__all__ = ["measure"]

_PROCESSES = (4, 8)
_SECONDS = 1.0
#: Seconds after which a contestant that has not returned is given up.
_BOUND = 30.0
_LENGTHS = (100, 1_000, 10_000)
#: How many waiters come at once.
_AT_ONCE = 1_000
_TTL = 6.0


def measure(rounds: int) -> Iterator[Table]:
    with service("redis") as server:
        notes: list[str] = []
        with field(entrants("redis"), server.address, notes) as there:
            yield uncontended("redis", there, 2 * rounds, 15, notes)
        notes = []
        with field(entrants("redis"), server.address, notes, processes=2) as there:
            yield handoff("redis", there, rounds, notes)
        yield _races(server, max(2, rounds // 3))
        yield _queues(server)
        yield _idle(server)


def _races(server: Service, rounds: int) -> Table:
    notes = [f"{rounds} rounds in turns, {_SECONDS:g} s each; the worst wait is that of all rounds"]
    table = Table(
        "One lock that several processes want all the time: redis",
        ("who", "processes", "grants/s", "x redis-py", "longest wait, ms"),
        notes=notes,
        plot=Plot("grants/s", "who", over="processes"),
    )
    those = [one for one in entrants("redis") if one.role != "floor"]
    made: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    waited: defaultdict[tuple[str, int], float] = defaultdict(float)
    with field(those, server.address, notes, processes=max(_PROCESSES)) as there:
        failed: set[Entrant] = set()
        for number, one in turns(list(there), rounds, "one lock: "):
            for count in _PROCESSES if one not in failed else ():
                try:
                    grants, longest = _raced(there[one][:count])
                except WorkerFailed as reason:
                    failed.add(one)
                    notes.append(f"{one.name}, {count} processes: {reason}")
                    break
                if number:
                    made[one.name, count].append(grants / _SECONDS)
                    waited[one.name, count] = max(waited[one.name, count], longest)
    for (who, count), samples in made.items():
        figures, peer = spread(samples), made.get(("redis-py", count))
        ratio = figures.median / spread(peer).median if peer else None
        table.add(who, count, figures, ratio, waited[who, count] * 1e3)
    return table


def _raced(workers: list[Worker]) -> tuple[int, float]:
    begin = time.monotonic() + 0.1
    for worker in workers:
        worker.tell("race", name="wanted", begin=begin, seconds=_SECONDS)
    answers = [worker.answer(_BOUND) for worker in workers]
    return sum(grants for grants, _ in answers), max(longest for _, longest in answers)


def _queues(server: Service) -> Table:
    table = Table(
        "Long queues in one asyncio process: redis",
        (
            *("waiters", "handoffs per second", "CPU ms", "server CPU ms"),
            *("resident KiB each", "threads", "connections"),
        ),
        notes=["CPU: per handoff"],
    )
    url = f"redis://{server.address}/queues?ttl=30s&restart_delay=0"
    for waiters in _LENGTHS:
        with coordlock.connect(url) as holder, Worker("bench.crowd:Crowd", url) as crowd:
            doing(f"redis, {waiters} waiters")
            grant = holder.lock("long").acquire()
            at_once = min(waiters, _AT_ONCE)
            try:
                lined = crowd.do(
                    "line_up", name="long", settle=0.5, waiters=waiters, at_once=at_once
                )
                before, started = cpu_of(server.pid), time.monotonic()
                clients = _clients(server) - 3  # those of the holder
                grant.release()
                found = crowd.do("drain")
            except (WorkerFailed, coordlock.CoordlockError) as reason:
                table.notes.append(f"{waiters} waiters: left out, {reason}")
                continue
            table.add(
                waiters,
                waiters / (found["done"] - started),
                found["cpu"] * 1e3,
                (cpu_of(server.pid) - before) / waiters * 1e3,
                lined["resident"] / 1024,
                int(lined["threads"]),
                clients,
            )
    return table


def _clients(server: Service) -> int:
    """How many connections there are, without the one that asks."""
    import redis

    with redis.Redis(host=server.host, port=server.port) as client:
        return int(client.info("clients")["connected_clients"]) - 1


def _idle(server: Service) -> Table:
    """What a client that holds locks asks for by itself."""
    table = Table(
        "An idle client: redis", ("locks held", "requests per ttl"), notes=[f"ttl: {_TTL:g} s"]
    )
    for held in (1, 1_000):
        with server.proxy() as proxy:
            url = f"redis://127.0.0.1:{proxy.port}/idle?ttl={_TTL:g}s&restart_delay=0"
            with coordlock.connect(url) as client:
                grants = [client.lock(f"idle-{number}").acquire() for number in range(held)]
                time.sleep(1.0)
                doing(f"redis, an idle client that holds {held}")
                with proxy.counting() as sent:
                    time.sleep(2 * _TTL)
                table.add(held, sum(sent.requests.values()) / 2)
                for grant in grants:
                    grant.check()
    return table
