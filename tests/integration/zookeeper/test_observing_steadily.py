"""What changes without a pause is shown, and each view of it is a state that was."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from coordlock_zookeeper import ZookeeperBackend
from coordlock_zookeeper.places import FolderPlace

from coordlock.backend import Listing, Observation, Put, Queue, View
from coordlock.model.claim import Mode
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble
from tests.integration.zookeeper.conftest import BOUND, Parties
from tests.integration.zookeeper.history import History, Writer, check

#: Of keys, and of contenders.
NAMES = "abcdefghijklmnopqrst"


@pytest.fixture
def far(parties: Parties, proxy: FaultProxy, root: str) -> ZookeeperBackend:
    """A client with a round trip of ten milliseconds, which probes every second."""
    proxy.delay(0.005)
    url = f"zookeeper://127.0.0.1:{proxy.port}{root}?ttl=3s"
    return parties(url, opened=False).backend


@pytest.fixture
def folder(root: str) -> str:
    return f"{root}-data/"


@pytest.fixture
def writer(parties: Parties, zookeeper: ZooKeeper, root: str, folder: str) -> Writer:
    """One that writes some of the keys of the folder without a pause."""
    return steady(parties(zookeeper.url_for(root), opened=False).backend, folder)


def steady(backend: ZookeeperBackend, folder: str) -> Writer:
    """A writer of ``folder``, all of whose keys are there."""
    writer = Writer(backend, folder, random.Random(1), names=NAMES, steady=True)
    written = backend.write([Put(folder + name, b"") for name in NAMES]).result(BOUND)
    writer.writes[written.revision] = 0.0, {folder + name: b"" for name in NAMES}
    return writer


class Views:
    """Each view that an observation had when it told of news."""

    def __init__(self, begin: Callable[[Callable[[], None]], Observation[Any]]) -> None:
        self.all: list[View[Any]] = []
        self._observation: Observation[Any] | None = None
        self._observation = begin(self._look)

    def _look(self) -> None:
        if self._observation is not None:
            self.all.append(self._observation.view)

    @property
    def revisions(self) -> set[int]:
        return {view.state.revision for view in self.all.copy() if view.state is not None}


def test_a_folder_that_is_written_without_a_pause_is_shown(
    far: ZookeeperBackend, writer: Writer, folder: str
) -> None:
    with writer:
        views = Views(partial(far.follow, folder))
        eventually(lambda: len(views.revisions) >= 10, "ten views", within=2 * BOUND)
    check(views.all, History(writer))


@pytest.mark.faults
def test_leader_and_followers_show_states_of_the_one_history(
    tmp_path: Path, parties: Parties, root: str, folder: str
) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble, ExitStack() as stack:
        backend = parties(ensemble.leader().url_for(root), opened=False).backend
        writer = steady(backend, folder)
        views: list[Views] = []
        with writer:
            for member in ensemble.members:
                proxy = stack.enter_context(FaultProxy(member.host, member.port, ZooKeeperFrames))
                proxy.delay(0.005)
                url = f"zookeeper://127.0.0.1:{proxy.port}{root}?ttl=6s"
                observer = parties(url, opened=False).backend
                views.append(Views(partial(observer.follow, folder)))
            eventually(
                lambda: all(len(one.revisions) >= 10 for one in views), "views", within=2 * BOUND
            )
        for one in views:
            check(one.all, History(writer))


def test_a_folder_that_is_written_without_a_pause_is_read(
    far: ZookeeperBackend, writer: Writer, folder: str
) -> None:
    read: list[Listing] = []
    with writer:
        for _ in range(10):
            known = max(writer.writes.copy())
            read.append(far.read(folder).result(BOUND))
            assert read[-1].revision >= known
    check([View(one, None) for one in read], History(writer))


def test_a_queue_whose_values_change_without_a_pause_is_shown(
    far: ZookeeperBackend, parties: Parties, zookeeper: ZooKeeper, root: str
) -> None:
    party, chance = parties(zookeeper.url_for(root)), random.Random(1)
    there = {one.id: one for one in (party.enqueue("q", Mode.NL)[1] for _ in NAMES)}
    #: By contender, the versions of each state that was.
    history = [{id: one.version for id, one in there.items()}]
    ended = threading.Event()

    def publish() -> None:
        while not ended.is_set():
            now = dict(history[-1])
            id = chance.choice([*now])
            party.backend.publish(there[id], chance.randbytes(8), now[id]).result(BOUND)
            now[id] += 1
            history.append(now)

    views = Views(partial(far.follow, Queue("q")))
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        eventually(lambda: len(views.revisions) >= 10, "ten views", within=2 * BOUND)
    finally:
        ended.set()
        thread.join()
    left, last = iter(history), None
    for view in views.all:
        assert view.state is not None
        versions = {one.id: one.version for one in view.state.contenders}
        assert versions == last or versions in left
        last = versions


def test_what_changes_faster_than_it_can_be_read_is_in_doubt(
    far: ZookeeperBackend, writer: Writer, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = Views(partial(far.follow, folder))
    eventually(lambda: views.revisions)
    with writer:
        with monkeypatch.context() as fault:
            fault.setattr(FolderPlace, "advance", lambda _: False)  # no round proves anything
            eventually(lambda: views.all[-1].stale_since is not None)
        eventually(lambda: views.all[-1].stale_since is None)
    check(views.all, History(writer))
