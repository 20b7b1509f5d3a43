"""The memory backend's additions to the contract on a bad network, under virtual time."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import pytest
from coordlock_memory import Fault, MemoryBackend, MemoryService, VirtualTime, VirtualTimers

from coordlock.backend import Expect, Listing, Observation, Put, Queue
from coordlock.errors import BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry, Owner, Snapshot

OWNER = Owner("here", 1)
State = tuple[tuple[str, bytes | None], ...]


class Listener:
    def suspect(self, reason: str) -> None: ...

    def recovered(self) -> None: ...

    def lost(self, reason: str) -> None: ...


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def connect(time: VirtualTime) -> Callable[[], MemoryBackend]:
    service = MemoryService(VirtualTimers(time))

    def make() -> MemoryBackend:
        backend = MemoryBackend(service, 1000.0, VirtualTimers(time))
        backend.open(Listener()).result(0)
        return backend

    return make


def entry(queue: str = "q", value: bytes = b"") -> Entry:
    return Entry(queue, uuid.uuid4().hex, Mode.NL, OWNER, value)


def shape(state: Snapshot) -> State:
    return tuple((one.id, one.value) for one in state.contenders)


def newest(observed: Observation[Snapshot]) -> State | None:
    state = observed.view.state
    return None if state is None else shape(state)


def contender(backend: MemoryBackend, made: Entry) -> Contender:
    found = backend.enqueue([made]).result(0)[0].find(made.id)
    assert found is not None
    return found


@pytest.mark.parametrize("fault", Fault)
def test_a_set_that_got_no_answer_is_complete_after_another_try(
    connect: Callable[[], MemoryBackend], time: VirtualTime, fault: Fault
) -> None:
    one, two = connect(), connect()
    entries = [entry("a"), entry("b")]
    one.faults.inject("enqueue", fault)
    with pytest.raises(BackendUnavailable):
        one.enqueue(entries).result(0)
    made = one.enqueue(entries).result(0)
    time.advance(2)  # a request that was late has arrived as well
    for snapshot, each in zip(made, entries, strict=True):
        assert [c.id for c in two.snapshot(each.queue).result(0).contenders] == [each.id]
        assert two.snapshot(each.queue).result(0).contenders == snapshot.contenders


def test_a_late_change_of_a_value_undoes_no_newer_one(
    connect: Callable[[], MemoryBackend], time: VirtualTime
) -> None:
    one = connect()
    mine = contender(one, entry(value=b"a"))
    one.faults.inject("publish", Fault.LATE)
    with pytest.raises(BackendUnavailable):
        one.publish(mine, b"b", 1).result(0)
    one.publish(mine, b"b", 1).result(0)
    one.publish(mine, b"c", 2).result(0)
    time.advance(2)
    assert [c.value for c in one.snapshot("q").result(0).contenders] == [b"c"]


def test_a_late_write_that_expects_what_was_read_does_nothing(
    connect: Callable[[], MemoryBackend], time: VirtualTime
) -> None:
    one = connect()
    one.faults.inject("write", Fault.LATE)
    with pytest.raises(BackendUnavailable):
        one.write([Expect("/key", 0), Put("/key", b"late")]).result(0)
    one.write([Expect("/key", 0), Put("/key", b"new")]).result(0)
    time.advance(2)
    assert one.read("/key").result(0).values["/key"].data == b"new"


@pytest.mark.parametrize("seed", range(20))
def test_an_observer_on_a_bad_network_sees_real_states_in_order_and_the_last_one(
    connect: Callable[[], MemoryBackend], time: VirtualTime, seed: int
) -> None:
    chance = random.Random(seed)
    writer, reader = connect(), connect()
    reader.faults.latency = lambda: chance.choice([0.01, 0.3, 2.0])
    history: list[State] = [()]
    seen: list[State] = []
    stale: list[float | None] = []

    def news() -> None:
        if observed is not None and (state := newest(observed)) is not None:
            seen.append(state)
            stale.append(observed.view.stale_since)

    observed: Observation[Snapshot] | None = None
    observed = reader.follow(Queue("q"), news)
    mine: list[Entry] = []
    for step in range(80):
        match chance.choice(["enqueue", "withdraw", "publish", "fault", "cut", "heal"]):
            case "withdraw" if mine:
                writer.withdraw([mine.pop(chance.randrange(len(mine)))]).result(0)
            case "publish" if mine:
                found = chance.choice(writer.snapshot("q").result(0).contenders)
                writer.publish(found, b"%d" % step, found.version).result(0)
            case "fault":
                reader.faults.inject("follow", chance.choice(list(Fault)))
            case "cut":
                reader.faults.partition()
            case "heal":
                reader.faults.heal()
            case _:
                mine.append(entry())
                writer.enqueue([mine[-1]]).result(0)
        history.append(shape(writer.snapshot("q").result(0)))
        if reader.faults.partitioned:
            assert observed.view.stale_since is not None
            assert observed.view.stale_since <= time.now()
        time.advance(chance.random())
    reader.faults.heal()
    time.advance(300)
    assert newest(observed) == history[-1]
    assert observed.view.stale_since is None
    left = iter(history)
    distinct = [state for at, state in enumerate(seen) if state not in seen[at - 1 : at]]
    assert all(any(state == one for one in left) for state in distinct)
    observed.cancel()


def test_a_thousand_changes_are_one_message_on_a_slow_network(
    connect: Callable[[], MemoryBackend], time: VirtualTime
) -> None:
    writer, reader = connect(), connect()
    reads = 0
    read = reader.service.read

    def counted(where: str, guard: Contender | None = None) -> Listing:
        nonlocal reads
        reads += 1
        return read(where, guard)

    reader.service.read = counted  # type: ignore[method-assign]
    reader.faults.latency = lambda: 1.0
    observed = reader.follow("/a/", lambda: None)
    time.advance(5)
    reads = 0
    for number in range(1000):
        writer.write([Put("/a/key", b"%d" % number)]).result(0)
    time.advance(5)
    state = observed.view.state
    assert state is not None
    assert state.values["/a/key"].data == b"999"
    assert reads <= 2
    observed.cancel()


def test_what_was_cancelled_leaves_nothing_in_the_service(
    connect: Callable[[], MemoryBackend],
) -> None:
    one = connect()
    queue, data = one.follow(Queue("q"), lambda: None), one.follow("/a/", lambda: None)
    assert len(one.service._state.observers) == 2
    queue.cancel()
    queue.cancel()
    one.close().result(0)
    assert one.service._state.observers == {}
    assert isinstance(data.view.ended, BackendUnavailable)
    late = one.follow(Queue("q"), lambda: None)
    assert isinstance(late.view.ended, BackendUnavailable)
    assert one.service._state.observers == {}
