"""A thread that waits reads its own answer, and nobody else's waits because of that."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import coordlock_zookeeper
import pytest
from coordlock_zookeeper import ZookeeperBackend, buffered_socket, connection, receiving
from coordlock_zookeeper.connection import Connection
from coordlock_zookeeper.receiving import Receiving

import coordlock
from coordlock.runtime.driver import Steps, run
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.zookeeper.conftest import BOUND, Parties, Party
from tests.unit.signals import Signal, interrupted


def receiving_of(backend: Any) -> Receiving:
    assert isinstance(backend, ZookeeperBackend)
    assert backend._current is not None
    found = backend._current.session.client._connection._write_sock
    assert isinstance(found, Receiving)
    return found


def asleep(party: Party) -> Party:
    """Wait until the I/O thread of ``party`` sleeps."""
    used = receiving_of(party.backend)
    eventually(lambda: used._sleeps and not used.left())
    return party


def answering_thread(party: Party) -> threading.Thread:
    """Which thread tells the calling one, which waits, what the service has answered."""
    threads: list[threading.Thread] = []
    _, upto, _ = party.enqueue()
    asleep(party)

    def steps() -> Steps[None]:
        answer = party.backend.snapshot("q", upto)
        answer.add_done_callback(lambda _: threads.append(threading.current_thread()))
        yield answer

    run(steps())
    return threads[0]


def test_a_thread_that_waits_reads_its_own_answer(proxied: str, parties: Parties) -> None:
    assert answering_thread(parties(proxied)) is threading.current_thread()


def test_an_answer_for_another_thread_is_not_kept_until_the_reader_has_its_own(
    proxied: str, parties: Parties
) -> None:
    """And the reader's wait ends, as from then on its own answers come to the thread for I/O."""
    party = parties(proxied)
    _, upto, _ = party.enqueue()
    used = receiving_of(asleep(party).backend)
    receives = threading.Event()

    def steps() -> Steps[None]:
        yield None
        party.backend.snapshot("q", upto)
        receives.set()
        used.receive(lambda: False, 10 * BOUND)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(run, steps())
        assert receives.wait(BOUND)
        for _ in range(20):
            party.backend.snapshot("q").result(BOUND)
        reading.result(BOUND)


def test_what_a_thread_asks_for_is_sent_when_it_blocks(proxied: str, parties: Parties) -> None:
    party = parties(proxied)
    _, upto, _ = party.enqueue()
    used = receiving_of(asleep(party).backend)
    left: list[int] = []

    def steps() -> Steps[None]:
        asked = party.backend.snapshot("q", upto)
        left.append(len(used.left()))
        yield asked
        left.append(len(used.left()))

    run(steps())
    assert left == [1, 0]


@pytest.mark.parametrize("waits", [False, True], ids=["free", "held"])
def test_ctrl_c_at_any_moment_keeps_nobody_waiting(
    zookeeper: ZooKeeper, root: str, waits: bool
) -> None:
    """A fault test: whatever a signal handler ends, others get the lock, and the client works."""
    url = zookeeper.url_for(root, ttl="60s")
    with coordlock.connect(url) as client, coordlock.connect(url) as other:
        for number in range(1, 2_000):
            grant = other.lock("x").acquire(timeout=BOUND) if waits else None
            release = threading.Timer(0.01, grant.release) if grant is not None else None

            def act(release: threading.Timer | None = release) -> None:
                if release is not None:
                    release.start()
                client.lock("x").acquire(timeout=BOUND).release()

            came = interrupted(act, number, coordlock_zookeeper)
            if release is not None:
                if release.ident is None:
                    release.start()
                release.join()
            other.lock("x").acquire(timeout=BOUND).release()
            client.lock("x").acquire(timeout=BOUND).release()
            if not came:
                break
        else:
            pytest.fail("it has no end")


def test_ctrl_c_that_ends_the_program_leaves_nobody_in_the_queue(
    zookeeper: ZooKeeper, root: str
) -> None:
    """A fault test: the session ends at once, though Ctrl-C has ended the connection, too."""
    url = zookeeper.url_for(root, ttl="60s")
    with coordlock.connect(url) as other:
        for number in range(1, 1_000, 2):
            with coordlock.connect(url) as client:
                client.lock("y").acquire(timeout=BOUND).release()

                def act(client: coordlock.Client = client) -> None:
                    client.lock("x").acquire(timeout=BOUND).release()

                came = interrupted(act, number, coordlock_zookeeper)
            other.lock("x").acquire(timeout=BOUND).release()
            if not came:
                break
        else:
            pytest.fail("it has no end")


def test_threads_of_one_client_do_not_disturb_each_other(zookeeper: ZooKeeper, root: str) -> None:
    """Each becomes the receiver while another one waits for what the I/O thread has read."""
    over = time.monotonic() + 2

    def act(client: coordlock.Client, number: int) -> None:
        lock = client.lock(f"x{number}")
        while time.monotonic() < over:
            lock.acquire(timeout=BOUND).release()
            time.sleep(random.uniform(0, 0.004))

    with coordlock.connect(zookeeper.url_for(root)) as client, ThreadPoolExecutor(4) as pool:
        for acting in [pool.submit(act, client, number) for number in range(4)]:
            acting.result(BOUND)


@pytest.mark.parametrize("module", [buffered_socket, connection, receiving])
def test_a_signal_handler_may_use_the_client_in_the_midst_of_sending_or_receiving(
    zookeeper: ZooKeeper, root: str, module: ModuleType
) -> None:
    """A fault test: what it strikes ends as in a short outage, and the session goes on."""
    with coordlock.connect(zookeeper.url_for(root, ttl="60s")) as client:
        held = client.lock("held").acquire(timeout=BOUND)

        def handle() -> None:
            client.lock("y").acquire(timeout=BOUND).release()

        for number in range(1, 1_000, 2):
            with Signal(number, handle, module) as signal:
                client.lock("x").acquire(timeout=BOUND).release()
            if not signal.came:
                break
        else:
            pytest.fail("it has no end")
        held.check()


def test_a_signal_handler_that_stays_long_keeps_no_other_thread_waiting(
    zookeeper: ZooKeeper, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It strikes while its thread takes what has come, and waits for what another thread does."""
    take, came = Connection.take, list[bool]()

    def struck(connection: Connection) -> None:
        if threading.current_thread() is threading.main_thread() and not came:
            came.append(True)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(client.lock("y").acquire, timeout=BOUND).result(BOUND).release()
        take(connection)

    monkeypatch.setattr(Connection, "take", struck)
    with coordlock.connect(zookeeper.url_for(root, ttl="60s")) as client:
        held = client.lock("held").acquire(timeout=BOUND)
        client.lock("x").acquire(timeout=BOUND).release()
        assert came
        held.check()
