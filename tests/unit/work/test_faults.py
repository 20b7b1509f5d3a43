"""Each request of a producer and a consumer is lost, or its answer, or it comes late."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from coordlock_memory import Fault, MemoryBackend

import coordlock
from coordlock.testing.lock_service import LockService
from coordlock.types import WorkQueueStats

BOUND = 30.0
#: How many requests are disturbed at once, each of clients of their own.
AT_ONCE = 16
NOTHING = WorkQueueStats(0, 0, 0, 0)


class Disturbance:
    """Lets one fault happen to the request number ``at`` of a kind."""

    def __init__(self, client: coordlock.Client, kind: str, at: int, fault: Fault) -> None:
        self.happened = False
        #: What came late has come by now.
        self.arrived = threading.Event()
        self._kind, self._at, self._fault = kind, at, fault
        self._numbers = itertools.count()
        backend = client._access.engine.backend
        assert isinstance(backend, MemoryBackend)
        self._backend = backend
        backend.faults.take = self._take  # type: ignore[method-assign]

    def _take(self, method: str) -> Fault | None:
        if method != self._kind or next(self._numbers) != self._at:
            return None
        self.happened = True
        if self._fault is Fault.LATE:
            later = self._backend._later

            def note(seconds: float, action: Callable[[], object]) -> None:
                self._backend._later = later  # type: ignore[method-assign]

                def arrive() -> None:
                    action()
                    self.arrived.set()

                later(seconds / 4, arrive)

            self._backend._later = note  # type: ignore[method-assign]
        else:
            self.arrived.set()
        return self._fault

    def settle(self) -> None:
        """Wait until nothing that was disturbed can come any more."""
        del self._backend.faults.take
        assert not self.happened or self.arrived.wait(BOUND)


#: Seconds. On a busy machine, too, whoever takes is to wait for what is put with this delay.
SOON = 0.1


def put_some(queue: coordlock.WorkQueue) -> list[str]:
    return [queue.put(b"0"), queue.put(b"1", delay=SOON), queue.put(b"2")]


def take_all(queue: coordlock.WorkQueue) -> list[bytes]:
    done: list[bytes] = []
    while len(done) < 3:
        item = queue.take(BOUND)
        if item.data == b"0" and not done:
            item.nack(delay=SOON)
            item = queue.take(BOUND)
        if item.data == b"1" and item.deliveries == 1:
            item.nack()
            item = queue.take(BOUND)
        done.append(item.data)
        item.ack()
    return done


def bury_and_retry(queue: coordlock.WorkQueue) -> str:
    with queue.take(BOUND) as item:
        item.nack(reason="no good")
    queue.retry(item.id)
    return item.id


def producing(client: coordlock.Client, other: coordlock.Client, disturbance: Disturbance) -> None:
    ids = put_some(client.work_queue("q"))
    disturbance.settle()
    found = {item.id: item.data for item in other.work_queue("q").items()}
    assert found == dict(zip(ids, (b"0", b"1", b"2"), strict=True))
    taken = sorted(other.work_queue("q").take(BOUND).data for _ in range(3))
    assert taken == [b"0", b"1", b"2"]
    assert other.work_queue("q").try_take() is None


def consuming(client: coordlock.Client, other: coordlock.Client, disturbance: Disturbance) -> None:
    put_some(other.work_queue("q"))
    assert sorted(take_all(client.work_queue("q"))) == [b"0", b"1", b"2"]
    disturbance.settle()
    assert other.work_queue("q").stats() == NOTHING
    assert other.work_queue("q").items() == ()


def retrying(client: coordlock.Client, other: coordlock.Client, disturbance: Disturbance) -> None:
    other.work_queue("q").put(b"0")
    again = bury_and_retry(client.work_queue("q", max_failures=1))
    disturbance.settle()
    with other.work_queue("q").take(BOUND) as item:
        assert (item.id, item.data, item.deliveries) == (again, b"0", 1)
    assert other.work_queue("q").stats() == NOTHING


def taking_over(
    client: coordlock.Client, other: coordlock.Client, disturbance: Disturbance
) -> None:
    """Of two void claims, one is taken too often by now."""
    queue = other.work_queue("q")
    queue.put(b"0")
    queue.put(b"1")
    queue.take(BOUND).nack()
    assert [queue.take(BOUND).deliveries for _ in range(2)] == [2, 1]
    other.close()
    with client.work_queue("q", max_failures=2).take(BOUND) as item:
        assert (item.data, item.deliveries) == (b"1", 2)
        disturbance.settle()
    assert client.work_queue("q").stats() == WorkQueueStats(0, 0, 0, 1)


#: What each scenario asks the service for.
ASKS: dict[Callable[..., None], tuple[str, ...]] = {
    producing: ("read", "write"),
    consuming: ("read", "write", "enqueue", "follow"),
    retrying: ("read", "write", "enqueue"),
    taking_over: ("read", "write", "enqueue", "snapshot"),
}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize(
    ("scenario", "kind"), [(scenario, kind) for scenario in ASKS for kind in ASKS[scenario]]
)
def test_whatever_is_lost_each_item_is_put_once_and_done(
    root: str, scenario: Callable[..., None], fault: Fault, kind: str
) -> None:
    def happens(at: int) -> bool:
        """Whether there was a request number ``at``, to which the fault happened."""
        url = f"memory://{root}-{at}"
        with coordlock.connect(url) as client, coordlock.connect(url) as other:
            disturbance = Disturbance(client, kind, at, fault)
            scenario(client, other, disturbance)
            return disturbance.happened

    # Several at once, because each waits most of its time.
    numbers, happened = itertools.count(), [False]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while all(found := list(pool.map(happens, itertools.islice(numbers, AT_ONCE)))):
            happened = found
    assert happened[0] or found[0], f"it asks for no {kind}"


def test_a_long_list_may_take_longer_than_one_request(
    lock_service: LockService, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lock_service.connect(request_timeout=60) as client:
        queue = client.work_queue("q")
        for number in range(80):
            queue.put(b"%d" % number)
        backend = client._access.engine.backend
        read = backend.read

        def slow(where: str, **given: Any) -> Any:
            if "/items/" in where.partition("@items")[2]:
                lock_service.advance(20)
            return read(where, **given)

        monkeypatch.setattr(backend, "read", slow)
        assert [one.data for one in queue.items()] == [b"%d" % number for number in range(80)]
