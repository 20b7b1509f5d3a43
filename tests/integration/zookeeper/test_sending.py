"""A thread that asks sends its request itself, and nobody else's waits because of that."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import coordlock_zookeeper
import pytest
from coordlock_zookeeper import connection
from coordlock_zookeeper.connection import Connection

import coordlock
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.zookeeper.conftest import BOUND
from tests.unit.signals import Signal, interrupted


# Minutes; `tests/unit/test_interrupts.py` proves the same of the kernel.
@pytest.mark.long
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


def test_a_signal_handler_may_use_the_client_in_the_midst_of_sending(
    zookeeper: ZooKeeper, root: str
) -> None:
    """A fault test: what it strikes ends as in a short outage, and the session goes on."""
    with coordlock.connect(zookeeper.url_for(root, ttl="60s")) as client:
        held = client.lock("held").acquire(timeout=BOUND)

        def handle() -> None:
            client.lock("y").acquire(timeout=BOUND).release()

        for number in range(1, 1_000, 2):
            with Signal(number, handle, connection) as signal:
                client.lock("x").acquire(timeout=BOUND).release()
            if not signal.came:
                break
        else:
            pytest.fail("it has no end")
        held.check()


def test_a_signal_handler_that_stays_long_keeps_no_other_thread_waiting(
    zookeeper: ZooKeeper, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It strikes while its thread sends, and waits for what another thread does."""
    send, came = Connection.send_now, list[bool]()

    def struck(connection: Connection, *current: Any) -> bool:
        if threading.current_thread() is threading.main_thread() and not came:
            came.append(True)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(client.lock("y").acquire, timeout=BOUND).result(BOUND).release()
        return send(connection, *current)

    monkeypatch.setattr(Connection, "send_now", struck)
    with coordlock.connect(zookeeper.url_for(root, ttl="60s")) as client:
        held = client.lock("held").acquire(timeout=BOUND)
        client.lock("x").acquire(timeout=BOUND).release()
        assert came
        held.check()
