"""Records when answers are lost and requests come late, fault by fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from coordlock_memory import Fault

from coordlock import BackendError, BackendUnavailable, Client
from coordlock.backend import Operation, Put
from coordlock.model.contender import Contender
from coordlock.runtime.promise import failed
from tests.unit.clients import Service, backend


@pytest.mark.parametrize("change", ["counter", "gate", "latch"])
def test_a_request_that_comes_late_makes_the_next_attempt_void(
    client: Client, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It comes behind the reading, so that what was read says nothing of it."""
    writing = backend(client).write
    late: list[tuple[Sequence[Operation], Sequence[Contender]]] = []

    def write(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        if not calls:
            late.append((operations, guards))
        calls.append(len(calls))
        if len(calls) == 1:
            return failed(BackendUnavailable("memory", "no answer"))
        if len(calls) == 2:
            writing(*late.pop()).result(0)
        return writing(operations, guards)

    client.gate("n").shut()
    calls: list[int] = []
    monkeypatch.setattr(backend(client), "write", write)
    if change == "counter":
        assert client.counter("n").add(5) == 5 == client.counter("n").get()
    elif change == "gate":
        assert client.gate("n").open()  # asked again, it would find it open
    else:
        assert client.latch("n", 3).count_down() == 2 == client.latch("n", 3).remaining()
    assert calls == [0, 1]


@pytest.mark.parametrize("many", [127, 128, 129])
@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
def test_what_cannot_be_found_out_any_more_is_said(
    service: Service, client: Client, fault: Fault, many: int
) -> None:
    others = [service.client() for _ in range(many)]
    client.counter("n").add(1000)
    backend(client).faults.inject("write", fault)
    reading, calls = backend(client).read, []

    def read_late(where: str, **how: Any) -> object:
        calls.append(where)
        if len(calls) == 2:
            for other in others:
                other.counter("n").add()
        return reading(where, **how)

    before, made = 1000, fault is Fault.LOSE_REPLY
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend(client), "read", read_late)
        if many > 128 or (many == 128 and made):
            with pytest.raises(BackendUnavailable, match="is unknown"):
                client.counter("n").add(1000)
        else:
            assert client.counter("n").add(1000) == before + 1000 + (0 if made else many)
    assert 1000 + many <= client.counter("n").get() <= 2000 + many
    for other in others:
        other.close()


def test_a_client_without_an_answer_hears_what_is_certain(service: Service) -> None:
    client = service.client(request_timeout=0.3)
    client.counter("n").add()
    backend(client).faults.inject("read", Fault.LOSE_REQUEST, times=1000)
    with pytest.raises(BackendUnavailable, match="nothing was changed"):
        client.counter("n").add()
    backend(client).faults._next.clear()
    backend(client).faults.inject("write", Fault.LOSE_REQUEST, times=1000)
    with pytest.raises(BackendUnavailable, match="may have been made, or may be yet"):
        client.counter("n").add()


def test_a_busy_client_takes_one_place_in_the_record(service: Service, client: Client) -> None:
    for _ in range(200):
        client.counter("n").add()
    [stored] = [one for key, one in service.service._state.data.items() if "@counters" in key]
    assert stored.version == 200
    assert len(stored.data) < 100


def test_a_record_that_another_program_wrote_is_left_alone(
    service: Service, client: Client
) -> None:
    client.counter("n").add()
    [key] = [one for one in service.service._state.data if "@counters" in one]
    backend(client).write([Put(key, b"17")]).result(0)
    for call in (client.counter("n").get, client.counter("n").add):
        with pytest.raises(BackendError, match="not as coordlock writes it"):
            call()


@pytest.mark.parametrize("kept", ["17", '"many"', "[3]", "[3, 2, 1]", '["3", "2"]', "{}"])
def test_a_latch_whose_record_has_no_pair_of_numbers_is_left_alone(
    client: Client, kept: str
) -> None:
    client.latch("l", 3).count_down()
    [key] = [one for one in backend(client).service._state.data if "@latches" in one]
    written = f'{{"format": 1, "value": {kept}, "last": []}}'.encode()
    backend(client).write([Put(key, written)]).result(0)
    latch = client.latch("l", 3)
    for call in (latch.remaining, latch.count_down, latch.wait):
        with pytest.raises(BackendError, match="not as coordlock writes it"):
            call()


@pytest.mark.parametrize("kept", ['"17"', "[17]", "true", "1.5"])
def test_a_counter_whose_record_has_no_integer_is_left_alone(client: Client, kept: str) -> None:
    client.counter("n").add()
    [key] = [one for one in backend(client).service._state.data if "@counters" in one]
    written = f'{{"format": 1, "value": {kept}, "last": []}}'.encode()
    backend(client).write([Put(key, written)]).result(0)
    for call in (client.counter("n").get, client.counter("n").add):
        with pytest.raises(BackendError, match="not as coordlock writes it"):
            call()
