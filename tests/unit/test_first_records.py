"""What 1.0 wrote is read by every later 1.x, and what later ones write has the same fields.

``records-1.json`` has each kind of record as 1.0 wrote it. ``python -m
tests.unit.test_first_records`` writes the file anew: only before 1.0, or to add a kind of record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from coordlock import Client
from coordlock.backend import Put
from coordlock.errors import AlreadyDone
from coordlock.model.claim import Convertible, Mode
from coordlock.model.contender import Owner
from coordlock.model.waits import Wait
from coordlock.recipes.shared.rendezvous import Rendezvous
from tests.unit.clients import Service, backend

WRITTEN: Final = Path(__file__).with_name("records-1.json")
SLOTS: Final = tuple(datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(2))
OWNER: Final = Owner("host", 17, "label", 1.5)
CONVERTIBLE: Final = Convertible(Mode.PR, Mode.EX, ((3, 4),))
WAIT: Final = Wait("in thread 'main'", (("a", "one"), ("b", "two")), frozenset({"three"}))
BARRIER: Final = Rendezvous("a", 3)


def keep(client: Client) -> None:
    """Make a record of each kind, and an item of a work queue in each state."""
    client.counter("a").add(5)
    client.latch("a", 3).count_down()
    client.gate("a").shut()
    client.barrier("a", 1).wait(60)
    with client.lock("b"):
        client.admin.request_release("b", "please")
    with client.job("a").run(SLOTS[0]):
        pass
    with suppress(ZeroDivisionError), client.job("a").run(SLOTS[1]):
        raise ZeroDivisionError("by zero")
    queue = client.work_queue("a", max_failures=1)
    for data in (b"dead", b"claimed", b"new"):
        queue.put(data)
    queue.put(b"later", delay=3600)
    queue.take().nack(reason="broken")
    queue.take()
    again = client.work_queue("b")
    again.put(b"again")
    again.take().nack(delay=0)


def contenders() -> dict[str, bytes]:
    """What contenders write of themselves, and what they publish."""
    return {
        "owner": OWNER.encode(),
        "publishing owner": OWNER.encode(b"value"),
        "convertible lock": CONVERTIBLE.encode(),
        "wait": WAIT.encode(),
        "barrier": BARRIER.published,
    }


def written() -> dict[str, Any]:
    """All that this release writes: the data with versions, by key, and of contenders."""
    service = Service()
    keep(service.client())
    data = service.service._state.data
    return {
        "data": {key: [one.data.decode("ascii"), one.version] for key, one in data.items()},
        "contenders": {name: data.decode("ascii") for name, data in contenders().items()},
    }


@pytest.fixture(scope="module")
def first() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(WRITTEN.read_text("utf-8"))
    return found


@pytest.fixture
def reader(first: Mapping[str, Any]) -> Client:
    """A client of a service that has what the first release wrote."""
    client = Service().client()
    for key, (data, version) in first["data"].items():
        for _ in range(version):
            backend(client).write([Put(key, data.encode())]).result(0)
    return client


def test_the_records_of_the_first_release_are_read(reader: Client) -> None:
    assert {(one.name, one.kind): one.state for one in reader.admin.records()} == {
        ("a", "barrier"): {"generations": 1},
        ("a", "counter"): {"number": 5},
        ("a", "gate"): {"open": False},
        ("a", "job"): {},
        ("a", "latch"): {"remaining": 2, "count": 3},
        ("a", "work queue"): {},
        ("b", "release request"): {"asked": 1},
        ("b", "work queue"): {},
    }


def test_the_records_of_the_first_release_are_changed(reader: Client) -> None:
    assert reader.counter("a").add() == 6
    assert reader.latch("a", 3).count_down() == 1
    assert reader.gate("a").open()
    reader.barrier("a", 1).wait(60)
    with reader.lock("b"):
        reader.admin.request_release("b", "please")


def test_a_job_of_the_first_release_knows_its_slots(reader: Client) -> None:
    job = reader.job("a")
    done, failed = job.info().slots
    assert (done.slot, done.state, done.attempts) == (SLOTS[0], "done", 1)
    assert (failed.slot, failed.state, failed.error) == (
        SLOTS[1],
        "failed",
        "ZeroDivisionError: by zero",
    )
    with pytest.raises(AlreadyDone), job.run(SLOTS[0]):
        raise AssertionError


def test_a_work_queue_of_the_first_release_is_worked_off(reader: Client) -> None:
    queue, [dead] = reader.work_queue("a"), reader.work_queue("a").dead()
    assert (dead.data, dead.reason) == (b"dead", "broken")
    assert {one.data for one in queue.items()} == {b"claimed", b"new", b"later"}
    taken: dict[bytes, int] = {}
    while not {b"claimed", b"new"} <= taken.keys():  # the delayed one may be due by now
        with queue.take(30) as item:
            taken[item.data] = item.deliveries
    assert (taken[b"claimed"], taken[b"new"]) == (2, 1)
    with reader.work_queue("b").take(30) as item:
        assert (item.data, item.deliveries) == (b"again", 2)
    assert queue.put(b"next") not in {dead.id, item.id}


def test_contenders_of_the_first_release_are_read(first: Mapping[str, Any]) -> None:
    data = {name: text.encode() for name, text in first["contenders"].items()}
    assert Owner.decode(data["owner"]) == OWNER == Owner.decode(data["publishing owner"])
    assert Owner.published(data["publishing owner"]) == b"value"
    assert Owner.published(data["owner"]) == b""
    assert Convertible.decode(data["convertible lock"]) == CONVERTIBLE
    assert Wait.decode(data["wait"]) == WAIT


def fields_of(text: str) -> dict[str, str]:
    """The fields of a record and their types, which earlier releases read."""
    head = text.partition("\n")[0]
    fields = json.loads(head) if head.startswith("{") else {}
    return {name: type(value).__name__ for name, value in fields.items()}


def test_what_is_written_has_all_fields_that_the_first_release_reads(
    first: Mapping[str, Any],
) -> None:
    now = written()

    def by_kind(data: Mapping[str, tuple[str, int]]) -> dict[str, dict[str, str]]:
        """By the keys without their numbers and random ids."""
        return {
            re.sub(r"@record-ids/.*|\d+(\.\d+)?", "#", key): fields_of(text)
            for key, (text, _) in data.items()
        }

    then, today = by_kind(first["data"]), by_kind(now["data"])
    assert {kind: fields | today.get(kind, {}) for kind, fields in then.items()} == {
        kind: today.get(kind) for kind in then
    }
    for name, text in first["contenders"].items():
        assert fields_of(text).items() <= fields_of(now["contenders"][name]).items()


if __name__ == "__main__":
    WRITTEN.write_text(json.dumps(written(), indent=1) + "\n", "utf-8")
