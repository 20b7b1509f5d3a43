"""Signal handlers at every moment at which Python runs them: as a function begins, as C returns."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import coordlock_etcd.watcher
import coordlock_memory
import pytest

import coordlock
import coordlock.backend.watch_table
from coordlock import Client, Grant
from coordlock.model.contender import Entry, Snapshot
from coordlock.runtime.promise import Promise, failed
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from tests.unit.clients import Service
from tests.unit.signals import Signal, moments, struck

every_moment = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
pytestmark = pytest.mark.usefixtures("generators_end_unheard", "sweeps_often")


class Alarm(Exception):
    """What a signal handler raises where the program goes on, such as a soft time limit."""


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture(
    params=[
        "memory",
        "local",
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return f"memory://{root}"
        case "local":
            return f"local://{tmp_path}/state?request_timeout=30s"
        case service:
            return str(request.getfixturevalue(service).url_for(root))


def hold(client: Client, way: str) -> None:
    """Enter and leave a block in this way."""
    match way:
        case "stack":
            with contextlib.ExitStack() as stack:
                stack.enter_context(client.lock("q"))
        case "lock_by":
            client.lock_by(lambda: "q")(lambda: None)()
        case _:
            with client.lock("q"):
                pass


def _has_begun(grant: Grant) -> bool:
    """Whether its release has, which the sweep goes on with."""
    return grant._ticket.is_given_up or grant._ticket.is_leaving


@pytest.mark.filterwarnings(
    "ignore:.* was dropped while it was held:ResourceWarning",
    "ignore:unclosed file:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
@pytest.mark.parametrize(
    "way", ["acquire", "wait", "time out", "release", "with", "stack", "lock_by"]
)
@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.long)])
def test_wherever_a_signal_handler_raises_the_lock_is_free_at_the_next_sweep(
    url: str, way: str, every: int
) -> None:
    """At each line, or ``every`` so many, of the core and of the service's backend."""
    with coordlock.connect(url) as client, coordlock.connect(url) as other:
        lock, grants, kept = client.lock("q"), list[Grant](), list[BaseException]()

        def use() -> None:
            match way:
                case "acquire" | "wait":
                    try:
                        grants.append(lock.acquire(60))
                    except Alarm as struck_with:
                        kept.append(struck_with)  # as a log may: with it, the frames live on
                        raise
                case "release":
                    grants[0].release()
                case "time out":
                    with contextlib.suppress(coordlock.WaitError):
                        lock.acquire(timeout=0.01)
                case _:
                    hold(client, way)

        for number in itertools.count(1, every):
            blocking = other.lock("q").acquire(60) if way in ("time out", "wait") else None
            grants[:] = [lock.acquire(60)] if way == "release" else []
            if way == "wait":
                assert blocking is not None
                threading.Timer(0.01, blocking.release).start()
            started = time.monotonic()
            place = struck(use, number, Alarm)
            assert time.monotonic() - started < 30, place
            gc.collect(way == "stack")  # the errors of one that ends are in a cycle with it
            if blocking is not None:
                blocking.release()
            if way == "release" and not _has_begun(grants[0]):
                assert number < 40  # its caller knows that it had not begun
                grants[0].release()
            if way in ("acquire", "wait"):
                for grant in grants:
                    grant.release()
            try:
                other.lock("q").acquire(60).release()
            except coordlock.AcquireTimeout:
                pytest.fail(f"it stays held after {place}")
            eventually(lambda: not other.admin.contenders("q"), place)
            if not place:
                break
        assert number > 100


@pytest.mark.etcd
@pytest.mark.parametrize("within", [coordlock.backend.watch_table, coordlock_etcd.watcher])
def test_a_waiter_gets_its_turn_though_ctrl_c_has_struck_its_client_as_that_began_the_same_watch(
    etcd: Etcd, root: str, within: ModuleType
) -> None:
    """The fault: etcd was never asked for the watch, which the client's next waiters shared."""
    url = etcd.url_for(root)
    with (
        coordlock.connect(url) as client,
        coordlock.connect(url) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        for strike in moments(5, within):
            hold = other.lock("q").acquire(60)
            with contextlib.suppress(coordlock.AcquireTimeout):
                strike(lambda: client.lock("q").acquire(0.5))
            waits = pool.submit(client.lock("q").acquire, 20)
            eventually(lambda: len(other.admin.contenders("q")) == 2)
            hold.release()
            waits.result().release()


def test_what_a_signal_handler_strikes_as_it_was_sent_is_removed_also_if_it_comes_after_its_removal(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: it stood in the queue until the session's end, and nobody was granted the lock."""
    client.lock("q").acquire().release()
    backend = client._access.engine.backend
    enqueue, withdraw, late = backend.enqueue, backend.withdraw, list[Sequence[Entry]]()

    def struck_when_sent(
        entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        late.append(entries)
        return failed(Alarm())

    def overtaking(entries: Sequence[Entry]) -> Promise[bool]:
        answer = withdraw(entries)
        while late:
            enqueue(late.pop())
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(backend, "enqueue", struck_when_sent)
        patch.setattr(backend, "withdraw", overtaking)
        with pytest.raises(Alarm):
            client.lock("q").acquire()
    assert service.size("q") == 1
    eventually(lambda: service.size("q") == 0)


def test_a_lock_that_is_entered_again_after_a_struck_release_is_not_withdrawn() -> None:
    with coordlock.connect("memory:///again") as client, coordlock.connect("memory:///again") as o:
        lock = client.reentrant_lock("q")
        for number in range(1, 60, 4):
            first = lock.acquire(60)
            place = struck(first.release, number, Alarm)
            again = lock.acquire(60)
            client._access.engine.tickets.sweep()
            again.check()
            assert o.lock("q").try_acquire() is None, place
            again.release()
            first.release()
            o.lock("q").acquire(60).release()
            assert place


def test_an_owner_whose_call_was_struck_acquires_a_reentrant_lock_again_at_once() -> None:
    with coordlock.connect("memory:///owner") as client:
        lock, grants = client.reentrant_lock("q", owner="o"), list[Grant]()
        kept = list[BaseException]()

        def acquire() -> None:
            try:
                grants.append(lock.acquire(60))
            except Alarm as struck_with:
                kept.append(struck_with)  # as a log may: with it, the frames live on
                raise

        for number in itertools.count(1):
            place = struck(acquire, number, Alarm)
            while grants:
                grants.pop().release()
            client._access.engine.tickets.sweep()
            lock.acquire(60).release()
            eventually(lambda: not client.admin.contenders("q"), place)
            if not place:
                break
        assert number > 100


def test_a_call_by_hand_that_is_struck_does_not_count_as_a_body() -> None:
    with coordlock.connect("memory:///hand") as client:
        for number in itertools.count(1, 3):
            lock = client.lock("q")
            place = struck(lock.__enter__, number, Alarm)
            if not place:
                lock.__exit__(None, None, None)
                break
            client._access.engine.tickets.sweep()
            eventually(lambda: not client.admin.contenders("q"), place)
            lock.__enter__()
            lock.__exit__(None, None, None)
            assert not client.admin.contenders("q"), place
        assert number > 100


def test_ctrl_c_in_a_block_of_several_leaves_nobody_in_any_queue(
    service: Service, client: Client
) -> None:
    several = client.multi_lock(["q", "r", "s"])

    def use() -> None:
        with several:
            pass

    for strike in moments(60):
        strike(use)
        eventually(lambda: [service.size(name) for name in "qrs"] == [0, 0, 0])


def test_ctrl_c_while_opening_a_session_leaves_a_client_that_can_open_another(
    service: Service, client: Client
) -> None:
    for strike in moments(60):
        for session in service.service.sessions():
            service.service.expire(session)
        strike(lambda: client.lock("q").acquire(60).release())
        client.lock("r").acquire(60).release()


def test_a_signal_handler_may_release_another_lock(client: Client) -> None:
    for number in itertools.count(1):
        other = client.lock("other").acquire()
        signal = Signal(number, other.release)

        def act() -> None:
            with signal:  # noqa: B023
                client.lock("q").acquire().release()

        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), f"moment {number} hangs"
        assert other.release()
        if not signal.came:
            break
    assert number > 60


def test_a_signal_handler_that_converts_the_grant_being_converted_is_refused(
    client: Client,
) -> None:
    """The fault: it waited for ever for the conversion that it had interrupted."""
    refusals: list[RuntimeError] = []

    def convert() -> None:
        try:
            grant.upgrade(0)
        except RuntimeError as refused:
            refusals.append(refused)

    with client.upgradeable_lock("q") as grant:
        for number in itertools.count(1):
            signal = Signal(number, convert)

            def act() -> None:
                with signal:  # noqa: B023
                    grant.upgrade(60)

            thread = threading.Thread(target=act, daemon=True)
            thread.start()
            thread.join(60)
            assert not thread.is_alive(), f"moment {number} hangs"
            grant.downgrade()
            if not signal.came:
                break
    assert len(refusals) > 30


def test_a_conversion_that_ctrl_c_struck_can_be_repeated(client: Client) -> None:
    with client.upgradeable_lock("q") as grant:
        for strike in moments(30):
            strike(lambda: grant.upgrade(60))
            grant.upgrade(60)
            grant.downgrade()


@every_moment
def test_an_error_of_a_signal_handler_during_a_removal_reaches_the_caller_and_removes(
    service: Service, client: Client, every: int
) -> None:
    def expire() -> None:
        raise TimeoutError("the application's own")

    for number in itertools.count(1, every):
        grant = client.lock("q").acquire()
        strike = Signal(number, expire)
        try:
            with strike:
                grant.release()
            reached = False
        except TimeoutError:
            reached = True
        assert reached is strike.came
        grant.release()
        eventually(lambda: service.size("q") == 0)
        if not strike.came:
            break
    assert number > 20


@every_moment
@pytest.mark.parametrize("within", [coordlock, coordlock_memory])
@pytest.mark.parametrize("end", ["release", "close"])
def test_ctrl_c_at_any_moment_of_a_release_or_a_close_leaves_no_waiter_unwoken(
    within: ModuleType, end: str, every: int
) -> None:
    """The memory service tells the waiters, all in this process, of each departure."""
    for strike in moments(3, within, every=every):
        service = Service()
        holder, other = service.client(), service.client()
        grant = holder.read_lock("q").acquire()
        leave = grant.release if end == "release" else holder.close
        with ThreadPoolExecutor(3) as pool:
            waits = []
            for place in range(2, 5):
                waits.append(pool.submit(other.write_lock("q").acquire, 60))
                eventually(lambda: service.size("q") == place)  # noqa: B023
            strike(leave)
            leave()
            for wait in waits:
                wait.result(60).release()
        holder.close()
        other.close()
