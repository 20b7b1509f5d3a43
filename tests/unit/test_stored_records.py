"""What becomes of stored records that another release wrote, kind by kind."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from coordlock import BackendError, Client, NameConflict
from coordlock.backend import Put
from coordlock.model.record import decode, encode
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service, backend


def add(client: Client) -> None:
    client.counter("a").add()


def count_down(client: Client) -> None:
    client.latch("a", 100).count_down()


def switch(client: Client) -> None:
    gate = client.gate("a")
    if gate.is_open():
        gate.shut()
    else:
        gate.open()


def pass_alone(client: Client) -> None:
    client.barrier("a", 1).wait(60)


def ask(client: Client) -> None:
    with client.lock("a"):
        client.admin.request_release("a", "please")


CHANGES = {
    "@counters": add,
    "@latches": count_down,
    "@gates": switch,
    "@barriers": pass_alone,
    "@release-requests": ask,
}
every_kind = pytest.mark.parametrize(("folder", "change"), CHANGES.items())


def key_of(client: Client, folder: str) -> str:
    return f"{client._engine.data_root}/{folder}/a"


def stored(client: Client, folder: str) -> bytes:
    key = key_of(client, folder)
    return backend(client).read(key).result(0).values[key].data


@every_kind
def test_what_a_later_release_added_to_a_record_survives_its_rewriting(
    client: Client, folder: str, change: Callable[[Client], None]
) -> None:
    change(client)
    fields = decode(stored(client, folder))
    extended = json.dumps({**fields, "later": {"added": [1]}}).encode()
    backend(client).write([Put(key_of(client, folder), extended)]).result(0)
    change(client)
    rewritten = stored(client, folder)
    assert rewritten != extended
    assert decode(rewritten)["later"] == {"added": [1]}


@every_kind
def test_a_record_in_a_newer_format_is_refused_by_name_and_left_alone(
    service: Service, client: Client, folder: str, change: Callable[[Client], None]
) -> None:
    newer = json.dumps({"format": 2, "what": "nobody knows"}).encode()
    backend(client).write([Put(key_of(client, folder), newer)]).result(0)
    with pytest.raises(BackendError, match=rf"{folder}/a' is in format 2 .* upgrade coordlock"):
        change(client)
    assert stored(client, folder) == newer
    eventually(lambda: service.size("a") == 0)
    assert all(one.state is None for one in client.admin.records("a"))


def test_a_holder_is_not_asked_by_a_request_in_a_newer_format(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    newer = json.dumps({"format": 2}).encode()
    backend(client).write([Put(key_of(client, "@release-requests"), newer)]).result(0)
    with client.lock("a") as grant:
        assert not grant.release_requested.is_set()
        eventually(lambda: "@release-requests/a' is in format 2" in caplog.text)


def test_a_barrier_whose_participants_publish_a_newer_format_is_refused_by_name(
    client: Client, service: Service
) -> None:
    newer = json.dumps({"format": 2}).encode()
    with (
        service.client().group("a").join(newer),
        pytest.raises(NameConflict, match=r"'a' .* format 2 .* upgrade coordlock"),
    ):
        client.barrier("a", 2).wait(60)


@pytest.mark.parametrize("format", [b"", b'"format":0,', b'"format":true,', b'"format":"1",'])
def test_a_record_without_its_format_is_none_of_coordlock(format: bytes) -> None:
    with pytest.raises(ValueError, match="no record"):
        decode(b'{%s"value":1}' % format)


def test_a_record_keeps_what_only_the_record_before_it_has() -> None:
    assert decode(encode({"a": 1}, {"a": 2, "b": 3, "format": 1})) == {
        "a": 1,
        "b": 3,
        "format": 1,
    }
