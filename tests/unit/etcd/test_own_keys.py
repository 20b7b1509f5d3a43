"""Which keys come back to their queues: those that no request can create or delete any more."""

from __future__ import annotations

import uuid

import pytest
from coordlock_etcd import requests
from coordlock_etcd.keys import Layout

from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner


class Client:
    """Enqueues and withdraws, one revision after another."""

    def __init__(self) -> None:
        self.layout = Layout.below("/r")
        self.own = self.layout.own
        self.revision = 0

    def entry(self, queue: str = "q", mode: Mode = Mode.EX, *, publishes: bool = False) -> Entry:
        return Entry(queue, uuid.uuid4().hex, mode, Owner("h", 1), publishes=publishes)

    def adds(self, entry: Entry, attempts: int = 1, *, answered: bool = True) -> bytes:
        for _ in range(attempts):
            self.layout.adding(entry)
        self.revision += 1
        if answered:
            self.own.added(entry, self.revision)
        return self.layout.key(entry)

    def removes(self, entry: Entry, attempts: int = 1, *, was_there: bool = True) -> None:
        for _ in range(attempts):
            self.own.removing(entry)
        self.own.removed(entry, was_there=was_there)


@pytest.fixture
def client() -> Client:
    return Client()


def test_the_next_contender_has_the_key_of_one_that_was_removed(client: Client) -> None:
    first, second = client.entry(), client.entry()
    key = client.adds(first)
    client.removes(first)
    assert client.adds(second) == key != client.adds(client.entry())


def test_a_key_stays_in_its_queue_with_its_mode(client: Client) -> None:
    first = client.entry()
    key = client.adds(first)
    client.removes(first)
    for other in (client.entry("r"), client.entry("q", Mode.PR)):
        assert client.adds(other) != key
    assert client.adds(client.entry()) == key


def test_a_key_comes_back_after_a_deletion_that_had_no_answer_before(client: Client) -> None:
    """A late one compares the revision, and spares the next contender."""
    first = client.entry()
    key = client.adds(first)
    [compare] = requests.withdraw(client.layout, [first]).compare
    assert (compare.key, compare.create_revision) == (key, client.revision)
    client.removes(first, attempts=2)
    assert client.adds(client.entry()) == key


@pytest.mark.parametrize(
    "doubt", ["two attempts", "no answer", "not there", "publishes", "session ended"]
)
def test_a_key_in_doubt_never_comes_back(client: Client, doubt: str) -> None:
    first = client.entry(publishes=doubt == "publishes")
    attempts = 2 if doubt == "two attempts" else 1
    key = client.adds(first, attempts, answered=doubt != "no answer")
    if doubt == "session ended":
        client.own.clear()
    client.removes(first, was_there=doubt != "not there")
    assert client.adds(client.entry()) != key


def test_a_contender_that_may_come_late_is_looked_for_under_its_key(client: Client) -> None:
    first, second = client.entry(), client.entry()
    key = client.adds(first)
    client.removes(first)
    client.adds(second, answered=False)
    for _ in range(2):
        request = requests.withdraw(client.layout, [second])
        assert request.success[0].request_delete_range.key == key
        assert not request.compare
        client.own.removed(second, was_there=True)


def test_a_key_that_a_late_request_may_delete_at_any_revision_never_comes_back(
    client: Client,
) -> None:
    """The fault: a deletion is sent, without an answer, before the addition is answered."""
    first = client.entry()
    key = client.adds(first, answered=False)
    assert not requests.withdraw(client.layout, [first]).compare
    client.own.added(first, client.revision)
    assert client.own.removing(first) == client.revision
    client.own.removed(first, was_there=True)
    assert client.adds(client.entry()) != key


def test_a_deletion_that_came_before_the_contender_leaves_it_known(client: Client) -> None:
    first, second = client.entry(), client.entry()
    client.adds(first)
    client.removes(first)
    key = client.adds(second, answered=False)
    assert client.own.removing(second) is None
    client.own.added(second, client.revision)
    client.own.removed(second, was_there=False)
    assert client.layout.key(second) == key, "so that the next deletion finds it"
    assert client.own.removing(second) == client.revision


def test_a_try_that_was_refused_uses_no_key_up(client: Client) -> None:
    found = set()
    for _ in range(3):
        entry = client.entry()
        client.layout.adding(entry)
        found.add(client.layout.key(entry))
        client.own.refused(entry)
    assert len(found) == 1


def test_a_contender_is_known_to_its_client_by_its_entry_and_its_revision(client: Client) -> None:
    first, second = client.entry(), client.entry()
    key = client.adds(first)
    client.removes(first)
    before = client.revision
    client.adds(second)
    assert client.own.id(key, client.revision) == second.id
    assert client.own.id(key, before) is None


def test_only_so_many_keys_are_kept(client: Client) -> None:
    crowd = [client.entry() for _ in range(500)]
    crowd += [client.entry(f"q{number}") for number in range(5000)]
    for entry in crowd:
        client.adds(entry)
    for entry in crowd:
        client.removes(entry)
    assert len(client.own._free) <= 1000
    assert max(map(len, client.own._free.values())) <= 100
    assert not client.own._by_id
    assert not client.own._ids


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_night_of_refused_contenders_leaves_nothing_in_memory(
    client: Client, attempts: int
) -> None:
    """As on an etcd without space, whose sessions live on."""
    for _ in range(100):
        entry = client.entry()
        key = client.adds(entry, attempts, answered=False)
        client.removes(entry, was_there=False)
        [deletion] = requests.withdraw(client.layout, [entry]).success
        assert deletion.request_delete_range.key == key, "looked for again, under its key"
    assert not client.own._by_id
