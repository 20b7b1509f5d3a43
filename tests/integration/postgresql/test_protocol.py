"""What PostgreSQL's locks keep when notifications get lost, sessions die and servers change."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import Any

import psycopg
import pytest
from coordlock_postgresql import requests
from coordlock_postgresql.access import Server
from coordlock_postgresql.requests import Requests
from psycopg.types.json import Jsonb

import coordlock
from coordlock.backend.config import configure
from coordlock.errors import BackendUnavailable, LockLost, SessionLost
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.promise import Promise
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.postgres import Postgres
from tests.integration.postgresql.conftest import Admin, through

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("no_leaks")]

#: A session of a client that is gone.
DEAD = "coordlock_dead-1"


def request(admin: Admin, verb: str, **arguments: object) -> Any:
    """The answer to a request, without its revision."""
    statement = f"CALL coordlock.request('{verb}', %s)".encode()
    [[(_, answer, _)]] = admin.execute(statement, (Jsonb(arguments),))
    return answer


def enqueue(admin: Admin, root: str, **arguments: object) -> Any:
    """The answer to a contender for the lock a, in the session `DEAD`."""
    entry = {"name": "a", "id": "i", "claim": "lock", "owner": "x", "value": "", "nearest": 1}
    return request(admin, "enqueue", root=root, session=DEAD, entries=[entry], **arguments)


def come_from_another_timeline(admin: Admin) -> None:
    """Let the data be as they are after a failover."""
    for table in ("epoch", "session"):
        admin.execute(f"UPDATE coordlock.{table} SET timeline = 'another'".encode())


def test_a_lost_notification_delays_a_handoff_by_seconds(
    postgresql: Postgres, root: str, admin: Admin
) -> None:
    url = postgresql.url_for(root)
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        one.lock("a").acquire()
        granted = threading.Event()

        def wait() -> None:
            two.lock("a").acquire()
            granted.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: len(one.admin.contenders("a")) == 2)
        admin.execute(
            "DELETE FROM coordlock.contender c USING coordlock.queue q "
            "WHERE q.id = c.queue AND q.root = %s AND c.token = "
            "(SELECT min(token) FROM coordlock.contender o WHERE o.queue = q.id)",
            (root,),
        )
        assert granted.wait(10)
        waiter.join()


def test_a_follower_reads_again_within_seconds_when_its_notifications_get_lost(
    postgresql: Postgres, proxy: FaultProxy, root: str
) -> None:
    url = postgresql.url_for(root, listen=f"127.0.0.1:{proxy.port}")
    with (
        coordlock.connect(url) as one,
        coordlock.connect(postgresql.url_for(root)) as two,
        one.value("/v").observe() as observer,
    ):
        assert observer.next(timeout=30) is None
        two.value("/v").set(b"1")
        assert observer.next(timeout=30) is not None
        proxy.replies.black_hole()
        began = time.monotonic()
        two.value("/v").set(b"2")
        assert observer.next(timeout=30) is not None
        assert time.monotonic() - began < 12


def test_a_waiter_ends_the_session_of_a_dead_holder(
    postgresql: Postgres, root: str, admin: Admin
) -> None:
    with coordlock.connect(postgresql.url_for(root)) as client:
        request(admin, "open", session=DEAD, ttl="2 s")
        enqueue(admin, root)
        # The server's clock says that it lives on, and counts for nothing.
        admin.execute("UPDATE coordlock.session SET expires_at = clock_timestamp() + '2 h'")
        began = time.monotonic()
        client.lock("a").acquire(timeout=20)
        assert time.monotonic() - began >= 1.9
        assert not list(admin.execute("SELECT FROM coordlock.session WHERE id LIKE '%dead%'"))


def test_on_another_timeline_every_grant_is_lost_and_none_is_given_for_a_while(
    postgresql: Postgres, root: str, admin: Admin
) -> None:
    url = postgresql.url_for(root, ttl="2s")
    with coordlock.connect(url) as client:
        before = client.lock("a").acquire()
        try:
            [[minute]] = admin.execute("SELECT coordlock._minute()")
            admin.execute("UPDATE coordlock.epoch SET pause = '3 s'")
            come_from_another_timeline(admin)
            with pytest.raises(psycopg.DatabaseError, match="failover") as lost_waiter:
                request(admin, "snapshot", root=root, name="b", upto=1, session=DEAD)
            assert lost_waiter.value.sqlstate == "CLOST", "it would be granted in an old session"
            lost = threading.Event()
            before.on_lost(lambda *_: lost.set())
            assert lost.wait(10)
            with pytest.raises(LockLost, match="failover"):
                before.check()
            began = time.monotonic()
            with client.lock("b").acquire(timeout=20) as after:
                assert time.monotonic() - began > 1
                assert after.token >> 39 > before.token >> 39
                assert after.token >> 39 >= minute, "another copy may have counted as far"
        finally:
            admin.execute("UPDATE coordlock.epoch SET pause = '60 s', since = to_timestamp(0)")


def test_a_waiter_does_not_take_the_end_of_its_session_for_an_eviction(
    postgresql: Postgres, proxy: FaultProxy, root: str, admin: Admin
) -> None:
    slow = through(proxy, postgresql, root, ttl="60s", listen="off")
    with (
        coordlock.connect(postgresql.url_for(root)) as one,
        coordlock.connect(slow) as two,
        ThreadPoolExecutor(1) as pool,
    ):
        one.lock("a").acquire()
        waiter = pool.submit(two.lock("a").acquire, timeout=60)
        eventually(lambda: len(one.admin.contenders("a")) == 2)
        proxy.delay(0.7)  # no heartbeat would show it in time
        admin.execute(
            "UPDATE coordlock.session SET timeline = 'another' WHERE id = %s",
            (one.admin.contenders("a")[1].session,),
        )
        with pytest.raises(SessionLost):
            waiter.result(30)


def test_an_enqueue_that_comes_too_late_adds_nothing(root: str, admin: Admin) -> None:
    request(admin, "open", session=DEAD, ttl="20 s")
    try:
        assert enqueue(admin, root, clock=0) is None
        enqueued = enqueue(admin, root, clock=2**32)
        assert len(enqueued[0][1]) == 1
    finally:
        request(admin, "close", session=DEAD)


def test_a_grant_of_another_timeline_guards_no_data(root: str, admin: Admin) -> None:
    request(admin, "open", session=DEAD, ttl="20 s")
    try:
        [[_, [[id, token, *_]]]] = enqueue(admin, root)
        of_data = {
            "root": root,
            "folder": "/",
            "contenders": [{"session": DEAD, "id": id, "token": token}],
            "operations": [{"verb": "put", "folder": "/", "name": "a", "value": "1"}],
        }
        assert "evicted" not in request(admin, "write", **of_data)
        assert request(admin, "read", **of_data)
        come_from_another_timeline(admin)
        # The old primary may have removed the contender, and granted the lock to another one.
        assert "evicted" in request(admin, "write", **of_data)
        assert request(admin, "read", **of_data) is None
    finally:
        admin.execute("UPDATE coordlock.epoch SET timeline = coordlock._timeline()")
        request(admin, "close", session=DEAD)


def test_a_transaction_that_keeps_a_contender_delays_its_departure_alone(
    postgresql: Postgres, root: str, admin: Admin
) -> None:
    url = postgresql.url_for(root)
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        grant = one.lock("a").acquire()
        with admin.transaction():
            admin.execute(
                "SELECT FROM coordlock.contender WHERE token = %s FOR KEY SHARE", (grant.token,)
            )
            release = threading.Thread(target=grant.release)
            release.start()
            with two.lock("b").acquire(timeout=5), one.lock("c").acquire(timeout=5):
                assert two.lock("a").try_acquire() is None
        two.lock("a").acquire(timeout=10).release()
        release.join()


def test_queues_of_names_that_are_used_once_do_not_pile_up_and_their_tokens_never_come_again(
    postgresql: Postgres, root: str, admin: Admin
) -> None:
    with coordlock.connect(postgresql.url_for(root)) as client:
        tokens = []
        for number in range(500):
            with client.lock(f"order/{number}") as grant:
                tokens.append(grant.token)
        [[left]] = admin.execute("SELECT count(*) FROM coordlock.queue WHERE root = %s", (root,))
        assert left <= 250
        with client.lock("order/0") as grant:
            tokens.append(grant.token)
    assert tokens == sorted(set(tokens))


def test_an_acquire_is_one_statement_and_so_is_a_release(
    postgresql: Postgres, proxy: FaultProxy, root: str
) -> None:
    with coordlock.connect(through(proxy, postgresql, root, ttl="60s")) as client:
        client.lock("a").acquire().release()
        with proxy.counting() as sent:
            for _ in range(10):
                client.lock("a").acquire().release()
    assert sent.requests == {"enqueue": 10, "withdraw": 10}


def test_a_handover_is_one_release_and_one_look_at_the_queue(
    postgresql: Postgres, proxy: FaultProxy, root: str
) -> None:
    url = through(proxy, postgresql, root, ttl="60s")
    with coordlock.connect(url) as one, coordlock.connect(url) as two:
        two.lock("b").acquire().release()
        grant = one.lock("a").acquire()
        with ThreadPoolExecutor() as pool:
            waiter = pool.submit(lambda: two.lock("a").acquire())
            eventually(lambda: len(one.admin.contenders("a")) == 2)
            time.sleep(1)  # all that the waiter reads at the beginning
            with proxy.counting() as sent:
                grant.release()
                waiter.result(30)
    requests = {kind: number for kind, number in sent.requests.items() if kind != "look"}
    assert requests == {"withdraw": 1, "snapshot": 1}


def test_an_idle_client_sends_one_statement_for_each_third_of_its_ttl(
    postgresql: Postgres, proxy: FaultProxy, root: str
) -> None:
    with coordlock.connect(through(proxy, postgresql, root, ttl="3s")) as client:
        client.lock("a").acquire().release()
        time.sleep(1)
        with proxy.counting() as idle:
            time.sleep(6)
        grants = [client.lock(f"a{number}").acquire() for number in range(10)]
        time.sleep(1)
        with (
            proxy.counting() as holding
        ):  # which also proves that the connection that listens works
            time.sleep(6)
        for grant in grants:
            grant.check()
    assert set(idle.requests) == {"heartbeat"}
    assert 4 <= idle.requests["heartbeat"] <= 7
    assert set(holding.requests) == {"heartbeat", "look"}
    assert holding.requests["look"] <= 7


def test_a_thousand_waiters_have_three_connections_and_one_statement_at_a_time(
    postgresql: Postgres, proxy: FaultProxy, root: str, admin: Admin
) -> None:
    waiters = 1000
    url = through(
        proxy, postgresql, root, ttl="15s", request_timeout="60s", application_name=root[1:]
    )
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"

    async def main() -> None:
        async with coordlock.connect_async(url) as client:
            grant = await client.lock("a").acquire()
            waiting = [
                asyncio.create_task(client.lock("a").acquire(timeout=120)) for _ in range(waiters)
            ]
            await asyncio.to_thread(
                eventually, lambda: len(other.admin.contenders("a")) > waiters, within=120
            )
            await asyncio.sleep(2)
            assert admin.execute(query, (root[1:],)).fetchone() == (3,)
            with proxy.counting() as sent:
                await asyncio.sleep(6)
            assert set(sent.requests) <= {"heartbeat", "look"}, sent.requests
            assert sum(sent.requests.values()) <= 20, sent.requests
            await grant.release()
            await (await waiting[0]).release()
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    with coordlock.connect(postgresql.url_for(root)) as other:
        asyncio.run(main())


@pytest.fixture
def requests_of(postgresql: Postgres, root: str) -> Iterator[Callable[[], Requests]]:
    """Makes connections for requests, which bear the name of the root."""
    timers = SystemTimers()
    server = Server(configure(postgresql.url_for(root, application_name=root[1:])))
    common: dict[str, object] = {"root": root, "caller": "a", "clock": 0}
    yield lambda: Requests("requests", server, timers, common)
    timers.close()


def ask(asking: Requests) -> Promise[float]:
    return asking.ask("clock", {}, lambda _, seconds: float(seconds), 5.0)


def at_line(number: int, asking: Requests, act: Callable[[], object]) -> Promise[float] | None:
    """Ask, and act before the ``number``-th line of that; None if there are not so many."""
    lines: set[int] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != requests.__file__:
            return None
        # No handler runs at the end of a with block, which has the number of its beginning.
        if event == "line" and frame.f_lineno not in lines:
            lines.add(frame.f_lineno)
            if len(lines) == number:
                sys.settrace(None)
                act()
        return trace

    sys.settrace(trace)
    try:
        asked = ask(asking)
    finally:
        sys.settrace(None)
    return asked if len(lines) == number else None


def test_a_request_that_a_signal_handler_interrupts_at_any_line_harms_no_later_one(
    requests_of: Callable[[], Requests],
) -> None:
    asking = requests_of()

    def interrupt() -> None:
        raise KeyboardInterrupt

    def interrupts(number: int) -> bool:
        with suppress(KeyboardInterrupt):
            return at_line(number, asking, interrupt) is not None
        return True

    assert ask(asking).result(30)
    number = 1
    while interrupts(number):
        with suppress(BackendUnavailable):  # the interrupted one took the connection along
            ask(asking).result(30)
        assert ask(asking).result(30)
        number += 1
    assert number > 10
    asking.close().result(30)


def test_a_signal_handler_that_interrupts_a_request_at_any_line_gets_an_answer_itself(
    requests_of: Callable[[], Requests],
) -> None:
    asking = requests_of()
    assert ask(asking).result(30)
    number = 1
    while asked := at_line(number, asking, lambda: ask(asking).result(30)):
        assert asked.result(30)
        number += 1
    assert number > 10
    asking.close().result(30)


def test_a_request_at_the_moment_of_the_close_leaves_no_connection(
    requests_of: Callable[[], Requests], root: str, admin: Admin
) -> None:
    def closes(number: int) -> bool:
        asking = requests_of()

        def close() -> None:
            closing = threading.Thread(target=lambda: asking.close().result(30))
            closing.start()
            closing.join(0.2)  # longer, where it has to wait for the request

        assert ask(asking).result(30)
        asked = at_line(number, asking, close)
        with suppress(BackendUnavailable):
            if asked is not None:
                asked.result(30)
        asking.close().result(30)
        return asked is not None

    number = 1
    while closes(number):
        number += 1
    assert number > 10
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    eventually(lambda: admin.execute(left, (root[1:],)).fetchone() == (0,))
