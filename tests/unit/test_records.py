"""Records when answers are lost and requests come late, fault by fault."""

from __future__ import annotations

from typing import Any, Final

import pytest
from coordlock_memory import Fault

from coordlock import BackendError, BackendUnavailable, Client
from coordlock.backend import Put
from tests.unit.clients import Service, backend


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


COUNTER: Final = ("get", "add")
LATCH: Final = ("remaining", "count_down", "wait")


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("counter", None),
        *(("counter", kept) for kept in ('"17"', "[17]", "true", "1.5")),
        *(("latch", kept) for kept in ("17", '"many"', "[3]", "[3, 2, 1]", '["3", "2"]', "{}")),
    ],
)
def test_a_record_that_another_program_wrote_is_left_alone(
    client: Client, kind: str, kept: str | None
) -> None:
    """It is no record at all, or has a value of another kind."""
    made: Any = client.counter("n") if kind == "counter" else client.latch("n", 3)
    uses = COUNTER if kind == "counter" else LATCH
    getattr(made, uses[1])()
    [key] = [one for one in backend(client).service._state.data if f"@{kind}" in one]
    written = "17" if kept is None else f'{{"format": 1, "value": {kept}, "last": []}}'
    backend(client).write([Put(key, written.encode())]).result(0)
    for use in uses:
        with pytest.raises(BackendError, match="not as coordlock writes it"):
            getattr(made, use)()
