"""coordlock and Curator's own recipes exclude each other on the same path, in either order.

The peer is a Java process. What the tests here show is the table in ``docs/backends/zookeeper.md``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import coordlock
from coordlock import Mode
from coordlock.testing.waiting import eventually
from testbed.servers.curator import Curator
from testbed.servers.zookeeper import ZooKeeper
from tests.docs.pages import blocks

QUEUE = "orders"
BOUND = 60.0
STYLES = ("kazoo", "curator", "curator-rw")
MODES = [mode for mode in Mode if mode is not Mode.NL]
READERS = (Mode.CR, Mode.PR)

Connect = Callable[[str], coordlock.Client]


@pytest.fixture(scope="module")
def curator(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[Curator]:
    # The driver is the one that the documentation shows.
    [driver] = [one for one in blocks("docs/backends/zookeeper.md") if one.language == "java"]
    with Curator(tmp_path_factory.mktemp("curator"), zookeeper, driver.text) as curator:
        yield curator


@pytest.fixture
def path(root: str) -> str:
    return f"{root}/{QUEUE}"


@pytest.fixture
def connect(zookeeper: ZooKeeper, root: str) -> Iterator[Connect]:
    """Opens clients whose contenders are named in a style."""
    opened: list[coordlock.Client] = []

    def connect(style: str) -> coordlock.Client:
        opened.append(coordlock.connect(zookeeper.url_for(root, nodes=style)))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


def length_is(client: coordlock.Client, number: int) -> bool:
    return len(client.admin.contenders(QUEUE)) == number


def excluded(curator: Curator, recipe: str, path: str) -> bool:
    """Whether somebody else keeps the recipe from being granted at once."""
    lock = curator.lock(recipe, path)
    if lock.try_acquire():
        lock.release()
        return False
    return True


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("recipe", ["Mutex", "BySequence", "WriteLock"])
def test_a_curator_writer_excludes_every_mode_but_null(
    connect: Connect, curator: Curator, path: str, recipe: str, style: str
) -> None:
    client = connect(style)
    with curator.lock(recipe, path):
        for mode in MODES:
            assert client.lock(QUEUE, mode=mode).try_acquire() is None
        with pytest.raises(coordlock.NameConflict, match="in use as a lock in mode EX"):
            client.semaphore(QUEUE, 9).try_acquire()
        with client.lock(QUEUE, mode=Mode.NL):
            pass
    with client.lock(QUEUE, timeout=BOUND):
        pass


@pytest.mark.parametrize("style", STYLES)
def test_a_curator_reader_excludes_as_a_protected_read(
    connect: Connect, curator: Curator, path: str, style: str
) -> None:
    client = connect(style)
    with curator.lock("ReadLock", path):
        for mode in Mode:
            grant = client.lock(QUEUE, mode=mode).try_acquire()
            assert (grant is not None) is not mode.conflicts(Mode.PR), mode
            if grant is not None:
                grant.release()


@pytest.mark.parametrize(
    ("style", "recipe"), [("curator", "Mutex"), *((style, "BySequence") for style in STYLES)]
)
def test_a_curator_mutex_is_excluded_by_every_mode(
    connect: Connect, curator: Curator, path: str, style: str, recipe: str
) -> None:
    client = connect(style)
    for mode in MODES:
        with client.lock(QUEUE, mode=mode):
            assert excluded(curator, recipe, path), mode
    with client.semaphore(QUEUE, 9):
        assert excluded(curator, recipe, path)
    assert not excluded(curator, recipe, path)


def test_curators_read_and_write_locks_are_excluded_as_the_matrix_says(
    connect: Connect, curator: Curator, path: str
) -> None:
    client = connect("curator-rw")
    for mode in MODES:
        with client.lock(QUEUE, mode=mode):
            assert excluded(curator, "WriteLock", path), mode
            assert excluded(curator, "ReadLock", path) is (mode not in READERS), mode
    with client.semaphore(QUEUE, 9):
        assert excluded(curator, "WriteLock", path)
        assert excluded(curator, "ReadLock", path)


@pytest.mark.parametrize(
    ("style", "recipe"),
    [("kazoo", "Mutex"), ("kazoo", "WriteLock"), ("curator", "WriteLock"), ("curator-rw", "Mutex")],
)
def test_a_curator_recipe_passes_over_names_that_are_not_its_own(
    connect: Connect, curator: Curator, path: str, style: str, recipe: str
) -> None:
    """Why the option exists; where Curator ends to do so, the page has to change."""
    with connect(style).lock(QUEUE):
        assert not excluded(curator, recipe, path)


@pytest.mark.parametrize(
    ("style", "recipe"),
    [("curator", "Mutex"), ("kazoo", "BySequence"), ("curator-rw", "WriteLock")],
)
def test_a_queue_with_curator_is_served_in_order(
    connect: Connect,
    curator: Curator,
    path: str,
    start: Callable[..., Future[Any]],
    style: str,
    recipe: str,
) -> None:
    client = connect(style)
    granted: list[int] = []

    def wait_in_curator(number: int) -> None:
        with curator.lock(recipe, path):
            granted.append(number)

    def wait_in_coordlock(number: int) -> None:
        with client.lock(QUEUE):
            granted.append(number)

    with client.lock(QUEUE):
        waiting = []
        for number, wait in enumerate([wait_in_curator, wait_in_coordlock] * 3):
            waiting.append(start(wait, number))
            eventually(partial(length_is, client, number + 2))
    for one in waiting:
        one.result(BOUND)
    assert granted == [0, 1, 2, 3, 4, 5]


def test_a_waiting_curator_reader_is_granted_beside_coordlocks(
    connect: Connect, curator: Curator, path: str
) -> None:
    client = connect("curator-rw")
    reader = curator.lock("ReadLock", path)
    writer = client.lock(QUEUE).acquire(BOUND)
    waiting = reader.ask()
    eventually(partial(length_is, client, 2))
    assert not waiting.done()
    writer.release()
    assert waiting.result(BOUND) == "granted"
    with client.read_lock(QUEUE, timeout=BOUND):
        assert length_is(client, 2)
        assert client.lock(QUEUE).try_acquire() is None
    reader.release()


@pytest.mark.parametrize("mode", [Mode.EX, Mode.PR])
def test_a_curator_writer_that_goes_on_as_a_reader_keeps_writers_out(
    connect: Connect,
    zookeeper: ZooKeeper,
    path: str,
    start: Callable[..., Future[Any]],
    mode: Mode,
) -> None:
    """As Curator does from 5.5 on: its reader enters at the place of its writer, before others."""
    client = connect("curator-rw")
    with zookeeper.kazoo() as kazoo:
        writer = kazoo.create(
            f"{path}/_c_{uuid.uuid4()}-__WRIT__", ephemeral=True, sequence=True, makepath=True
        )
        behind = kazoo.create(f"{path}-2/x-", ephemeral=True, sequence=True, makepath=True)
        waiting = start(client.lock(QUEUE, mode=mode).acquire, BOUND)
        heard = start(client.lock(f"{QUEUE}-2").acquire, BOUND)
        eventually(partial(length_is, client, 2))
        eventually(lambda: len(client.admin.contenders(f"{QUEUE}-2")) == 2)
        reader = f"{path}/_c_{uuid.uuid4()}-__READ__{writer[-10:]}"
        kazoo.create(reader, ephemeral=True)
        kazoo.delete(writer)
        kazoo.delete(behind)
        heard.result(BOUND).release()  # so the client has heard of what came before
        if mode is Mode.EX:
            assert not waiting.done()
            assert [one.holding for one in client.admin.contenders(QUEUE)] == [True, False]
            assert not waiting.done()
            kazoo.delete(reader)
        waiting.result(BOUND).release()


@pytest.mark.parametrize("one", STYLES)
@pytest.mark.parametrize("other", STYLES)
def test_clients_with_different_names_exclude_each_other(
    connect: Connect, one: str, other: str
) -> None:
    with connect(one).lock(QUEUE):
        assert connect(other).lock(QUEUE).try_acquire() is None
    with connect(one).read_lock(QUEUE), connect(other).read_lock(QUEUE):
        assert connect(other).lock(QUEUE).try_acquire() is None
