"""Reads and writes under a grant, among losses, faults and hostile keys."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from coordlock_memory import Fault
from hypothesis import given, settings
from hypothesis import strategies as st

from coordlock import (
    BackendUnavailable,
    Client,
    CoordlockError,
    Grant,
    GrantState,
    LockLost,
    SessionLost,
)
from coordlock.backend import Put, Written
from coordlock.errors import InvalidName
from coordlock.records.transaction import check_key
from coordlock.runtime.driver import run
from coordlock.runtime.promise import Promise, failed
from coordlock.testing.waiting import eventually
from coordlock.types import VersionedValue
from tests.simulation.world import TTL, Call, Party, World
from tests.unit.clients import Service, backend

pytestmark = pytest.mark.usefixtures("no_leaks")


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


NO_KEYS: list[Any] = [
    "",
    "/",
    "relative",
    "/a/",
    "//a",
    "/a//b",
    "/a/./b",
    "/../a",
    "/nul\0byte",
    "/line\nbreak",
    "/del\x7f",
    "/lone\ud800surrogate",
    "/\ue000private",
    "/🔒",
    "/" + "x" * 1024,
    "/" + "é" * 512,
    "/zookeeper",
    "/zookeeper/quota",
    b"/a",
    None,
]


@pytest.mark.parametrize("key", NO_KEYS, ids=ascii)
def test_a_key_that_some_service_could_not_keep_is_refused(key: Any) -> None:
    with pytest.raises(InvalidName):
        check_key(key, "/locks", ["orders"])


def test_what_no_transaction_takes_is_refused_at_once(client: Client) -> None:
    with client.lock("q") as grant:
        transaction = grant.transaction().put("/a", b"1")
        refused: list[tuple[type[Exception], str, Any]] = [
            (InvalidName, "twice", partial(transaction.put, "/a", b"2")),
            (InvalidName, "twice", partial(transaction.delete, "/a")),
            (InvalidName, "absolute", partial(grant.read, "a")),
            (InvalidName, "absolute", partial(transaction.put, "a", b"")),
            (InvalidName, "absolute", partial(transaction.delete, "a")),
            (InvalidName, "absolute", partial(transaction.expect, "a", 1)),
        ]
        no_data: list[Any] = ["text", bytearray(b"x"), None, 7]
        no_versions: list[Any] = [-1, 2**63, True, 1.0, "1", None]
        refused += [(TypeError, "bytes", partial(transaction.put, "/b", one)) for one in no_data]
        refused += [
            (ValueError, "version", partial(transaction.expect, "/b", one)) for one in no_versions
        ]
        for error, text, act in refused:
            with pytest.raises(error, match=text):
                act()
        transaction.commit()
        assert grant.read("/a") == VersionedValue(b"1", 1)


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
    service.service.expire(service.service.sessions()[0])  # its thread would end as late


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
