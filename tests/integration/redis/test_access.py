"""How a client reaches Redis: by URL, TLS, a socket, a client of redis-py; and what is refused."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
import redis.asyncio
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

import coordlock
from coordlock import BackendError
from coordlock.errors import AuthenticationFailed, BackendUnavailable, ConfigurationError
from coordlock.testing.waiting import eventually
from testbed.servers.certificates import Certificates
from testbed.servers.process import ServerProcess
from testbed.servers.redis import (
    Redis,
    RedisCluster,
    RedisServer,
    Sentinel,
    knows_tls,
)
from tests.integration.refusing import check_nothing_stays

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("no_leaks")]


def excludes(url: str, client: Any = None) -> None:
    """Two clients exclude each other, and hand over."""
    with coordlock.connect(url, client=client) as one, coordlock.connect(url, client=client) as two:
        grant = one.lock("a").acquire(timeout=60)
        assert two.lock("a").try_acquire() is None
        grant.release()
        with two.lock("a").acquire(timeout=60) as later:
            assert later.token > grant.token


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[RedisServer]:
    """It wants certificates of its clients."""
    if not knows_tls():  # Debian's does; some packages of other releases don't
        pytest.skip("this redis-server was built without TLS")
    with RedisServer(tmp_path_factory.mktemp("tls"), tls=certificates) as server:
        yield server


def shown(certificates: Certificates) -> str:
    return f"ca={certificates.ca}&cert={certificates.client}&key={certificates.client_key}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_tls_with_certificates_of_both(
    secure: RedisServer, certificates: Certificates, root: str, host: str
) -> None:
    excludes(f"rediss://{host}:{secure.tls_port}{root}?restart_delay=0&{shown(certificates)}")


def test_large_values_cross_tls_whole(
    secure: RedisServer, certificates: Certificates, root: str
) -> None:
    """They are many records of TLS, of which nothing may stay where poll does not see it."""
    url = f"rediss://127.0.0.1:{secure.tls_port}{root}?restart_delay=0&{shown(certificates)}"
    with coordlock.connect(url, request_timeout="30s") as client:
        for size in (16_384, 65_536, 65_537, 1_000_000):
            data = bytes(range(256)) * (size // 256 + 1)
            client.value("/v").set(data)
            stored = client.value("/v").get()
            assert stored is not None
            assert stored.data == data


def is_unavailable(url: str, why: str) -> None:
    """Connecting fails and says why; where the machine stands still, after some attempts."""

    def fails() -> bool:
        with pytest.raises(BackendUnavailable) as caught:
            coordlock.connect(f"{url}connect_timeout=1s")
        return re.search(why, str(caught.value)) is not None

    eventually(fails, why)


def test_an_unknown_authority_is_told(secure: RedisServer, root: str) -> None:
    url = f"rediss://127.0.0.1:{secure.tls_port}{root}?"
    is_unavailable(url, "certificate verify failed")


def test_another_hosts_certificate_is_refused(
    secure: RedisServer, certificates: Certificates, root: str
) -> None:
    # The server's address, spelled as its certificate does not spell it.
    url = f"rediss://127.1:{secure.tls_port}{root}?{shown(certificates)}&"
    is_unavailable(url, r"not valid for '127\.1'")


def test_a_missing_certificate_of_the_client_is_told(
    secure: RedisServer, certificates: Certificates, root: str
) -> None:
    url = f"rediss://127.0.0.1:{secure.tls_port}{root}?ca={certificates.ca}&"
    is_unavailable(url, r"certificate required|closed|reset|EOF")


def test_an_encrypted_key_is_refused_and_no_pass_phrase_is_asked_for(
    secure: RedisServer, certificates: Certificates, root: str, tmp_path: Path
) -> None:
    key = load_pem_private_key(certificates.client_key.read_bytes(), None)
    encrypted = tmp_path / "key.pem"
    secret = BestAvailableEncryption(b"secret")
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    files = f"ca={certificates.ca}&cert={certificates.client}&key={encrypted}"
    with pytest.raises(ConfigurationError, match=rf"'key': {encrypted} is encrypted"):
        coordlock.connect(f"rediss://127.0.0.1:{secure.tls_port}{root}?{files}")


def test_a_port_that_wants_tls_is_guessed(secure: RedisServer, root: str) -> None:
    url = f"redis://127.0.0.1:{secure.tls_port}{root}?"
    is_unavailable(url, "does this port want TLS")


def test_a_port_without_tls_is_guessed(redis: Redis, root: str) -> None:
    url = f"rediss://{redis.host}:{redis.port}{root}?request_timeout=0.2s&"
    is_unavailable(url, "TLS was not answered")


def test_a_sentinel_and_a_redis_are_told_apart(
    only: RedisServer, tmp_path: Path, root: str
) -> None:
    with pytest.raises(BackendError, match="this is no Sentinel"):
        coordlock.connect(only.url_for(root, sentinel=Sentinel.NAME))
    with (
        Sentinel(tmp_path / "sentinel", only) as sentinel,
        pytest.raises(BackendError, match=r"is a Sentinel: .*\?sentinel=NAME"),
    ):
        coordlock.connect(f"redis://127.0.0.1:{sentinel.port}{root}")


def test_a_host_that_the_certificate_does_not_name_is_refused(
    secure: RedisServer, certificates: Certificates, root: str
) -> None:
    host = f"127.0.0.2:{secure.tls_port}"
    with secure.client() as admin:
        admin.config_set("bind", "127.0.0.1 127.0.0.2")
    with pytest.raises(BackendUnavailable, match=r"certificate|127\.0\.0\.2"):
        coordlock.connect(f"rediss://{host}{root}?connect_timeout=1s&{shown(certificates)}")


def test_a_socket_of_the_machine(tmp_path: Path, root: str) -> None:
    path = tmp_path / "s"
    with RedisServer(tmp_path / "redis", arguments=["--unixsocket", str(path)]):
        excludes(f"redis+unix://{root}?socket={path}&restart_delay=0")
        with redis_py.Redis(unix_socket_path=str(path)) as client:
            excludes(f"redis://{root}?restart_delay=0", client)


def test_the_scheme_of_valkey_is_the_same(redis: Redis, root: str) -> None:
    excludes(f"valkey://{redis.host}:{redis.port}{root}?restart_delay=0")


def test_a_database_by_its_number(redis: Redis, root: str) -> None:
    excludes(redis.url_for(root, db=3))
    with redis.client(db=3) as third, redis.client() as first:
        assert third.exists(f"{{{root}}}:state")
        assert not first.exists(f"{{{root}}}:state")


# Clients of redis-py


def test_a_database_that_the_server_lacks_is_told(redis: Redis, root: str) -> None:
    with pytest.raises(BackendError, match="fewer databases"):
        coordlock.connect(redis.url_for(root, db=999))


@pytest.mark.parametrize("options", [{}, {"decode_responses": True}, {"protocol": 3}, {"db": 2}])
def test_how_a_client_of_redis_py_connects_is_taken_over(
    redis: Redis, root: str, options: dict[str, Any]
) -> None:
    with redis.client(**options) as client:
        excludes(f"redis://{root}?restart_delay=0", client)
        assert client.exists(f"{{{root}}}:state")


def test_how_an_asynchronous_client_connects_is_taken_over(redis: Redis, root: str) -> None:
    async def main() -> None:
        async with redis.async_client(decode_responses=True) as client:
            url = f"redis://{root}?restart_delay=0"
            async with (
                coordlock.connect_async(url, client=client) as one,
                one.lock("a") as grant,
            ):
                assert grant.token
                assert await client.exists(f"{{{root}}}:state")

    asyncio.run(main())


def test_a_client_with_a_user_and_tls_is_taken_over(
    secure: RedisServer, certificates: Certificates, root: str
) -> None:
    with secure.client() as admin:
        admin.acl_setuser(
            "locks",
            enabled=True,
            passwords=["+s"],
            keys=["*"],
            channels=["*"],
            categories=["+@all"],
        )
    with redis_py.Redis(
        port=secure.tls_port,
        username="locks",
        password="s",
        ssl=True,
        ssl_ca_certs=str(certificates.ca),
        ssl_certfile=str(certificates.client),
        ssl_keyfile=str(certificates.client_key),
    ) as client:
        excludes(f"redis://{root}?restart_delay=0", client)


def test_a_client_of_sentinels_is_taken_over(
    only: RedisServer, replica: RedisServer, tmp_path: Path, root: str
) -> None:
    with Sentinel(tmp_path / "sentinel", only) as sentinel:
        module: Any = redis_py.sentinel  # it has no types
        sentinels = module.Sentinel([("127.0.0.1", sentinel.port)])
        with sentinels.master_for(Sentinel.NAME) as client:
            excludes(f"redis://{root}?restart_delay=0", client)
        with (
            sentinels.slave_for(Sentinel.NAME) as client,
            pytest.raises(ConfigurationError, match="master_for"),
        ):
            coordlock.connect(f"redis://{root}", client=client)


def test_a_client_of_a_cluster_is_taken_over(cluster: RedisCluster, root: str) -> None:
    first = cluster.members[0]
    with closing(redis_py.RedisCluster(host=first.host, port=first.port)) as client:
        excludes(f"redis://{root}?restart_delay=0", client)


def test_a_client_of_valkey_py_is_taken_over(redis: Redis, root: str) -> None:
    valkey = pytest.importorskip("valkey")
    with valkey.Valkey(host=redis.host, port=redis.port) as client:
        excludes(f"valkey://{root}?restart_delay=0", client)


# A cluster


def test_a_cluster_may_be_asked_at_any_node(cluster: RedisCluster, root: str) -> None:
    for member in cluster.members:
        excludes(member.url_for(root))


def test_a_node_that_is_silent_costs_a_part_of_the_time_and_that_once(
    cluster: RedisCluster, root: str
) -> None:
    owner = cluster.owner(f"{{{root}}}:state")
    silent = next(member for member in cluster.members if member is not owner)
    hosts = f"127.0.0.1:{silent.port},127.0.0.1:{owner.port}"
    url = f"redis://{hosts}{root}?restart_delay=0&request_timeout=2s"
    costs_half_a_request(silent, url)


def costs_half_a_request(silent: ServerProcess, url: str) -> None:
    """Though a client makes three connections, each of which may begin with the ``silent`` one."""

    def takes_a_second() -> bool:
        began = time.monotonic()
        with coordlock.connect(url) as client:
            client.lock("a").acquire(timeout=60).release()
        took = time.monotonic() - began
        assert took > 0.9
        return took < 1.8

    silent.pause()
    try:
        eventually(takes_a_second)
    finally:
        silent.resume()


def test_several_servers_that_know_nothing_of_each_other_are_refused(
    redis: Redis, only: RedisServer, root: str
) -> None:
    with pytest.raises(BackendError, match=r"no node of a cluster.*\?sentinel=NAME"):
        coordlock.connect(f"redis://{only.host}:{only.port},{redis.host}:{redis.port}{root}")


def test_a_cluster_has_one_database(cluster: RedisCluster, root: str) -> None:
    # Valkey 9 may be configured to have more.
    with pytest.raises(BackendError, match=r"database 0 alone|fewer databases"):
        coordlock.connect(cluster.url_for(root, db=1))


# Servers that cannot be used


@contextmanager
def relayed(
    server: Redis, old: bytes, new: bytes, asked: Callable[[bytes], None] = lambda _: None
) -> Iterator[int]:
    """A port that answers as ``server`` does, with ``new`` in place of ``old``.

    ``asked`` is given all requests, and ends the connection by an OSError.
    """
    ended = threading.Event()

    def pump(source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not is_answer:
                    asked(data)
                target.sendall(data.replace(old, new) if is_answer and old else data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def accept() -> None:
        while not ended.is_set():
            one, _ = listener.accept()
            if ended.is_set():
                one.close()
                return
            other = socket.create_connection((server.host, server.port))
            for pair in ((one, other, False), (other, one, True)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        port: int = listener.getsockname()[1]
        yield port
        ended.set()
        socket.create_connection(("127.0.0.1", port)).close()
        thread.join()


def test_a_server_before_6_2_is_refused(redis: Redis, root: str) -> None:
    with redis.client() as admin:
        version = admin.info("server")["redis_version"].encode()
    old = b"6.0.1".ljust(len(version), b"0")  # of the same length
    with (
        relayed(redis, b"redis_version:" + version, b"redis_version:" + old) as port,
        pytest.raises(BackendError, match=r"needs Redis 6\.2 or later, not 6\.0\.1"),
    ):
        coordlock.connect(f"redis://127.0.0.1:{port}{root}")


def test_a_server_that_does_not_name_its_process_is_refused(redis: Redis, root: str) -> None:
    with (
        relayed(redis, b"run_id:", b"run-id:") as port,
        pytest.raises(BackendError, match=r"gives no run_id.*Redis or Valkey itself"),
    ):
        coordlock.connect(f"redis://127.0.0.1:{port}{root}")


def test_a_server_that_runs_no_scripts_is_told(tmp_path: Path, root: str) -> None:
    hidden = ["--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""]
    with (
        RedisServer(tmp_path / "redis", arguments=hidden) as server,
        pytest.raises(BackendError, match="no proxy that knows no scripts"),
    ):
        coordlock.connect(server.url_for(root))


# Access rights

RIGHTS = (
    "~{ROOT}:* resetchannels &{ROOT}:* "
    "+@read +@write +@scripting +@pubsub +@connection +info +time +wait"
)
SCRIPTS = resources.files("coordlock_redis") / "lua"
COMMANDS = sorted(
    {
        command
        for file in SCRIPTS.iterdir()
        for command in re.findall(r"call\('([A-Z]+)'", file.read_text())
    }
)


def test_the_page_names_the_rights() -> None:
    page = Path(__file__).parents[3] / "docs/backends/redis.md"
    assert RIGHTS.replace("ROOT", "/payments") in page.read_text()


def test_a_user_with_the_rights_on_the_page_needs_no_others(redis: Redis, root: str) -> None:
    with redis.client() as admin:
        rights = RIGHTS.replace("ROOT", root).split()
        admin.execute_command("ACL SETUSER", "page", "reset", "on", ">s", *rights)
        try:
            url = f"redis://page:s@{redis.host}:{redis.port}{root}?restart_delay=0"
            excludes(url)
            with coordlock.connect(url) as client, client.read_lock("b"), client.semaphore("c", 2):
                client.value("/d").set(b"1")
        finally:
            admin.execute_command("ACL DELUSER", "page")


@pytest.mark.parametrize(
    "command", [*COMMANDS, "SCRIPT", "EVALSHA", "SUBSCRIBE", "keys", "channels"]
)
def test_a_missing_right_is_told_when_the_client_connects(
    redis: Redis, root: str, command: str
) -> None:
    """Also where the root has a state already, so that the first script does less."""
    with coordlock.connect(redis.url_for(root)):
        pass
    rights = RIGHTS.replace("ROOT", root).split()
    match command:
        case "keys":
            rights = rights[1:]
        case "channels":
            rights = rights[:2] + rights[3:]
        case _:
            rights.append(f"-{command}")
    with redis.client() as admin:
        admin.execute_command("ACL SETUSER", "less", "reset", "on", ">s", *rights)
        try:
            url = f"redis://less:s@{redis.host}:{redis.port}{root}?connect_timeout=2s"
            with pytest.raises(AuthenticationFailed, match="must be allowed"):
                coordlock.connect(url)
        finally:
            admin.execute_command("ACL DELUSER", "less")


@pytest.mark.parametrize("reason", ["MISCONF", "NOPERM"])
def test_what_is_given_up_while_the_server_refuses_writes_leaves_when_it_accepts_them(
    only: RedisServer, reason: str
) -> None:
    admin: Any = only.client()

    def refuse() -> None:
        if reason == "NOPERM":
            admin.execute_command("ACL", "SETUSER", "default", "-zrem", "-del")
            return
        shutil.rmtree(only.directory)  # so that it cannot save its data
        admin.config_set("save", "3600 1")
        admin.bgsave()
        eventually(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err")

    def accept() -> None:
        if reason == "NOPERM":
            admin.execute_command("ACL", "SETUSER", "default", "+@all")
        else:
            admin.config_set("save", "")

    with (
        closing(admin),
        coordlock.connect(only.url_for("/r")) as client,
        coordlock.connect(only.url_for("/r")) as other,
    ):
        check_nothing_stays(client, other, refuse, accept)
