"""Groups whose service is silent for longer than their members' time-to-live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

import coordlock
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd, EtcdServer
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperServer

pytestmark = pytest.mark.faults

TTL = 3.0
BOUND = 60.0


class Watcher:
    """All views that an observer gives."""

    def __init__(self, observer: coordlock.types.Observer[coordlock.types.GroupView]) -> None:
        self.observer = observer
        self.views = [observer.next(BOUND)]
        self._thread = Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        for view in self.observer:
            self.views.append(view)

    @property
    def confirmed(self) -> set[bytes]:
        """Who is there for certain."""
        return {one.value for one in self.observer.state.members if one.confirmed}

    def close(self) -> None:
        self.observer.close()
        self._thread.join(BOUND)


@pytest.fixture(params=["etcd", "zookeeper"])
def service(request: pytest.FixtureRequest) -> Etcd | ZooKeeper:
    service: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    return service


def cut_off(proxy: FaultProxy) -> None:
    """Silence, in both directions, for all that go through ``proxy``."""
    proxy.black_hole()


def healed(proxy: FaultProxy) -> None:
    """The end of it; what was held back is lost."""
    proxy.drop_connections()
    proxy.heal()


def test_after_an_outage_those_that_were_there_are_shown_until_they_return(
    service: Etcd | ZooKeeper, root: str
) -> None:
    """The fault: nothing gets through for longer than the time-to-live; the observer is first."""
    with ExitStack() as stack:
        near, far = (stack.enter_context(FaultProxy(service.host, service.port)) for _ in range(2))

        def client(proxy: FaultProxy | None = None) -> coordlock.Client:
            url = service.url_for(root, ttl=f"{TTL}s")
            if proxy is not None:
                url = url.replace(f":{service.port}", f":{proxy.port}")
            return stack.enter_context(coordlock.connect(url))

        witness, observing = client(), client(near)
        wanted = {b"one", b"two"}
        for value in sorted(wanted):
            stack.enter_context(client(far).group("g").keep_joined(value))
        patient = Watcher(observing.group("g").observe(grace="30s"))
        stack.callback(patient.close)
        hasty = Watcher(observing.group("g").observe(grace=0))
        stack.callback(hasty.close)
        ids = {member.id for member in patient.views[0].members}
        assert patient.confirmed == wanted
        for _ in range(2):
            cut_off(near)
            cut_off(far)
            eventually(lambda: witness.group("g").members() == (), within=BOUND)
            eventually(lambda: (patient.observer.stale_for or 0.0) > TTL, within=BOUND)
            healed(near)
            eventually(lambda: hasty.confirmed == patient.confirmed == set(), within=BOUND)
            assert set(patient.observer.state.values) == wanted
            assert hasty.observer.state.members == ()
            healed(far)
            eventually(lambda: hasty.confirmed == patient.confirmed == wanted, within=BOUND)
        for view in patient.views:
            assert set(view.values) == wanted
            assert {member.id for member in view.members} == ids
            assert not view.left
        assert set(patient.views[0].joined) == set(patient.views[0].members)
        assert not any(view.joined for view in patient.views[1:])


@pytest.fixture(
    params=[
        pytest.param(EtcdServer, marks=pytest.mark.etcd, id="etcd"),
        pytest.param(ZooKeeperServer, marks=pytest.mark.zookeeper, id="zookeeper"),
    ]
)
def server(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[EtcdServer | ZooKeeperServer]:
    """A server of the test's own, to pause."""
    start: Callable[[Path], EtcdServer | ZooKeeperServer] = request.param
    with start(tmp_path / "server") as running:
        yield running


def test_whoever_does_not_return_from_an_outage_has_left_after_the_grace(
    server: EtcdServer | ZooKeeperServer, root: str
) -> None:
    """The fault: the server stands still until all sessions have ended."""
    url = server.url_for(root, ttl=f"{TTL}s")
    with (
        coordlock.connect(url) as client,
        coordlock.connect(url) as other,
        client.group("g").keep_joined(b"stays") as presence,
    ):
        once = client.group("g").join(b"once")
        watcher = Watcher(other.group("g").observe())
        try:
            server.pause()
            try:
                eventually(lambda: once.lost.is_set() and not presence.is_member, within=BOUND)
                eventually(lambda: (watcher.observer.stale_for or 0.0) > TTL, within=BOUND)
            finally:
                server.resume()
            eventually(lambda: watcher.observer.state.values == (b"stays",), within=BOUND)
            eventually(lambda: watcher.views[-1].values == (b"stays",), within=BOUND)
            assert all(b"stays" in view.values for view in watcher.views)
            assert [one.value for view in watcher.views for one in view.left] == [b"once"]
        finally:
            watcher.close()
