"""What Redis can lose is lost loudly: real servers that are killed, emptied and full."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from coordlock_redis.servers import Servers

import coordlock
from coordlock import BackendError, GrantState, LockLost
from coordlock.backend import Put
from coordlock.errors import AuthenticationFailed, WaitUnavailable
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_leaks")]


@pytest.fixture(params=[True, False], ids=["with a file", "without a file"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", persistent=request.param) as server:
        yield server


def test_a_restart_ends_every_grant_and_says_why(server: RedisServer, root: str) -> None:
    with coordlock.connect(server.url_for(root, ttl="30s")) as client:
        grant = client.lock("a").acquire()
        server.kill()
        server.start()
        eventually(lambda: grant.state is GrantState.LOST)
        with pytest.raises(LockLost, match="restart"):
            grant.check()
        later = client.lock("a").acquire(timeout=60)
        assert later.token > grant.token
        later.release()


@pytest.mark.parametrize("server", [True], ids=["with a file"], indirect=True)
def test_the_largest_restart_delay_of_all_clients_counts_whichever_comes_first(
    server: RedisServer, root: str
) -> None:
    """A dashboard without a delay asks first, for another lock, and the holder stands still."""
    url = server.url_for(root, ttl="3s", restart_delay="auto")
    dashboard = server.url_for(root, ttl="1s")
    command = [sys.executable, "-c", HOLDER, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            holder.send_signal(signal.SIGSTOP)
            server.kill()
            server.start()
            began = time.monotonic()
            with coordlock.connect(dashboard) as first, coordlock.connect(url) as second:
                with suppress(WaitUnavailable):  # the pause may outlast the request
                    if grant := first.lock("b").try_acquire():
                        grant.release()
                second.lock("a").acquire(timeout=60).release()
                assert time.monotonic() - began >= 2.6
        finally:
            holder.kill()


def test_a_client_that_knew_the_data_waits_though_another_one_came_first_after_its_loss(
    only: RedisServer, root: str
) -> None:
    url = only.url_for(root, ttl="2s", restart_delay="auto")
    with coordlock.connect(url) as holder, coordlock.connect(url) as client:
        holder.lock("a").acquire(timeout=60)
        client.lock("b").acquire(timeout=60)
        with only.client() as admin:
            admin.flushall()
        began = time.monotonic()
        with coordlock.connect(url):
            client.lock("a").acquire(timeout=60).release()
            assert time.monotonic() - began >= 1.9


def test_a_largest_delay_that_was_deleted_is_that_of_the_clients_that_live(
    only: RedisServer, root: str
) -> None:
    key = f"{{{root}}}:state"
    url = only.url_for(root, ttl="9s", restart_delay="auto")
    with coordlock.connect(url) as client, only.client() as admin:
        with coordlock.connect(url, ttl="300s"):
            pass
        [command] = re.findall(
            "redis-cli (HDEL .* restart_delay)", "\n".join(client.admin.describe().notes)
        )
        assert admin.execute_command(*shlex.split(command)) == 1
        eventually(lambda: admin.hget(key, "restart_delay") == b"9000000")
        assert "is granted for 9 s" in "\n".join(client.admin.describe().notes)


def test_a_start_is_not_dated_back(only: RedisServer) -> None:
    """Though the server counts in whole seconds of its clock."""
    servers = Servers([(only.host, only.port)], b"key", 5.0, SYSTEM_CLOCK, b"")
    for _ in range(3):
        only.kill()
        time.sleep((0.8 - time.time()) % 1)
        began = time.time()
        only.start()
        time.sleep((0.05 - time.time()) % 1)
        link = servers.connect()
        link.close()
        assert began <= link.started / 1_000_000 <= time.time()


def test_a_second_restart_does_not_shorten_the_pause_after_the_first(
    tmp_path: Path, root: str
) -> None:
    key = f"{{{root}}}:state"
    arguments = ["--appendfsync", "always"]
    with RedisServer(tmp_path / "redis", persistent=True, arguments=arguments) as server:
        url = server.url_for(root, ttl="2s", restart_delay="auto")
        with server.client() as admin:
            with coordlock.connect(url), coordlock.connect(url, ttl="300s"):
                server.kill()  # else the session would be closed
            ends: list[int] = []
            for _ in range(2):
                server.start()
                with coordlock.connect(url):
                    ends.append(int(admin.hget(key, "quiet") or 0))
                server.kill()
            assert ends[1] >= ends[0] > (time.time() + 200) * 1_000_000


@pytest.mark.parametrize("loss", ["FLUSHALL", "SWAPDB 0 1"])
def test_every_observer_sees_that_the_data_is_gone(only: RedisServer, root: str, loss: str) -> None:
    url = only.url_for(root, ttl="2s")
    with coordlock.connect(url) as one, coordlock.connect(url) as two, only.client() as admin:
        one.value("/v").set(b"1")
        one.counter("c").add(5)
        one.gate("g").shut()
        one.election("e").campaign(timeout=60)
        one.group("m").join(b"me")
        with (
            two.value("/v").observe() as value,
            two.counter("c").observe() as counter,
            two.election("e").observe() as leader,
            two.group("m").observe(grace=0) as group,
        ):
            assert next(value) is not None
            assert next(counter) == 5
            assert next(leader) is not None
            assert len(next(group).members) == 1
            admin.execute_command(*loss.split())
            eventually(lambda: value.state is None)
            eventually(lambda: counter.state == 0)
            eventually(lambda: leader.state is None)
            eventually(lambda: not group.state.members)
            for observer in (value, counter, leader, group):
                assert observer.stale_for is None


def test_what_waits_for_data_that_is_lost_raises_an_error(only: RedisServer, root: str) -> None:
    """Neither a gate that was shut nor a barrier that was full is passed because it is gone."""
    url = only.url_for(root, ttl="60s")
    with (
        coordlock.connect(url) as one,
        coordlock.connect(url) as two,
        only.client() as admin,
        ThreadPoolExecutor() as pool,
    ):
        one.gate("g").shut()
        one.latch("l", 2).count_down()
        other = pool.submit(one.double_barrier("d", 2).enter, 30)
        leaver = two.double_barrier("d", 2)
        leaver.enter(30)
        other.result(30)
        waits = [
            pool.submit(wait, timeout=60)
            for wait in (two.gate("g").wait, two.latch("l", 2).wait, two.barrier("b", 2).wait)
        ]
        waits.append(pool.submit(leaver.leave, 60))
        eventually(lambda: len(one.admin.contenders("b")) == len(one.admin.contenders("d")) == 1)
        time.sleep(0.5)  # until the gate and the latch were read
        admin.flushall()
        one.lock("x").acquire(timeout=60)  # any request finds that out
        for wait in waits:
            with pytest.raises(BackendError, match=r"lost its data|without its data"):
                wait.result(30)


def test_a_consumer_takes_what_is_put_after_the_data_was_lost(only: RedisServer, root: str) -> None:
    """Though the new queue has smaller numbers than the one that it knows."""
    url = only.url_for(root, ttl="2s", restart_delay="0s")
    done, stop = list[bytes](), coordlock.Cancellation()
    with (
        coordlock.connect(url) as client,
        coordlock.connect(url) as other,
        only.client() as admin,
        ThreadPoolExecutor(1) as pool,
    ):
        queue = other.work_queue("q")
        work = lambda: client.work_queue("q").run(  # noqa: E731
            lambda item: done.append(item.data), cancellation=stop
        )
        running = pool.submit(work)
        try:
            queue.put_many([b"before"] * 60)
            eventually(lambda: len(done) == 60)
            admin.flushall()
            other.lock("x").acquire(timeout=60).release()  # any request finds that out
            queue.put(b"after")
            eventually(lambda: done[-1] == b"after")
        finally:
            stop.cancel()
        assert running.result(60) == 61


def test_scripts_that_the_server_has_forgotten_are_sent_again(only: RedisServer, root: str) -> None:
    with coordlock.connect(only.url_for(root)) as client, only.client() as admin:
        for _ in range(3):
            admin.script_flush()
            with client.lock("a") as grant:
                admin.script_flush()
                grant.check()


def test_requests_keep_their_order_though_the_server_has_forgotten_the_script(
    only: RedisServer, root: str
) -> None:
    with coordlock.connect(only.url_for(root)) as client, only.client() as admin:
        backend = client._engine.backend
        for number in range(20):
            admin.script_flush()
            writes = [backend.write([Put("/v", b"%d" % (2 * number + add))]) for add in (0, 1)]
            errors = [write.exception(60) for write in writes]
            if errors[1] is None:
                value = client.value("/v").get()
                assert value is not None
                assert value.data == b"%d" % (2 * number + 1)


def test_a_full_memory_refuses_new_grants_and_ends_none(only: RedisServer, root: str) -> None:
    with coordlock.connect(only.url_for(root, ttl="12s")) as client, only.client() as admin:
        grant = client.lock("a").acquire()
        deadline = time.monotonic() + grant.remaining()
        admin.config_set("maxmemory", 1)
        with pytest.raises(BackendError, match="maxmemory"):
            client.lock("b").acquire(timeout=60)
        beats = lambda: time.monotonic() + grant.remaining() > deadline + 1  # noqa: E731
        eventually(beats, "a heartbeat that is acknowledged")
        assert grant.release() is True
        admin.config_set("maxmemory", 0)
        client.lock("b").acquire(timeout=60).release()


HOLDER = """
import sys, time, coordlock
grant = coordlock.connect(sys.argv[1]).lock("a").acquire()
print("held", flush=True)
time.sleep(60)
"""


HOLDER_OF_MANY = """
import sys, time, coordlock
client = coordlock.connect(sys.argv[1])
grants = [client.lock(name).acquire() for name in "abcd"]
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("key", ["queue:b", "claims:b", "watchers:b"])
def test_a_dead_client_leaves_all_queues_but_one_that_another_program_uses(
    only: RedisServer, root: str, key: str
) -> None:
    url = only.url_for(root, ttl="1s")
    command = [sys.executable, "-c", HOLDER_OF_MANY, url]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as holder,
        coordlock.connect(url, ttl="60s") as client,
        only.client() as admin,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        name = f"{{{root}}}:{key}"
        admin.set(name, "mine")
        holder.kill()
        for other in "acd":
            client.lock(other).acquire(timeout=60).release()
        assert admin.get(name) == b"mine"
        admin.delete(name)
        lock = client.lock("b")
        grant = lock.try_acquire()
        assert grant is not None
        grant.release()


@pytest.mark.parametrize("name", ["state", "sessions", "queues", "queue:a", "claims:a"])
def test_a_key_of_another_type_is_refused_and_kept(only: RedisServer, root: str, name: str) -> None:
    key = f"{{{root}}}:{name}"
    with only.client() as admin:
        admin.set(key, "mine")
        with (
            pytest.raises(BackendError, match="another program"),
            coordlock.connect(only.url_for(root, connect_timeout="2s")) as client,
        ):
            client.lock("a").acquire(timeout=60)
        assert admin.get(key) == b"mine"
        if name.endswith(":a"):
            with coordlock.connect(only.url_for(root)) as client:
                client.lock("b").acquire(timeout=60).release()


def test_a_replica_is_no_primary(only: RedisServer, tmp_path: Path, root: str) -> None:
    with RedisServer(tmp_path / "replica") as replica, replica.client() as admin:
        admin.replicaof("127.0.0.1", only.port)
        with pytest.raises(BackendError, match="is a replica, and its primary is"):
            coordlock.connect(replica.url_for(root, connect_timeout="2s"))


def test_a_wrong_password_is_told(only: RedisServer, root: str) -> None:
    with only.client() as admin:
        admin.config_set("requirepass", "right")
    host = f"127.0.0.1:{only.port}{root}"
    with pytest.raises(AuthenticationFailed):
        coordlock.connect(f"redis://:wrong@{host}")
    with coordlock.connect(f"redis://:right@{host}?restart_delay=0") as client:
        client.lock("a").acquire(timeout=60).release()
