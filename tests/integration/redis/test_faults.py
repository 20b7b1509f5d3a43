"""Paused servers, lost news, and what others do to the keys: nobody waits for ever."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Self

import coordlock_redis
import pytest
import redis
from coordlock_redis.request_thread import RequestThread
from coordlock_redis.servers import Servers
from coordlock_redis.session import RedisSession

import coordlock
from coordlock import BackendError, GrantState, LockLost
from coordlock.backend import Queue
from coordlock.errors import BackendUnavailable
from coordlock.model.events import HeartbeatAnswered
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.process import THREAD
from coordlock.runtime.recorder import RECORDER, Event
from coordlock.testing.client_suite import error_of
from coordlock.testing.connection import Connection as FaultConnection
from coordlock.testing.frames import Message
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisServer
from tests.unit.signals import Signal, interrupted

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_leaks")]


class Waiter(threading.Thread):
    """Acquires the lock ``a``, holds it until `let_go`, and knows when it was granted."""

    def __init__(self, client: coordlock.Client) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.granted_at: float | None = None
        self.error: BaseException | None = None
        self.let_go = threading.Event()

    def run(self) -> None:
        try:
            with self.client.lock("a").acquire(timeout=60):
                self.granted_at = time.monotonic()
                self.let_go.wait(60)
        except BaseException as error:
            self.error = error

    def was_granted(self) -> bool:
        return self.granted_at is not None

    def __enter__(self) -> Self:
        self.start()
        eventually(lambda: len(self.client.lock("a").contenders()) >= 2, "the waiter")
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self.join(60)
        assert self.error is None


def deafen(server: RedisServer) -> None:
    """Break all connections that hear messages."""
    with server.client() as admin:
        admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


@pytest.mark.long  # bound by the lease; see the simulation for the deadline
def test_a_heartbeat_without_an_answer_leaves_the_lease_time_for_another(
    only: RedisServer, root: str
) -> None:
    """The fault: one connection goes silent, and new ones work."""
    is_silent = threading.Event()

    def silence(connection: FaultConnection, _: Message) -> None:
        connection.black_hole()
        is_silent.set()

    with (
        FaultProxy("127.0.0.1", only.port) as proxy,
        coordlock.connect(f"redis://127.0.0.1:{proxy.port}{root}", ttl="3s") as client,
        client.lock("a").acquire(60) as grant,
    ):
        proxy.on_bytes(b"EVALSHA", silence)
        assert is_silent.wait(30)
        assert not grant.lost.wait(4.0)


def test_a_server_that_is_silent_to_new_connections_costs_no_session(
    only: RedisServer, root: str
) -> None:
    """The fault: requests need a new connection, which nothing answers. The session has its own."""
    is_silent = threading.Event()

    def silence(connection: FaultConnection, _: Message) -> None:
        connection.black_hole()
        is_silent.set()

    with (
        FaultProxy("127.0.0.1", only.port) as proxy,
        only.client() as admin,
        coordlock.connect(
            f"redis://127.0.0.1:{proxy.port}{root}", ttl="3s", request_timeout="20s"
        ) as client,
        client.lock("a").acquire(60) as grant,
    ):
        proxy.on_bytes(b"INFO", silence)
        admin.client_kill_filter(_type="normal", skipme=True)
        with client.lock("b").acquire(60):
            grant.check()
        assert is_silent.is_set()


def test_a_server_that_takes_no_more_data_holds_up_no_other_connection_of_the_thread(
    only: RedisServer,
) -> None:
    connection = Servers([(only.host, only.port)], b"key", 600.0, SYSTEM_CLOCK, b"").connect()
    connection.socket.setblocking(False)
    data, began = b"x" * 50_000_000, time.monotonic()
    only.pause()
    try:
        while sent := connection.write(data):
            data = data[sent:]
        assert data
        assert connection.read() == []
        assert time.monotonic() - began < 60
    finally:
        only.resume()
        connection.close()


def test_the_thread_of_the_heartbeats_waits_for_nothing_that_a_program_leaves_there(
    only: RedisServer, root: str
) -> None:
    """The fault: a collection of garbage may end a block there, whose release waited."""
    must_not_wait: list[bool] = []

    def note(event: Event) -> None:
        if isinstance(event, HeartbeatAnswered):
            must_not_wait.append(THREAD.must_not_wait)

    remove = RECORDER.add(note)
    try:
        with coordlock.connect(only.url_for(root, ttl="3s")) as client:
            client.lock("a").acquire()
            eventually(lambda: len(must_not_wait) >= 2)
    finally:
        remove()
    assert all(must_not_wait)


def test_a_departure_that_was_told_to_nobody_is_noticed_at_the_reconnect(
    only: RedisServer, root: str
) -> None:
    url = only.url_for(root, ttl="60s")
    for _ in range(5):
        with coordlock.connect(url) as one, coordlock.connect(url) as two:
            grant = one.lock("a").acquire(timeout=60)
            with Waiter(two) as waiter:
                deafen(only)
                grant.release()
                released_at = time.monotonic()
                eventually(waiter.was_granted)
                assert waiter.granted_at is not None
                assert waiter.granted_at - released_at < 20  # the session lives longer


def test_a_connection_that_is_closed_as_soon_as_it_hears_ends_no_client(
    only: RedisServer, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, strikes = RedisSession.on_live, iter([True])

    def strike(session: RedisSession) -> None:
        if next(strikes, False):
            deafen(only)
        live(session)

    monkeypatch.setattr(RedisSession, "on_live", strike)
    with coordlock.connect(only.url_for(root)) as client:
        for _ in range(20):
            client.lock("a").acquire(timeout=60).release()
    assert next(strikes, None) is None


def test_a_message_that_never_comes_costs_at_most_the_rest_of_a_session(
    only: RedisServer, root: str
) -> None:
    """Somebody removes the contender behind the scripts' back, and tells nobody."""
    url = only.url_for(root, ttl="9s")
    with coordlock.connect(url) as one, coordlock.connect(url) as two, only.client() as admin:
        one.lock("a").acquire(timeout=60)
        with Waiter(two) as waiter:
            [first, _] = admin.zrange(f"{{{root}}}:queue:a", 0, -1)
            admin.zrem(f"{{{root}}}:queue:a", first)
            eventually(waiter.was_granted)


def test_messages_of_other_programs_end_no_client(only: RedisServer, root: str) -> None:
    with coordlock.connect(only.url_for(root)) as client, only.client() as admin:
        backend = client._engine.backend
        queue = backend.follow(Queue("a"), lambda: None)
        folder = backend.follow("/f/", lambda: None)
        for observed in (queue, folder):
            eventually(lambda: observed.view.state is not None)  # noqa: B023
        for channel in admin.pubsub_channels(f"*{root}*"):
            for text in (
                "",
                "x",
                "left a b c d",
                "value a b c",
                "1 $x",
                "9 *1\r\n:1\r\n",
            ):
                assert admin.publish(channel, text) == 1
        client.value("/f/a").set(b"1")
        with client.lock("a").acquire(timeout=60):
            eventually(lambda: (state := queue.view.state) and len(state.contenders) == 1)
            eventually(lambda: (state := folder.view.state) and "/f/a" in state.values)


class Credentials(redis.CredentialProvider):
    """Fails so often from now on."""

    failures = 0

    def get_credentials(self) -> tuple[str]:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the vault is sealed")
        return ("s",)


def break_all(server: RedisServer) -> None:
    """Break all connections, of which those for requests and heartbeats are equal."""
    with server.client(password="s") as admin:
        for kind in ("normal", "pubsub"):
            admin.client_kill_filter(_type=kind, skipme=True)


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_credentials_that_cannot_be_had_for_a_moment_cost_nothing(
    only: RedisServer, root: str, failures: int
) -> None:
    with only.client() as admin:
        admin.config_set("requirepass", "s")
    credentials = Credentials()
    with (
        redis.Redis(port=only.port, credential_provider=credentials) as given,
        coordlock.connect(client=given, root=root, restart_delay=0, ttl="60s") as client,
    ):
        grant = client.lock("a").acquire(timeout=60)
        credentials.failures = failures
        break_all(only)
        time.sleep(2)
        assert not credentials.failures
        client.lock("b").acquire(timeout=10).release()
        grant.check()


def test_credentials_that_cannot_be_had_are_told(only: RedisServer, root: str) -> None:
    credentials = Credentials()
    credentials.failures = 1000
    with (
        redis.Redis(port=only.port, credential_provider=credentials) as given,
        pytest.raises(BackendUnavailable, match="RuntimeError: the vault is sealed"),
    ):
        coordlock.connect(client=given, root=root, connect_timeout="1s")


@pytest.mark.long  # bound by the time between heartbeats
def test_a_server_that_closes_idle_connections_casts_no_doubt_on_sessions(
    only: RedisServer, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    with only.client() as admin:
        admin.config_set("timeout", 1)
    with coordlock.connect(only.url_for(root, ttl="9s")) as client:
        grant = client.lock("a").acquire(timeout=60)
        time.sleep(7)
        assert grant.state is GrantState.HELD
    assert "in doubt" not in caplog.text


def test_a_client_whose_thread_fails_holds_nothing(
    only: RedisServer, root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = only.url_for(root, ttl="9s")
    with coordlock.connect(url) as one:
        grant = one.lock("a").acquire(timeout=60)
        turn, errors = RequestThread._turn, iter([RuntimeError("odd")])

        def fail(self: RequestThread) -> None:
            for error in errors:
                raise error
            turn(self)

        monkeypatch.setattr(RequestThread, "_turn", fail)
        deafen(only)
        eventually(lambda: grant.state is GrantState.LOST)
        with pytest.raises(LockLost, match="thread failed: RuntimeError: odd"):
            grant.check()
        with coordlock.connect(url) as two:
            two.lock("a").acquire(timeout=60).release()
        with pytest.raises(BackendError, match="thread failed: RuntimeError: odd"):
            one.lock("b").acquire(timeout=60)
    assert "the thread of a Redis client failed" in caplog.text


def test_a_crowd_of_dead_waiters_costs_one_ttl_for_all(only: RedisServer, root: str) -> None:
    """Their sessions are there, and nobody extends them."""
    with coordlock.connect(only.url_for(root, ttl="60s")) as client, only.client() as admin:
        seconds, microseconds = admin.time()
        now = seconds * 1_000_000 + microseconds
        client.lock("z").acquire(timeout=60).release()  # the root has a state
        for number in range(20):
            session, id = f"dead{number}-1", f"id{number}"
            admin.zadd(f"{{{root}}}:sessions", {session: now + 2_000_000})
            admin.zadd(f"{{{root}}}:queue:a", {id: now + number})
            admin.hset(f"{{{root}}}:claims:a", id, f"lock {session} {{}}")
            admin.hset(f"{{{root}}}:held:{session}", id, "a")
            admin.sadd(f"{{{root}}}:queues", "a")
        began = time.monotonic()
        client.lock("a").acquire(timeout=60).release()
        assert time.monotonic() - began < 20  # one after the other, 40


def test_inboxes_of_clients_that_have_gone_do_not_pile_up_behind_a_holder(
    only: RedisServer, root: str
) -> None:
    url = only.url_for(root, ttl="60s")
    key = f"{{{root}}}:watchers:a"
    with coordlock.connect(url) as holder, only.client(decode_responses=True) as admin:
        grant = holder.lock("a").acquire(timeout=60)
        for _ in range(2):
            with coordlock.connect(url) as late:
                lock = late.lock("a")
                error_of(partial(lock.acquire, timeout=0.5), coordlock.AcquireTimeout)
            [(id, inboxes)] = admin.hgetall(key).items()
            assert len(inboxes.split()) <= 3
            gone = " ".join(f"{number:016x}" for number in range(59))  # 17 bytes each
            admin.hset(key, id, f"{inboxes} {gone}")
        with coordlock.connect(url) as two, Waiter(two) as waiter:
            grant.release()
            eventually(waiter.was_granted)


def test_the_first_wait_of_a_session_sends_no_more_than_a_later_one(
    only: RedisServer, root: str
) -> None:
    url = only.url_for(root, ttl="60s")
    with (
        coordlock.connect(url) as one,
        coordlock.connect(url) as two,
        only.client() as admin,
        ThreadPoolExecutor(1) as pool,
    ):

        def runs() -> int:
            return int(admin.info("commandstats")["cmdstat_evalsha"]["calls"])

        grant, before = one.lock("a").acquire(timeout=60), runs()
        waiting = pool.submit(lambda: two.lock("a").acquire(timeout=60).release())
        eventually(lambda: admin.zcard(f"{{{root}}}:queue:a") == 2)
        time.sleep(0.3)  # until it waits
        grant.release()
        waiting.result(60)
        assert runs() - before == 3  # to wait, and two releases


def test_several_locks_are_all_taken_or_none_where_one_key_is_of_another_program(
    only: RedisServer, root: str
) -> None:
    with coordlock.connect(only.url_for(root)) as client, only.client() as admin:
        admin.set(f"{{{root}}}:queue:b", "mine")
        with pytest.raises(BackendError, match="another program"):
            client.multi_lock(["a", "b"]).acquire(timeout=60)
        assert not admin.exists(f"{{{root}}}:queue:a")
        assert admin.get(f"{{{root}}}:queue:b") == b"mine"


def test_wherever_ctrl_c_strikes_the_client_goes_on(only: RedisServer, root: str) -> None:
    with coordlock.connect(only.url_for(root, ttl="30s")) as client:
        value = client.value("/v")
        value.set(b"before")
        value.get()  # from now on the server knows the scripts
        number, came = 1, True
        while came:
            came = interrupted(value.get, number, coordlock_redis)
            for text in (b"%d" % number, b"-%d" % number):  # no answer is that of another request
                value.set(text)
                stored = value.get()
                assert stored is not None
                assert stored.data == text
            number += 1
        assert number > 15


def test_wherever_a_signal_handler_asks_it_gets_its_answer(only: RedisServer, root: str) -> None:
    """No lock may keep the thread waiting that receives the answers."""
    longest = 0.0
    with coordlock.connect(only.url_for(root, ttl="30s")) as client, only.client() as admin:
        outer, inner = client.value("/outer"), client.value("/inner")
        outer.set(b"outer")
        inner.set(b"inner")
        found: list[bytes] = []

        def ask() -> None:
            nonlocal longest
            began = time.monotonic()
            stored = inner.get()
            longest = max(longest, time.monotonic() - began)
            assert stored is not None
            found.append(stored.data)

        number, came = 1, True
        while came:
            admin.execute_command("CLIENT", "PAUSE", 40)
            with Signal(number, ask, coordlock_redis) as signal:
                stored = outer.get()
            came = signal.came
            assert stored is not None
            assert stored.data == b"outer"
            number += 1
    assert found == [b"inner"] * (number - 2)
    assert number > 15
    assert longest < 20  # it would be `request_timeout`


def test_large_answers_at_once_cost_no_session(
    only: RedisServer, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Redis closes a connection that hears messages with 32 MB of unread answers."""
    with coordlock.connect(only.url_for(root, ttl="60s")) as client, only.client() as admin:
        grant = client.lock("a").acquire(timeout=60)
        for number in range(20):
            admin.hset(f"{{{root}}}:values:/f/", f"/f/{number}", b"x" * 1_000_000)
            admin.zadd(f"{{{root}}}:versions:/f/", {f"/f/{number}": 1})
        answers = [client._engine.backend.read("/f/") for _ in range(8)]
        assert [len(answer.result(60).values) for answer in answers] == [20] * 8
        grant.check()
    assert "in doubt" not in caplog.text
