"""Deleting what is kept: what clients do then that are late, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from coordlock_memory import Fault

from coordlock import BackendError, BackendUnavailable, Client
from coordlock.backend import Operation, Put
from coordlock.errors import NameConflict, VersionMismatch, WaitTimeout, WaitUnavailable
from coordlock.model.contender import Contender
from coordlock.model.record import encode
from coordlock.runtime.promise import failed
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service, backend

BOUND = 30.0


@pytest.fixture
def client(service: Service) -> Client:
    return service.client(request_timeout=30)


def add(client: Client) -> object:
    return client.counter("n").add()


def count_down(client: Client) -> object:
    return client.latch("n", 9).count_down()


def shut(client: Client) -> object:
    return client.gate("n").shut()


def switch(client: Client) -> None:
    gate = client.gate("n")
    assert gate.shut()
    assert gate.open()


def state(client: Client) -> object:
    return client.counter("n").get(), client.latch("n", 9).remaining(), client.gate("n").is_open()


#: By kind: a change that leaves a record that can be deleted, and one that is late.
CHANGES: dict[str, tuple[Callable[[Client], object], Callable[[Client], object]]] = {
    "counter": (add, add),
    "latch": (count_down, count_down),
    "gate": (switch, shut),
}
every_kind = pytest.mark.parametrize("kind", CHANGES)


class Late:
    """The writes of a client, which the service gets later."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writing = backend(client).write
        self.held: list[tuple[Sequence[Operation], Sequence[Contender]]] = []
        #: Called when the first write was held back.
        self.meanwhile: Callable[[], object] = lambda: None
        self.holds = True
        monkeypatch.setattr(backend(client), "write", self._write)

    def _write(self, operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        if not self.holds:
            return self.writing(operations, guards)
        self.held.append((operations, guards))
        if len(self.held) == 1:
            self.meanwhile()
        return failed(BackendUnavailable("memory", "no answer"))

    def arrive(self) -> None:
        for operations, guards in self.held:
            self.writing(operations, guards).result(BOUND)


@every_kind
def test_no_late_change_of_a_deleted_record_is_made_in_the_next_one(
    service: Service, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Though that has the version which it expects."""
    change, late_change = CHANGES[kind]
    paused, other = service.client(request_timeout=0.2), service.client(request_timeout=30)
    change(other)
    late = Late(paused, monkeypatch)
    with pytest.raises(BackendUnavailable, match="may have been made, or may be yet"):
        late_change(paused)
    assert other.admin.delete("n", kind)  # type: ignore[arg-type]
    change(other)
    before = state(other)
    with pytest.raises(VersionMismatch):
        late.arrive()
    assert state(other) == before


def test_a_late_creation_makes_a_deleted_record_anew_with_its_own_change_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, other = service.client(request_timeout=0.2), service.client(request_timeout=30)
    late = Late(paused, monkeypatch)
    with pytest.raises(BackendUnavailable, match="may have been made, or may be yet"):
        add(paused)
    other.counter("n").add(41)
    assert other.admin.delete("n", "counter")
    del late.held[1:]
    late.arrive()
    assert other.counter("n").get() == 1
    assert add(other) == 2


@every_kind
def test_a_change_without_an_answer_to_a_record_that_was_deleted_since_cannot_be_found_out(
    service: Service, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    change, late_change = CHANGES[kind]
    client, other = service.client(request_timeout=30), service.client()
    change(other)
    late = Late(client, monkeypatch)

    def meanwhile() -> None:
        late.holds = False
        assert other.admin.delete("n", kind)  # type: ignore[arg-type]
        change(other)

    late.meanwhile = meanwhile
    with pytest.raises(
        BackendUnavailable, match=r"was deleted since: whether the change was made is unknown"
    ):
        late_change(client)
    assert late_change(client) == {"counter": 2, "latch": 7, "gate": True}[kind]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", [*CHANGES, "barrier", "release request"])
def test_a_deletion_whose_answer_is_lost_deletes_one_life(
    service: Service, client: Client, fault: Fault, kind: str
) -> None:
    switch(client)
    add(client)
    count_down(client)
    client.barrier("n", 1).wait(BOUND)
    with client.lock("n"):
        assert client.admin.request_release("n", "please")
    eventually(lambda: service.size("n") == 0)
    others = [one for one in client.admin.records("n") if one.kind != kind]
    assert len(others) == 4
    backend(client).faults.inject("write", fault)
    assert client.admin.delete("n", kind)  # type: ignore[arg-type]
    assert list(client.admin.records("n")) == others
    assert not client.admin.delete("n", kind)  # type: ignore[arg-type]
    lives = [key for key in service.service._state.data if "@record-ids" in key]
    assert len(lives) == 4


def test_what_was_made_anew_behind_a_deletion_without_an_answer_stays(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = service.client(request_timeout=30)
    add(other)
    late = Late(client, monkeypatch)

    def meanwhile() -> None:
        late.holds = False
        late.arrive()
        add(other)

    late.meanwhile = meanwhile
    assert client.admin.delete("n", "counter")
    assert other.counter("n").get() == 1


def test_a_deletion_gives_way_to_a_change_and_checks_the_record_again(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = service.client(request_timeout=30)
    switch(other)
    writing = backend(client).write

    def write(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        if not calls:
            shut(other)
        calls.append(operations)
        return writing(operations, guards)

    calls: list[object] = []
    monkeypatch.setattr(backend(client), "write", write)
    with pytest.raises(NameConflict, match=r"gate 'n' was not deleted.* shut.* open it"):
        client.admin.delete("n", "gate")
    assert len(calls) == 1
    assert not client.gate("n").is_open()


def test_a_party_that_gives_up_while_its_barrier_is_deleted_hears_that_nobody_knows(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.barrier("b", 1).wait(BOUND)  # so the party sees the record
    eventually(lambda: service.size("b") == 0)
    other, reading, withdrawn = (
        service.client(request_timeout=30),
        backend(client).read,
        threading.Event(),
    )

    def read(where: str, **how: Any) -> Any:
        if "@barriers" in where and service.size("b") == 0 and not withdrawn.is_set():
            withdrawn.set()
            assert other.admin.delete("b", "barrier")
        return reading(where, **how)

    monkeypatch.setattr(backend(client), "read", read)
    with pytest.raises(WaitUnavailable, match="was deleted meanwhile"):
        client.barrier("b", 2).wait(0.2)
    with pytest.raises(WaitTimeout):
        client.barrier("b", 2).wait(0.1)


def test_what_belongs_to_a_queue_is_not_deleted_while_somebody_is_there(
    service: Service, client: Client
) -> None:
    client.barrier("n", 1).wait(BOUND)
    with client.lock("n"):
        assert client.admin.request_release("n", "please")
        for kind in ("barrier", "release request"):
            with pytest.raises(NameConflict, match=rf"the {kind} 'n' .* is in the queue 'n'"):
                client.admin.delete("n", kind)
    eventually(lambda: service.size("n") == 0)
    assert client.admin.delete("n", "release request")


def test_a_work_queue_with_items_is_not_deleted_and_one_with_consumers_is(
    service: Service, client: Client
) -> None:
    queue, other = client.work_queue("q"), service.client(request_timeout=30)
    queue.put(b"1")
    for prepare in (lambda: None, queue.take):
        prepare()
        with pytest.raises(NameConflict, match=r"work queue 'q' .* it has items.* purge"):
            other.admin.delete("q", "work queue")
    with ThreadPoolExecutor(1) as pool:
        waiting = service.client(request_timeout=30).work_queue("q")
        taking = pool.submit(waiting.take, BOUND)
        eventually(lambda: waiting._share().consumer.is_following)
        client.work_queue("q").evict("1")
        taking.result(BOUND).ack()
        taking = pool.submit(waiting.take, BOUND)
        eventually(lambda: waiting._share().consumer.is_following)
        assert other.admin.delete("q", "work queue")
        queue.put(b"2")
        assert taking.result(BOUND).data == b"2"


def test_clients_of_a_work_queue_go_on_when_it_is_made_anew(
    service: Service, client: Client
) -> None:
    """What they remember of it stays true."""
    consumer, operator = service.client(request_timeout=30).work_queue("q"), service.client()
    producer = client.work_queue("q")
    producer.put(b"1")
    assert operator.work_queue("q").purge() == 1
    assert consumer.try_take() is None
    for data in (b"2", b"3"):
        assert operator.admin.delete("q", "work queue")
        assert operator.admin.records() == ()
        assert not operator.admin.delete("q", "work queue")
        producer.put(data)
        assert [one.name for one in operator.admin.records()] == ["q"]
        item = consumer.take(BOUND)
        assert item.data == data
        item.ack()
        eventually(lambda: consumer.stats().taken == 0)
        layout = consumer._share().store.layout
        for one in service.service.snapshot(layout.workers).contenders:
            service.service.remove(one)


@pytest.mark.parametrize("fault", Fault)
def test_a_work_queue_is_deleted_though_the_answer_is_lost(
    service: Service, client: Client, fault: Fault
) -> None:
    client.work_queue("q").put(b"1")
    client.work_queue("q").purge()
    backend(client).faults.inject("write", fault)
    assert client.admin.delete("q", "work queue")
    assert client.admin.records() == ()


def test_a_record_without_a_life_is_deleted_too(service: Service, client: Client) -> None:
    key = f"{client._engine.data_root}/@counters/n"
    backend(client).write([Put(key, encode({"value": 17, "last": []}))]).result(BOUND)
    assert client.admin.delete("n", "counter")
    backend(client).write([Put(key, encode({"value": 17, "last": []}))]).result(BOUND)
    assert client.counter("n").add() == 18  # which gives it one
    assert client.admin.delete("n", "counter")
    assert not service.service._state.data


def test_a_kind_that_does_not_exist_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="kind must be one of barrier"):
        client.admin.delete("n", "lock")  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"17", b'{"format":1}', b'{"format":2}'])
@every_kind
def test_what_another_program_or_a_newer_release_wrote_is_not_deleted(
    client: Client, kind: str, data: bytes
) -> None:
    folder = {"counter": "@counters", "gate": "@gates", "latch": "@latches"}[kind]
    key = f"{client._engine.data_root}/{folder}/n"
    backend(client).write([Put(key, data)]).result(BOUND)
    with pytest.raises(BackendError, match=rf"{folder}/n' is "):
        client.admin.delete("n", kind)  # type: ignore[arg-type]
    assert [one.state for one in client.admin.records("n")] == [None]
