"""What the capability ``publishing`` promises. Subclass `PublishedValueContract`."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace

import pytest

from coordlock.backend import Departure
from coordlock.errors import BackendUnavailable, Evicted, VersionMismatch
from coordlock.model.claim import AnyClaim, Convertible, Mode
from coordlock.model.contender import Contender, Entry
from coordlock.testing.backend_contract import BOUND, OWNER, Party
from coordlock.testing.disturbed_suite import DisturbedSuite
from coordlock.testing.waiting import eventually

__all__ = ["PublishedValueContract"]


def enqueue(party: Party, value: bytes, queue: str = "q", claim: AnyClaim = Mode.NL) -> Contender:
    """A new contender with that value."""
    entry = Entry(queue, uuid.uuid4().hex, claim, OWNER, value)
    contender = party.add(entry).find(entry.id)
    assert contender is not None
    return contender


def seen(party: Party, queue: str = "q") -> list[tuple[bytes | None, int]]:
    """The values of a queue, with their versions."""
    snapshot = party.backend.snapshot(queue, owners=True).result(BOUND)
    return [(one.value, one.version) for one in snapshot.contenders]


class PublishedValueContract(DisturbedSuite):
    """The suite."""

    needs = ("publishing",)

    def test_a_contender_comes_with_its_value(self, one: Party, two: Party) -> None:
        for value in (b"", b"first", bytes(range(256)), b"x" * 10_000):
            enqueue(one, value, f"q{len(value)}")
            assert seen(two, f"q{len(value)}") == [(value, 1)]

    def test_a_value_is_changed_in_its_place(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        enqueue(two, b"other")
        one.backend.publish(mine, b"b", 1).result(BOUND)
        one.backend.publish(mine, b"", 2).result(BOUND)
        assert seen(two) == [(b"", 3), (b"other", 1)]
        [still, _] = two.backend.snapshot("q", owners=True).result(BOUND).contenders
        assert (still.key, still.order, still.token) == (mine.key, mine.order, mine.token)
        assert (still.owner, still.session) == (OWNER, one.info.id)

    def test_a_change_is_no_departure(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        revision = two.backend.snapshot("q").result(BOUND).revision
        told: list[Departure] = []
        two.backend.watch(mine, revision, told.append)
        one.backend.publish(mine, b"b", 1).result(BOUND)
        two.backend.heartbeat().result(BOUND)
        assert seen(two) == [(b"b", 2)]
        assert told == []

    def test_a_contender_that_has_left_publishes_nothing(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        two.backend.evict(mine).result(BOUND)
        with pytest.raises(Evicted):
            one.backend.publish(mine, b"b", 1).result(BOUND)
        assert seen(two) == []

    def test_a_change_that_comes_late_undoes_no_newer_one(self, one: Party) -> None:
        mine = enqueue(one, b"a")
        one.backend.publish(mine, b"b", 1).result(BOUND)
        one.backend.publish(mine, b"c", 2).result(BOUND)
        for late in (b"a", b"b"):
            with pytest.raises(VersionMismatch) as caught:
                one.backend.publish(mine, late, 1).result(BOUND)
            assert (caught.value.key, caught.value.expected) == (mine.key, 1)
        assert seen(one) == [(b"c", 3)]

    def test_a_change_whose_reply_was_lost_is_made_once(self, one: Party) -> None:
        mine = enqueue(one, b"a")
        self.lose_reply(one, "publish")
        with pytest.raises(BackendUnavailable):
            one.backend.publish(mine, b"b", 1).result(BOUND)
        for _ in range(2):
            self.repeated(lambda: one.backend.publish(mine, b"b", 1))
        assert seen(one) == [(b"b", 2)]

    def test_enqueueing_again_keeps_the_value_of_now(self, one: Party) -> None:
        entry = Entry("q", uuid.uuid4().hex, Mode.NL, OWNER, b"a")
        mine = one.add(entry).find(entry.id)
        assert mine is not None
        one.backend.publish(mine, b"b", 1).result(BOUND)
        one.add(entry)
        assert seen(one) == [(b"b", 2)]

    # Watching

    def test_the_own_session_is_told_too(self, one: Party) -> None:
        mine = enqueue(one, b"a")
        revision = one.backend.snapshot("q").result(BOUND).revision
        for version in (1, 2):
            told = threading.Event()
            watched = replace(mine, version=version)
            one.backend.watch(
                watched,
                revision,
                lambda _, told=told: told.set(),  # type: ignore[misc]
                changes=True,
            )
            assert not told.is_set()
            one.backend.publish(mine, b"b%d" % version, version).result(BOUND)
            assert told.wait(BOUND)

    def test_a_departure_is_told_to_who_watches_the_value(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        revision = two.backend.snapshot("q").result(BOUND).revision
        told = threading.Event()
        two.backend.watch(mine, revision, lambda _: told.set(), changes=True)
        two.backend.evict(mine).result(BOUND)
        assert told.wait(BOUND)

    def test_a_change_before_the_watch_is_told_at_once(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        revision = two.backend.snapshot("q").result(BOUND).revision
        one.backend.publish(mine, b"b", 1).result(BOUND)
        told = threading.Event()
        two.backend.watch(mine, revision, lambda _: told.set(), changes=True)
        assert told.wait(BOUND)

    def test_what_is_unchanged_is_not_told(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        other = enqueue(one, b"x")
        revision = two.backend.snapshot("q").result(BOUND).revision
        told: list[str] = []
        two.backend.watch(mine, revision, lambda _: told.append("mine"), changes=True)
        cancel = two.backend.watch(
            other, revision, lambda _: told.append("cancelled"), changes=True
        )
        two.backend.watch(other, revision, lambda _: told.append("other"), changes=True)
        two.backend.watch(other, revision, lambda _: told.append("departure"))
        cancel()
        one.backend.publish(other, b"y", 1).result(BOUND)
        eventually(lambda: told)
        two.backend.heartbeat().result(BOUND)
        assert told == ["other"]
        two.backend.evict(other).result(BOUND)  # who watches for departures alone is told of it
        eventually(lambda: told == ["other", "departure"])

    def test_every_watcher_of_a_value_is_told_once(self, one: Party, two: Party) -> None:
        mine = enqueue(one, b"a")
        revision = two.backend.snapshot("q").result(BOUND).revision
        told = [threading.Event() for _ in range(20)]
        for event in told:
            two.backend.watch(
                mine,
                revision,
                lambda _, event=event: event.set(),  # type: ignore[misc]
                changes=True,
            )
        one.backend.publish(mine, b"b", 1).result(BOUND)
        assert all(event.wait(BOUND) for event in told)

    # Convertible contenders, whose claims are what they publish

    def test_every_snapshot_tells_what_a_convertible_contender_claims(
        self, one: Party, two: Party
    ) -> None:
        first, then = Convertible(Mode.PR), Convertible(Mode.PR, Mode.EX, ((3, 7),))
        mine = enqueue(one, first.encode(), claim=first)
        assert (mine.claim, mine.version) == (first, 1)
        entry = Entry("q", uuid.uuid4().hex, Mode.EX, OWNER)
        snapshot = two.add(entry)
        waiter = snapshot.find(entry.id)
        assert waiter is not None
        assert [one.claim for one in snapshot.contenders] == [first, Mode.EX]
        one.backend.publish(mine, then.encode(), 1).result(BOUND)
        for party in (one, two):
            readings = [
                party.backend.snapshot("q"),
                party.backend.snapshot("q", owners=True),
                party.backend.snapshot("q", waiter),
                party.backend.snapshot("q", waiter, owners=True),
                party.backend.snapshot("q", waiter, conflicting=True),
            ]
            for reading in readings:
                [seen_mine, _] = reading.result(BOUND).contenders
                assert (seen_mine.claim, seen_mine.version) == (then, 2)
        later = Entry("q", uuid.uuid4().hex, Mode.NL, OWNER)
        listed = two.add(later).contenders
        assert then in [one.claim for one in listed]

    def test_a_convertible_contender_blocks_what_its_mode_excludes(
        self, one: Party, two: Party
    ) -> None:
        cases: list[tuple[Convertible, AnyClaim, bool]] = [
            (Convertible(Mode.PR), Mode.PR, False),
            (Convertible(Mode.PR), Mode.EX, True),
            (Convertible(Mode.PR, Mode.EX), Mode.PR, True),
            (Convertible(Mode.PR), Convertible(Mode.PR), True),
        ]
        for number, (claim, wanted, blocks) in enumerate(cases):
            queue = f"q{number}"
            ahead = enqueue(one, claim.encode(), queue, claim)
            entry, snapshot = two.try_to(queue, wanted)
            assert (snapshot.find(entry.id) is None) is blocks
            assert two.ids(queue) == [ahead.id, *([] if blocks else [entry.id])]

    def test_a_set_of_contenders_is_told_the_claims_before_it(self, one: Party, two: Party) -> None:
        if not self.backend.capabilities.sets:
            return
        claim = Convertible(Mode.CR)
        enqueue(one, claim.encode(), claim=claim)
        entries = [Entry(queue, uuid.uuid4().hex, Mode.PR, OWNER) for queue in ("q", "r")]
        queues = two.backend.enqueue(entries).result(BOUND)
        assert [[one.claim for one in snapshot.contenders] for snapshot in queues] == [
            [claim, Mode.PR],
            [Mode.PR],
        ]
