"""Clients that connect at their first use, in each process anew."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordlock import AsyncClient, BackendUnavailable, Client, ConfigurationError, GrantState, Mode
from coordlock.errors import ClientClosed
from coordlock.kernel.access import Access
from coordlock.runtime import log
from coordlock.runtime.caller import this_caller
from tests.unit.clients import Service

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"local://{tmp_path}/state?request_timeout=30s"


def in_child(check: Callable[[], object]) -> None:
    """``check`` gives something true in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        except BaseException as error:
            traceback.print_exception(error)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def raises(kind: type[Exception], client: Client) -> bool:
    """Whether a use of ``client`` raises ``kind``."""
    with pytest.raises(kind):
        client.admin.names()
    return True


def test_nothing_is_done_before_the_first_use(url: str, tmp_path: Path) -> None:
    client = Client(url)
    lock = client.lock("q", timeout=30)

    @lock
    def work() -> int:
        return len(client.admin.contenders("q"))

    assert client.settings.root == f"{tmp_path}/state"
    assert repr(client) == f"<Client local://{tmp_path}/state>"
    assert not (tmp_path / "state").exists()
    assert work() == 1
    assert client.admin.names() == []
    client.close()
    assert repr(client).endswith(" closed>")


def test_what_is_wrong_with_the_configuration_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        Client("memory://", timeout="soon")
    with pytest.raises(ConfigurationError):
        AsyncClient("nosuch://host")


def test_a_service_that_is_down_at_the_first_use_is_an_error_within_the_connect_timeout(
    tmp_path: Path,
) -> None:
    (tmp_path / "state").touch()
    client = Client(f"local://{tmp_path}/state?request_timeout=30s")
    with pytest.raises(Exception, match="choose another directory"):
        client.lock("q").acquire()
    (tmp_path / "state").unlink()
    client.lock("q").acquire().release()  # it is up now
    client.close()


def test_a_service_that_is_silent_at_the_first_use_is_told_as_unavailable() -> None:
    client = Client("etcd://192.0.2.1:2379", connect_timeout=0.3, request_timeout=0.3)
    for timeout in (None, 30):
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match=r"etcd://192\.0\.2\.1:2379/coordlock"):
            client.lock("q").acquire(timeout)
        assert time.monotonic() - began < 25
    client.close()


def test_a_closed_client_connects_no_more(url: str) -> None:
    unused, used = Client(url), Client(url)
    used.admin.names()
    for client in (unused, used):
        client.close()
        client.close()
        with pytest.raises(ClientClosed):
            client.lock("q").acquire()
        with pytest.raises(ClientClosed):
            client.admin.names()


def test_a_client_that_is_closed_before_a_fork_connects_anew_in_the_child(url: str) -> None:
    client = Client(url)
    with client.lock("q"):
        pass
    client.close()

    def child() -> bool:
        with client.lock("q", timeout=30):
            assert len(client.admin.contenders("q")) == 1
        client.close()
        return raises(ClientClosed, client)

    in_child(child)
    assert raises(ClientClosed, client)


def test_a_child_that_closes_a_client_before_its_first_use_connects_no_more(url: str) -> None:
    client = Client(url)

    def child() -> bool:
        client.close()
        return raises(ClientClosed, client)

    in_child(child)
    assert client.admin.names() == []
    client.close()


def test_an_async_client_is_used_in_several_loops(url: str) -> None:
    client = AsyncClient(url)
    booked = []

    @client.lock("q", timeout=30)
    async def work(number: int) -> None:
        booked.append(number)

    async def both() -> None:
        await asyncio.gather(work(1), work(2))

    for _ in range(3):
        asyncio.run(both())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: asyncio.run(work(number)), range(3, 10)))
    assert len(booked) == 13
    asyncio.run(client.close())


def test_threads_that_come_first_together_share_one_session(url: str, tmp_path: Path) -> None:
    client = Client(url)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: client.lock(f"q{n}").acquire(30), range(32)))
    assert len(os.listdir(tmp_path / "state" / "sessions")) == 1
    client.close()


def test_a_child_has_a_session_of_its_own(url: str, tmp_path: Path) -> None:
    with Client(url) as client, client.lock("q", timeout=30) as grant:
        lock = client.lock("other")

        def child() -> bool:
            assert grant.state is GrantState.LOST
            assert "not this forked child" in str(grant.lost.reason)
            for use in (grant.check, grant.release):
                with pytest.raises(ClientClosed):
                    use()
            with lock as own:
                assert own.token > grant.token
                assert len(os.listdir(tmp_path / "state" / "sessions")) == 2
            assert client.lock("q").try_acquire() is None
            client.close()
            return True

        in_child(child)
        assert grant.state is GrantState.HELD
        assert len(client.admin.contenders("q")) == 1


def test_a_block_that_a_child_leaves_releases_nothing_of_the_parents(url: str) -> None:
    client = Client(url)
    lock = client.lock("q", timeout=30)
    child = -1
    with lock as grant:
        child = os.fork()
    if child == 0:
        try:
            with lock as own:  # waits until the parent has left
                os._exit(0 if own.token > grant.token else 1)
        except BaseException as error:
            traceback.print_exception(error)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert grant.state is GrantState.RELEASED
    client.close()


def test_a_child_waits_for_no_thread_of_its_parent(url: str) -> None:
    """A client of its own asks what its caller holds, and the parent's client was busy."""
    client, busy, done = Client(url), threading.Event(), threading.Event()

    def keep_busy() -> None:
        with client._engine.tickets.lock:
            busy.set()
            done.wait(30)

    def child() -> bool:
        signal.alarm(60)
        return not Client(url)._engine.held_by(this_caller())

    thread = threading.Thread(target=keep_busy)
    with client.lock("q"):
        thread.start()
        busy.wait(30)
        try:
            in_child(child)
        finally:
            done.set()
            thread.join()
    client.close()


def test_entering_by_hand_in_a_child_counts_its_own_entries_alone(url: str) -> None:
    client = Client(url)
    lock = client.lock("q", mode=Mode.PR, timeout=30)
    lock.__enter__()

    def child() -> bool:
        own = lock.__enter__()
        lock.__exit__(None, None, None)
        return own.state is GrantState.RELEASED

    def child_of_a_body() -> bool:
        lock.__exit__(None, None, None)
        return True

    in_child(child)
    in_child(child_of_a_body)
    assert len(client.admin.contenders("q")) == 1
    lock.__exit__(None, None, None)
    assert not client.admin.contenders("q")
    client.close()


def test_a_client_of_another_library_stays_with_its_process(service: Service) -> None:
    engine = service.engine()
    access = Access(engine)
    client = Client._of(access)
    in_child(lambda: raises(ClientClosed, client))
    client.close()


def test_a_fork_with_a_connection_that_children_may_not_survive_is_warned_of(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = service.engine()
    monkeypatch.setattr(type(engine.backend), "fork_warning", "children may crash")
    client = Client._of(Access(engine, service.engine))
    in_child(lambda: True)
    log.flush(10)
    assert [record.message for record in caplog.records if "crash" in record.message] == [
        "memory:///coordlock: children may crash"
    ]
    client.close()
