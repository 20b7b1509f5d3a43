"""Under faults at random, every view is a state that was, in order, and knows how old it is."""

from __future__ import annotations

import random
import time
from typing import Final

import pytest

from coordlock.backend import Listing, Observation, View
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.disturbing import disturbed
from tests.integration.zookeeper.conftest import BOUND, Parties
from tests.integration.zookeeper.history import History, Writer, check

pytestmark = pytest.mark.faults

#: For how many seconds there are faults.
DURATION: Final = 10.0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_whatever_breaks_observers_know_what_they_see(
    zookeeper: ZooKeeper, parties: Parties, proxy: FaultProxy, root: str, seed: int
) -> None:
    chance = random.Random(seed)
    url = f"zookeeper://127.0.0.1:{proxy.port}{root}?ttl=3s"
    observer = parties(url, opened=False).backend
    writers = [parties(zookeeper.url_for(root), opened=False).backend for _ in range(2)]
    folder = f"{root}-data/"
    views: list[View[Listing]] = []
    seen: list[Observation[Listing]] = []

    def look() -> None:
        if seen:
            views.append(seen[0].view)

    seen.append(observer.follow(folder, look))
    with (
        Writer(writers[0], folder, random.Random(seed)) as one,
        Writer(writers[1], folder, random.Random(seed + 1000)) as two,
        disturbed(proxy, chance),
    ):
        time.sleep(DURATION)
    history = History(one, two)
    newest = history.at(history.revisions[-1])

    def is_up_to_date() -> bool:
        view = seen[0].view
        return (
            view.stale_since is None
            and view.state is not None
            and {key: value.data for key, value in view.state.values.items()} == newest
        )

    eventually(is_up_to_date)
    check(views, history)
    assert len({view.state.revision for view in views if view.state is not None}) > 1
    assert any(view.stale_since is not None for view in views)
    assert {k: v.data for k, v in observer.read(folder).result(BOUND).values.items()} == newest
