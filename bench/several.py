"""Several locks at once, trees, and conversions, against one plain lock of the same client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import coordlock
from bench.figures import Spread, ratios, spread
from bench.gatherings import handoff
from bench.progress import doing
from bench.services import CLUSTERS, service
from bench.table import Plot, Table

__all__ = ["measure"]

_NAMES = [f"name{number}" for number in range(10)]
#: Seconds that the proxy adds each way.
_DELAY = 0.005
#: How many hold a leaf under one root.
_HOLDERS = 1000


def measure(rounds: int) -> Iterator[Table]:
    for name in (*CLUSTERS, "local"):
        with service(name) as server:
            if name in CLUSTERS:
                with server.proxy() as proxy:
                    proxy.delay(_DELAY)
                    far = server.behind(proxy).url("/far")
                    where = f"{name}, {_DELAY * 1e3:g} ms each way"
                    yield _at_once(where, far, max(3, rounds // 6), 3, target=1.3)
                yield _at_once(name, server.url(), rounds, 10)
            else:
                yield _at_once(name, server.url(), rounds, 50, target=8.0)
            yield _among_many(name, server.url(), rounds)


def _at_once(where: str, url: str, rounds: int, calls: int, target: float | None = None) -> Table:
    table = Table(
        f"Ten locks, a tree, a conversion: {where}",
        ("what", "acquire, x one lock's", "pair, x one lock's", "pair, ms"),
        notes=[f"{rounds} rounds in turns of {calls} each; the plot's line is the goal for ten"],
        plot=Plot("acquire, x one lock's", "what", target=target),
    )
    with coordlock.connect(url) as client:
        upgradeable = client.upgradeable_lock("upgraded")
        ways: dict[str, Callable[[], tuple[float, float]]] = {
            "one lock": partial(_pair, client.lock("one").acquire),
            "ten at once": partial(_pair, client.multi_lock(_NAMES).acquire),
            "ten, one after the other": partial(_one_by_one, client),
            "a node of depth 4": partial(_pair, client.tree_lock("a/b/c/d").acquire),
            "acquire, upgrade, release": partial(_pair, partial(_upgraded, upgradeable)),
        }
        for way in ways.values():
            way()  # the queues' nodes exist from then on
        acquires: dict[str, list[float]] = {what: [] for what in ways}
        pairs: dict[str, list[float]] = {what: [] for what in ways}
        for number in range(rounds):
            doing(where, number, rounds)
            for what, way in ways.items():
                times = [way() for _ in range(calls)]
                acquires[what].append(sum(acquire for acquire, _ in times) / calls)
                pairs[what].append(sum(acquire + release for acquire, release in times) / calls)
    for what in ways:
        table.add(
            what,
            ratios(acquires[what], acquires["one lock"]),
            ratios(pairs[what], pairs["one lock"]),
            spread(pairs[what]).median * 1e3,
        )
    return table


def _pair(acquire: Callable[[], Any]) -> tuple[float, float]:
    began = time.perf_counter()
    grant = acquire()
    acquired = time.perf_counter()
    grant.release()
    return acquired - began, time.perf_counter() - acquired


def _one_by_one(client: coordlock.Client) -> tuple[float, float]:
    began = time.perf_counter()
    grants = [client.lock(name).acquire() for name in _NAMES]
    acquired = time.perf_counter()
    for grant in reversed(grants):
        grant.release()
    return acquired - began, time.perf_counter() - acquired


def _upgraded(lock: coordlock.types.UpgradeableLock) -> coordlock.types.UpgradeableGrant:
    grant = lock.acquire()
    grant.upgrade()
    return grant


def _among_many(where: str, url: str, rounds: int) -> Table:
    table = Table(
        f"One more leaf where {_HOLDERS:,} others are held: {where}",
        ("what", "acquire, x a plain lock's", "handoff, x a plain lock's"),
        notes=[
            f"{rounds} rounds in turns; all under one root, by a client of its own",
            "handoff: from before the release of one client to the grant of another",
        ],
        plot=Plot("acquire, x a plain lock's", "what"),
    )
    with (
        coordlock.connect(url) as client,
        coordlock.connect(url) as other,
        coordlock.connect(url) as many,
        ThreadPoolExecutor(1) as pool,
    ):
        plain, leaf = "plain", "root/leaf"
        ways: dict[str, tuple[Any, Any]] = {
            plain: (client.lock(plain), other.lock(plain)),
            leaf: (client.tree_lock(leaf), other.tree_lock(leaf)),
        }
        found: dict[str, tuple[Spread, Spread]] = {}
        for what, holders in (("alone", 0), (f"beside {_HOLDERS:,}", _HOLDERS)):
            doing(f"{where}: {holders} holders")
            held = [many.tree_lock(f"root/{number}").acquire() for number in range(holders)]
            times: dict[str, list[float]] = {name: [] for name in ways}
            handed: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(rounds):
                doing(f"{where}: {what}", number, rounds)
                for name, (mine, theirs) in ways.items():
                    times[name].append(_pair(mine.acquire)[0])
                    handed[name].append(handoff(mine.acquire, theirs.acquire, client, name, pool))
            found[what] = ratios(times[leaf], times[plain]), ratios(handed[leaf], handed[plain])
            for grant in held:
                grant.release()
    for what, (acquired, passed) in found.items():
        table.add(f"a leaf, {what}", acquired, passed)
    return table
