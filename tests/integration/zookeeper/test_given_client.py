"""``connect(client=...)``: the application's `KazooClient` is used, and stays the application's."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

import coordlock
from coordlock.errors import BackendError, BackendUnavailable, ConfigurationError, SessionLost
from coordlock.runtime.process import THREAD
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ZooKeeper, children
from tests.integration.zookeeper.conftest import BOUND, Parties, Party, new_entry
from tests.integration.zookeeper.test_sessions import ShortSessions

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def url(zookeeper: ZooKeeper, root: str) -> str:
    return zookeeper.url_for(root)


def test_the_session_is_the_clients(url: str, parties: Parties, kazoo: Any) -> None:
    party = parties(url, kazoo, opened=False)
    info = party.open()
    assert info.shared
    assert int(info.id, 16) == kazoo.client_id[0] % 2**64
    _, contender, _ = party.enqueue()
    assert kazoo.exists(contender.key).ephemeralOwner == kazoo.client_id[0]


def test_its_threads_wait_for_nothing_that_a_program_leaves_there(
    url: str, parties: Parties, kazoo: Any
) -> None:
    """A collection of garbage may end a block there, whose release would wait."""
    party = parties(url, kazoo)
    entry, contender, snapshot = party.enqueue()
    events, answers = list[bool](), list[bool]()
    party.backend.watch(contender, snapshot.revision, lambda _: events.append(THREAD.must_not_wait))

    def is_answered_there() -> bool:
        done = party.backend.heartbeat()
        done.add_done_callback(lambda _: answers.append(THREAD.must_not_wait))
        done.result(BOUND)
        return any(answers)

    eventually(is_answered_there)  # a quick answer calls back in this thread
    party.backend.withdraw([entry]).result(BOUND)
    eventually(lambda: events == [True])


class Counting(KazooClient):  # type: ignore[misc]
    """A client of an application that has its own idea of some methods."""

    stopped = 0

    def __del__(self) -> None:
        self.stop()

    def stop(self) -> None:
        self.stopped += 1
        super().stop()


def test_it_may_be_of_a_subclass(zookeeper: ZooKeeper, url: str) -> None:
    own = Counting(**zookeeper.kazoo_options())
    own.start(BOUND)
    try:
        for _ in range(2):
            with coordlock.connect(url, client=own) as client:
                client.lock("orders").acquire().release()
            gc.collect()
            assert own.stopped == 0, "it is the application's to stop"
            assert own.connected
    finally:
        own.stop()
        own.close()


def test_closing_leaves_the_client_and_its_contenders_alone(
    url: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(url, kazoo)
    _, contender, _ = party.enqueue()
    before = set(kazoo.state_listeners)
    party.backend.close().result(BOUND)
    assert kazoo.connected
    assert kazoo.exists(contender.key) is not None
    assert len(kazoo.state_listeners) == len(before) - 1
    with pytest.raises(BackendUnavailable):
        party.backend.heartbeat().result(BOUND)


def test_an_answer_after_closing_leaves_no_contender(
    proxy: FaultProxy, root: str, parties: Parties, kazoo: Any
) -> None:
    own = KazooClient(f"127.0.0.1:{proxy.port}")
    own.start(BOUND)
    try:
        party = parties(f"zookeeper://127.0.0.1:{proxy.port}{root}", own)
        _, first, _ = party.enqueue()
        proxy.replies.black_hole()
        answer = party.backend.enqueue([new_entry()])
        party.backend.close().result(BOUND)
        assert isinstance(answer.exception(BOUND), BackendUnavailable)
        eventually(lambda: len(kazoo.get_children(f"{root}/q")) == 2)
        proxy.heal()
        eventually(lambda: len(kazoo.get_children(f"{root}/q")) == 1, "the late one to be removed")
        assert kazoo.exists(first.key) is not None
    finally:
        own.stop()
        own.close()


@pytest.mark.parametrize("outage", ["nothing gets through", "the connection is refused"])
def test_what_closing_could_not_remove_in_an_outage_is_removed_after_it(
    proxy: FaultProxy, root: str, kazoo: Any, outage: str
) -> None:
    own = KazooClient(
        f"127.0.0.1:{proxy.port}", timeout=40, connection_retry={"max_tries": -1, "max_delay": 0.5}
    )
    own.start(BOUND)
    try:
        session, listeners = own.client_id, set(own.state_listeners)
        url = f"zookeeper://127.0.0.1:{proxy.port}{root}?request_timeout=2s"
        with coordlock.connect(url, client=own) as client:
            client.lock("q").acquire()
            if outage == "nothing gets through":
                proxy.black_hole()
            else:
                proxy.refuse()
                proxy.drop_connections()
        assert len(kazoo.get_children(f"{root}/q")) == 1
        proxy.heal()
        eventually(lambda: not children(kazoo, f"{root}/q"))
        assert own.client_id == session
        eventually(lambda: set(own.state_listeners) == listeners)
    finally:
        own.stop()
        own.close()


def test_what_closing_left_to_be_done_ends_when_the_given_client_is_stopped(
    proxy: FaultProxy, root: str
) -> None:
    own = KazooClient(f"127.0.0.1:{proxy.port}", timeout=40)
    own.start(BOUND)
    url = f"zookeeper://127.0.0.1:{proxy.port}{root}?request_timeout=1s"
    with coordlock.connect(url, client=own) as client, ThreadPoolExecutor() as pool:
        grant = client.lock("q").acquire()
        proxy.refuse()
        proxy.drop_connections()
        session = client._engine.sessions.latest
        assert session is not None
        session.end(session._too_late())  # long before the server's
        assert grant.lost.is_set()
        waiting = pool.submit(client.lock("r").acquire)
        eventually(
            lambda: client._engine.sessions._starting is not None, "another session to be opened"
        )
        client.close()
        assert isinstance(waiting.exception(BOUND), coordlock.errors.ClientClosed)
    assert client._engine.tickets
    own.stop()
    own.close()
    eventually(lambda: not client._engine.tickets)


def test_the_chroot_is_respected(
    zookeeper: ZooKeeper, root: str, url: str, parties: Parties, kazoo: Any
) -> None:
    kazoo.ensure_path(f"{root}/jail")
    with zookeeper.kazoo(hosts=f"{zookeeper.endpoint.hosts[0]}{root}/jail") as jailed:
        party = parties("zookeeper://x/locks", jailed)
        _, contender, snapshot = party.enqueue()
        assert contender.key.startswith("/locks/q/")
        assert kazoo.exists(f"{root}/jail{contender.key}") is not None
        # The queue's node is a container: it goes when it is empty.
        departed = threading.Event()
        party.backend.watch(contender, snapshot.revision, lambda _: departed.set())
        assert party.backend.evict(contender).result(BOUND)
        assert departed.wait(BOUND)
        eventually(lambda: not kazoo.exists(f"{root}/jail/locks/q"), "the container to be reaped")


@pytest.mark.filterwarnings("ignore:No chroot")
@pytest.mark.parametrize("below", ["", "/locks"])
def test_a_chroot_that_does_not_exist_is_named_at_once(
    zookeeper: ZooKeeper, root: str, parties: Parties, below: str
) -> None:
    options = {"hosts": f"{zookeeper.endpoint.hosts[0]}{root}/missing"}
    with zookeeper.kazoo(**options) as jailed:
        party = parties(f"zookeeper://x{below or '/'}", jailed)
        error = party.backend.enqueue([new_entry()]).exception(BOUND)
        assert type(error) is BackendError
        assert f"chroot {root}/missing" in str(error)


def test_the_granted_time_to_live_is_found_out(tmp_path: Path, parties: Parties) -> None:
    with ShortSessions(tmp_path / "short") as server, server.kazoo(timeout=40) as kazoo:
        party = parties(server.url_for("/x"), kazoo, opened=False)
        assert party.open().ttl == 2


def test_a_lost_session_is_told_and_the_clients_next_one_can_be_used(
    zookeeper: ZooKeeper, url: str, parties: Parties
) -> None:
    with zookeeper.kazoo() as kazoo:
        party = parties(url, kazoo, opened=False)
        before = party.open()
        departed = threading.Event()
        _, contender, snapshot = party.enqueue()
        party.backend.watch(contender, snapshot.revision, lambda _: departed.set())
        with zookeeper.kazoo(client_id=kazoo.client_id):
            pass
        assert party.lost.wait(BOUND)
        with pytest.raises(SessionLost):
            party.backend.heartbeat().result(BOUND)
        assert kazoo.handler.running
        eventually(lambda: kazoo.connected)
        after = party.open()
        assert after.id != before.id
        party.enqueue()
        assert not departed.is_set()


def test_stopping_the_client_loses_the_session(
    zookeeper: ZooKeeper, url: str, parties: Parties
) -> None:
    with zookeeper.kazoo() as kazoo:
        party = parties(url, kazoo)
        kazoo.stop()
        assert party.lost.wait(BOUND)
        assert party.events == ["lost: the client was closed"]
        opening = party.opening()
        with pytest.raises(BackendUnavailable, match="not connected"):
            opening.result(BOUND)


def test_watches_come_back_with_a_given_clients_connection(
    proxy: FaultProxy, root: str, parties: Parties, kazoo: Any
) -> None:
    """More of them than kazoo's socket pair holds."""
    own = KazooClient(f"127.0.0.1:{proxy.port}")
    own.start(BOUND)
    try:
        party = parties(f"zookeeper://127.0.0.1:{proxy.port}{root}", own)
        made = [party.enqueue(f"q{number}") for number in range(600)]
        left = {contender.key for _, contender, _ in made}
        for _, contender, snapshot in made:
            gone = partial(left.discard, contender.key)
            party.backend.watch(contender, snapshot.revision, lambda _, gone=gone: gone())  # type: ignore[misc]
        proxy.drop_connections()
        party.recovers()
        for answer in [kazoo.delete_async(contender.key) for _, contender, _ in made]:
            answer.get(timeout=BOUND)
        eventually(lambda: not left, "all departures")
    finally:
        own.stop()
        own.close()


def test_what_cannot_be_used_is_refused(url: str) -> None:
    class Other(SequentialThreadingHandler):  # type: ignore[misc]
        pass

    with pytest.raises(ConfigurationError, match="must be a KazooClient, not a str"):
        Party(url, "127.0.0.1")
    with pytest.raises(ConfigurationError, match="not started"):
        Party(url, KazooClient())
