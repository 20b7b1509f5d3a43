"""Reads and writes under a grant, among losses, faults and hostile keys."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from coordlock_memory import Fault, MemoryBackend
from hypothesis import given, settings
from hypothesis import strategies as st

import coordlock
from coordlock import (
    BackendUnavailable,
    Client,
    CoordlockError,
    Grant,
    GrantState,
    LockLost,
    SessionLost,
)
from coordlock.backend import Operation, Put, Written
from coordlock.errors import InvalidName, Unsupported
from coordlock.model.contender import Contender
from coordlock.records.transaction import check_key
from coordlock.runtime.driver import run
from coordlock.runtime.promise import Promise, failed
from coordlock.testing.waiting import eventually
from coordlock.types import VersionedValue
from tests.simulation.world import TTL, Call, Party, World
from tests.unit.clients import Service, backend


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service, no_leaks: None) -> Iterator[Client]:
    with service.client() as client:
        yield client


# Keys


def zookeeper_takes(path: str) -> bool:
    """ZooKeeper's own rule, of the class PathUtils, which looks at UTF-16."""
    if not path.startswith("/") or path.endswith("/") or "//" in path:
        return False
    if any(part in (".", "..") for part in path.split("/")):
        return False
    units = path.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        unit = int.from_bytes(units[at : at + 2])
        if unit == 0 or unit < 0x1F or 0x7F < unit < 0x9F:
            return False
        if 0xD800 < unit < 0xF8FF or 0xFFF0 < unit < 0xFFFF:
            return False
    return True


paths = st.lists(
    st.text(min_size=1, max_size=4)
    | st.sampled_from([".", "..", "", "zookeeper", "locks", "orders", "@data"]),
    max_size=5,
).map(lambda parts: "/" + "/".join(parts))


@given(key=st.text() | paths, root=st.sampled_from(["/locks", "/a/locks", "/"]))
@settings(max_examples=500)
def test_every_key_that_is_taken_can_be_kept_and_is_nobodys_contender(key: str, root: str) -> None:
    try:
        assert check_key(key, root, ["orders"]) == key
    except InvalidName:
        return
    assert zookeeper_takes(key)
    assert not (key + "/").startswith("/zookeeper/")
    refused = ("/orders/", "/@") if root == "/" else (root + "/",)
    assert not (key + "/").startswith(refused)
    assert len(key.encode()) <= 1024


@pytest.mark.parametrize("key", ["/a", "/apps", "/apps/locksmith", "/apps/lock", "/zookeepers/x"])
def test_what_lies_beside_or_above_the_root_is_free(key: str) -> None:
    assert check_key(key, "/apps/locks", ["orders"]) == key


def test_below_the_top_only_the_own_queue_and_coordlocks_data_are_refused() -> None:
    for key in ("/app/config", "/orders-data/x", "/app/orders", "/orders%20b/x", "/app/@x"):
        assert check_key(key, "/", ["orders"]) == key
    for key in ("/orders", "/orders/x"):
        with pytest.raises(InvalidName, match="'/orders'"):
            check_key(key, "/", ["orders"])
    with pytest.raises(InvalidName, match="'/a%20b'"):
        check_key("/a%20b/x", "/", ["a b"])
    with pytest.raises(InvalidName, match="coordlock itself"):
        check_key("/@data/x", "/", ["orders"])


def test_an_overlong_key_is_not_shown_whole() -> None:
    with pytest.raises(InvalidName, match="1024 bytes") as caught:
        check_key("/" + "x" * 5000, "/locks", ["orders"])
    assert len(str(caught.value)) < 200


# Losses


def requests(party: Party, *kinds: str) -> int:
    return sum(kind in kinds for kind in party.network.requests)


def stored(world: World, key: str = "/k") -> VersionedValue | None:
    return world.service._state.data.get(key)


def put(grant: Grant, data: bytes, key: str = "/k") -> Any:
    return grant._commit([Put(key, data)])


def test_a_grant_past_its_deadline_is_lost_without_asking(world: World, party: Party) -> None:
    grant = party.held()
    party.pause()
    world.advance(TTL)
    for steps in (put(grant, b"late"), grant._read("/k")):
        with pytest.raises(LockLost):
            run(steps)
    assert requests(party, "write", "read") == 0


def test_an_evicted_grant_is_lost_at_once_and_a_heartbeat_asks_for_the_session(
    world: World, party: Party
) -> None:
    grant = party.held()
    world.service.remove(world.queue()[0])
    beats = requests(party, "heartbeat")
    commit = party.run(put(grant, b"late"))
    world.settle()
    assert isinstance(commit.error, LockLost)
    assert "removed from the queue" in str(commit.error)
    assert commit.error.__context__ is None
    assert grant.lost.is_set()
    assert requests(party, "heartbeat") == beats + 1
    assert stored(world) is None


@pytest.mark.parametrize("use", ["write", "read"])
def test_a_session_that_the_service_has_forgotten_is_over_here_too(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    def forgotten(*_: object, **how: object) -> Promise[Any]:
        return failed(SessionLost("memory", "it expired"))

    grant = party.held()
    monkeypatch.setattr(party.network, use, forgotten)
    call: Call[Any] = party.run(put(grant, b"late") if use == "write" else grant._read("/k"))
    world.settle()
    assert isinstance(call.error, LockLost)
    assert "it expired" in str(call.error)
    assert grant.lost.is_set()


def test_a_release_that_overtakes_a_commit_makes_it_a_released_lock(
    world: World, party: Party
) -> None:
    """The commit is sent before and arrives after."""
    grant = party.held()
    arriving: Promise[Written] = Promise()
    service = party.network
    write_now = service.write
    service.write = lambda *_: arriving  # type: ignore[method-assign]
    commit = party.run(put(grant, b"late"))
    party.run(grant._release(None))
    world.settle()
    late = write_now([Put("/k", b"late")], grant._ticket.contenders)
    error = late.exception()
    assert error is not None
    arriving.fail(error)
    world.settle()
    assert isinstance(commit.error, LockLost)
    assert "released" in str(commit.error)
    assert grant.state is GrantState.RELEASED
    assert stored(world) is None


def test_a_client_that_is_closed_under_a_commit_ends_it(service: Service) -> None:
    client = service.client()
    grant = client.lock("q").acquire()
    backend(client).faults.partition()
    errors: list[BaseException] = []

    def commit() -> None:
        try:
            grant.transaction().put("/k", b"x").commit()
        except CoordlockError as error:
            errors.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    eventually(lambda: backend(client).faults._held_back)
    client.close()
    thread.join(30)
    [error] = errors
    assert isinstance(error, BackendUnavailable)
    assert grant.lost.is_set()


# Faults


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_a_read_without_an_answer_is_repeated(world: World, party: Party, fault: Fault) -> None:
    grant = party.held()
    party.run(put(grant, b"x"))
    party.network.faults.inject("read", fault, times=3)
    read = party.run(grant._read("/k"))
    world.advance(5)
    assert read.result == VersionedValue(b"x", 1)
    assert requests(party, "read") == 4


def test_a_read_that_is_repeated_ends_with_the_lock(world: World, party: Party) -> None:
    grant = party.held()
    party.network.faults.inject("read", Fault.LOSE_REQUEST, times=1000)
    read = party.run(grant._read("/k"))
    world.advance(1)
    assert not read.done
    world.service.expire(world.service.sessions()[0])
    world.advance(5)
    assert isinstance(read.error, LockLost)


def test_silence_ends_at_the_deadline_and_says_what_is_unknown(world: World, party: Party) -> None:
    grant = party.held()
    party.cut_off()
    commit, read = party.run(put(grant, b"x")), party.run(grant._read("/k"))
    world.advance(5)
    assert isinstance(commit.error, BackendUnavailable)
    assert "may have been made" in str(commit.error)
    assert isinstance(read.error, BackendUnavailable)
    assert "may have been made" not in str(read.error)
    assert not grant.lost.is_set()


@pytest.mark.parametrize("use", ["write", "read"])
def test_the_request_timeout_bounds_every_use(service: Service, use: str) -> None:
    with service.client(request_timeout=0.3) as client, client.lock("q") as grant:
        backend(client).faults.partition()
        started = time.monotonic()
        with pytest.raises(BackendUnavailable):
            grant.transaction().commit() if use == "write" else grant.read("/k")
        assert 0.3 <= time.monotonic() - started < 10
        backend(client).faults.heal()


def test_a_cancelled_commit_may_be_made(service: Service, no_leaks: None) -> None:
    async def main() -> None:
        async with service.async_client() as client, client.lock("q") as grant:
            backend(client).faults.latency = lambda: 0.2
            commit = asyncio.create_task(grant.transaction().put("/k", b"x").commit())
            await asyncio.sleep(0)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            assert await grant.read("/k") == VersionedValue(b"x", 1)
            read = asyncio.create_task(grant.read("/k"))
            await asyncio.sleep(0)
            read.cancel()
            with pytest.raises(asyncio.CancelledError):
                await read
            grant.check()

    asyncio.run(main())


def test_a_transaction_under_way_does_not_see_what_is_added_to_it(client: Client) -> None:
    seen: list[list[Operation]] = []
    with client.lock("q") as grant:
        transaction = grant.transaction().put("/a", b"1")
        kept: list[Any] = []
        write = backend(client).service.write

        def spy(operations: Any, guards: Sequence[Contender] = ()) -> Written:
            kept.append(operations)
            transaction.put("/b", b"2")
            seen.append(list(operations))
            return write(operations, guards)

        backend(client).service.write = spy  # type: ignore[method-assign]
        transaction.commit()
        assert grant.read("/b") is None
    assert seen == [[Put("/a", b"1")]]


def test_a_backend_without_data_says_so_before_anything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataless = replace(MemoryBackend.capabilities, data=False)
    monkeypatch.setattr(MemoryBackend, "capabilities", dataless)
    with coordlock.connect("memory://nodata") as client:
        grant = client.lock("q").acquire()
        grant.release()
        with pytest.raises(Unsupported, match="memory backend"):
            grant.transaction()
        for key in ("/k", "no path"):
            with pytest.raises(Unsupported, match=r"coordlock\.fencing\.files\.FileFence"):
                grant.read(key)


FORK = """
import os, coordlock
client = coordlock.connect("memory://fork")
grant = client.lock("q").acquire()
transaction = grant.transaction().put("/k", b"child")
child = os.fork()
if child == 0:
    for use in (transaction.commit, lambda: grant.read("/k"), grant.transaction().commit):
        try:
            use()
        except coordlock.errors.ClientClosed:
            continue
        os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert grant.read("/k") is None
grant.transaction().put("/k", b"parent").commit()
client.close()
"""


def test_a_forked_child_neither_reads_nor_writes() -> None:
    done = subprocess.run(
        # Python 3.12 and later warn of forks among threads, which this test is about.
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", FORK],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
