"""A thread that waits reads its own answer, and nobody else's waits because of that."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import coordlock_zookeeper
import pytest
from coordlock_zookeeper import ZookeeperBackend
from coordlock_zookeeper.receiving import Receiving

import coordlock
from coordlock.runtime.driver import Steps, run
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.zookeeper.conftest import BOUND, Parties, Party
from tests.unit.signals import interrupted


def receiving_of(backend: Any) -> Receiving:
    assert isinstance(backend, ZookeeperBackend)
    assert backend._current is not None
    receiving = backend._current.session.client._connection._write_sock
    assert isinstance(receiving, Receiving)
    return receiving


def asleep(party: Party) -> Party:
    """Wait until the I/O thread of ``party`` sleeps."""
    receiving = receiving_of(party.backend)
    eventually(lambda: receiving._sleeps and not receiving.left())
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
    receiving = receiving_of(asleep(party).backend)
    receives = threading.Event()

    def steps() -> Steps[None]:
        yield None
        party.backend.snapshot("q", upto)
        receives.set()
        receiving.receive(lambda: False, 10 * BOUND)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(run, steps())
        assert receives.wait(BOUND)
        for _ in range(20):
            party.backend.snapshot("q").result(BOUND)
        reading.result(BOUND)


def test_what_a_thread_asks_for_is_sent_when_it_blocks(proxied: str, parties: Parties) -> None:
    party = parties(proxied)
    _, upto, _ = party.enqueue()
    receiving = receiving_of(asleep(party).backend)
    left: list[int] = []

    def steps() -> Steps[None]:
        asked = party.backend.snapshot("q", upto)
        left.append(len(receiving.left()))
        yield asked
        left.append(len(receiving.left()))

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
