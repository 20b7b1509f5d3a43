"""What `coordlock.backend.PublishedValues` promises. Subclass `PublishedValueContract`."""

from __future__ import annotations

import uuid

import pytest

from coordlock.backend import PublishedValues
from coordlock.errors import BackendUnavailable, Evicted, VersionMismatch
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry
from coordlock.testing.backend_contract import BOUND, OWNER, Party
from coordlock.testing.disturbed_suite import DisturbedSuite

__all__ = ["PublishedValueContract"]


def values_of(party: Party) -> PublishedValues:
    """The party's backend as what the suite is about."""
    assert isinstance(party.backend, PublishedValues)
    return party.backend


def enqueue(party: Party, value: bytes, queue: str = "q") -> Contender:
    """A new contender with that value."""
    entry = Entry(queue, uuid.uuid4().hex, Mode.NL, OWNER, value)
    contender = party.backend.enqueue(entry).result(BOUND).find(entry.id)
    assert contender is not None
    return contender


def seen(party: Party, queue: str = "q") -> list[tuple[bytes | None, int]]:
    """The values of a queue, with their versions."""
    snapshot = party.backend.snapshot(queue, owners=True).result(BOUND)
    return [(one.value, one.version) for one in snapshot.contenders]


class PublishedValueContract(DisturbedSuite):
    """The suite."""

    def test_a_contender_comes_with_its_value(self, one: Party, two: Party) -> None:
        for value in (b"", b"first", bytes(range(256)), b"x" * 10_000):
            enqueue(one, value, f"q{len(value)}")
            assert seen(two, f"q{len(value)}") == [(value, 1)]

    def test_a_value_is_changed_in_its_place(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        enqueue(two, b"other")
        values_of(one).publish(mine, b"b", 1).result(BOUND)
        values_of(one).publish(mine, b"", 2).result(BOUND)
        assert seen(two) == [(b"", 3), (b"other", 1)]
        [still, _] = two.backend.snapshot("q", owners=True).result(BOUND).contenders
        assert (still.key, still.order, still.token) == (mine.key, mine.order, mine.token)
        assert (still.owner, still.session) == (OWNER, one.info.id)

    def test_a_change_is_no_departure(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        revision = two.backend.snapshot("q").result(BOUND).revision
        told: list[bool] = []
        two.backend.watch(mine, revision, told.append)
        values_of(one).publish(mine, b"b", 1).result(BOUND)
        two.backend.heartbeat().result(BOUND)
        assert seen(two) == [(b"b", 2)]
        assert told == []

    def test_a_contender_that_has_left_publishes_nothing(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        two.backend.evict(mine).result(BOUND)
        with pytest.raises(Evicted):
            values_of(one).publish(mine, b"b", 1).result(BOUND)
        assert seen(two) == []

    def test_a_change_that_comes_late_undoes_no_newer_one(self, one: Party) -> None:
        mine = enqueue(one, b"a")
        values_of(one).publish(mine, b"b", 1).result(BOUND)
        values_of(one).publish(mine, b"c", 2).result(BOUND)
        for late in (b"a", b"b"):
            with pytest.raises(VersionMismatch) as caught:
                values_of(one).publish(mine, late, 1).result(BOUND)
            assert (caught.value.key, caught.value.expected) == (mine.key, 1)
        assert seen(one) == [(b"c", 3)]

    def test_a_change_whose_reply_was_lost_is_made_once(self, one: Party) -> None:
        mine = enqueue(one, b"a")
        self.lose_reply(one, "publish")
        with pytest.raises(BackendUnavailable):
            values_of(one).publish(mine, b"b", 1).result(BOUND)
        for _ in range(2):
            values_of(one).publish(mine, b"b", 1).result(BOUND)
        assert seen(one) == [(b"b", 2)]

    def test_enqueueing_again_keeps_the_value_of_now(self, one: Party) -> None:
        entry = Entry("q", uuid.uuid4().hex, Mode.NL, OWNER, b"a")
        mine = one.backend.enqueue(entry).result(BOUND).find(entry.id)
        assert mine is not None
        values_of(one).publish(mine, b"b", 1).result(BOUND)
        one.backend.enqueue(entry).result(BOUND)
        assert seen(one) == [(b"b", 2)]
