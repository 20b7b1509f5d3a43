"""Elections of real processes, whose leaders are killed and paused one after the other."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper

pytestmark = pytest.mark.faults

CANDIDATE = Path(__file__).with_name("candidate.py")
BOUND = 60.0


class Candidates:
    """Five processes; one that is killed is replaced. They write down when they acted."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = directory
        self._numbers = itertools.count()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        value = f"c{next(self._numbers)}"
        with (self._directory / value).open("wb") as output:
            command = [sys.executable, str(CANDIDATE), self._url, value]
            self.processes[value] = subprocess.Popen(
                command, stdout=output, stderr=subprocess.DEVNULL
            )

    def kill(self, value: str) -> None:
        process = self.processes.pop(value)
        process.kill()
        process.wait()

    def acts(self) -> dict[int, list[float]]:
        """When each term acted, by its token."""
        acts: dict[int, list[float]] = {}
        for file in self._directory.iterdir():
            for line in file.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # else it was killed meanwhile
                    token, moment = line.split()
                    acts.setdefault(int(token), []).append(float(moment))
        return acts


@pytest.fixture
def candidates(server: Etcd | ZooKeeper, root: str, tmp_path: Path) -> Iterator[Candidates]:
    candidates = Candidates(server.url_for(root, ttl="2s"), tmp_path)
    try:
        yield candidates
    finally:
        for value in list(candidates.processes):
            candidates.kill(value)


@pytest.fixture(params=["etcd", "zookeeper"])
def server(request: pytest.FixtureRequest) -> Etcd | ZooKeeper:
    server: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    return server


class Watcher:
    """An observer with a client of its own, and all that it was told."""

    def __init__(self, client: coordlock.Client) -> None:
        self.leaders = client.election("leader").observe()
        self.seen: list[coordlock.types.Candidate | None] = []

    def follow(self) -> None:
        self.seen.extend(self.leaders)

    @property
    def now(self) -> str | None:
        last = self.seen[-1] if self.seen else None
        return None if last is None else last.value.decode()


def agree(watchers: list[Watcher], before: str | None) -> bool:
    """Whether all of them see the same leader, and another than ``before``."""
    [now, *others] = {one.now for one in watchers}
    return not others and now not in (None, before)


@pytest.mark.parametrize(
    "rounds", [6, pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_leaders_that_are_killed_and_paused_are_followed_in_order(
    candidates: Candidates, server: Etcd | ZooKeeper, root: str, rounds: int
) -> None:
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(3))
        clients = [stack.enter_context(coordlock.connect(server.url_for(root))) for _ in range(3)]
        watchers = [Watcher(client) for client in clients]
        following = [pool.submit(watcher.follow) for watcher in watchers]
        for _ in range(5):
            candidates.start()
        before: str | None = None
        ended: set[int] = set()  # perhaps before they acted
        for number in range(rounds):
            # Each leader stays until all have seen it: so none of these terms may be left out.
            eventually(partial(agree, watchers, before), within=BOUND)
            leader = watchers[0].seen[-1]
            assert leader is not None
            before = leader.value.decode()
            ended.add(leader.token or 0)
            if number % 2:
                paused = candidates.processes[before].pid
                os.kill(paused, signal.SIGSTOP)
                try:
                    eventually(partial(agree, watchers, before), within=BOUND)
                finally:
                    os.kill(paused, signal.SIGCONT)
            else:
                candidates.kill(before)
                candidates.start()
        eventually(partial(agree, watchers, before), within=BOUND)
        last = clients[0].election("leader").leader()
        assert last is not None
        for watcher in watchers:
            assert watcher.seen[-1] == last
            watcher.leaders.close()
        for one in following:
            one.result(BOUND)
    acts = candidates.acts()
    terms = sorted(acts)
    for watcher in watchers:
        tokens = [one.token or 0 for one in watcher.seen if one is not None]
        assert tokens == sorted(set(tokens))  # never an older term after a newer, none twice
        assert len(tokens) > rounds
        assert ended <= set(tokens) <= set(terms) | ended | {last.token}
    # No leader acts once a later one does.
    for earlier, later in itertools.pairwise(terms):
        assert max(acts[earlier]) < min(acts[later])
