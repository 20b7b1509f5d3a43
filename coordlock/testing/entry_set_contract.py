"""What the capability ``sets`` promises. Subclass `EntrySetContract` as the other suites."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordlock.errors import BackendUnavailable
from coordlock.model.claim import Claim, Mode
from coordlock.model.contender import Contender, Entry
from coordlock.testing.backend_contract import BOUND, OWNER, Party
from coordlock.testing.disturbed_suite import DisturbedSuite

__all__ = ["EntrySetContract"]


def entry_set(queues: Sequence[str], claim: Claim = Mode.EX) -> list[Entry]:
    """One new entry for each queue."""
    return [Entry(queue, uuid.uuid4().hex, claim, OWNER) for queue in queues]


def enqueue(party: Party, entries: Sequence[Entry]) -> list[Contender]:
    """The contenders of the set, as the answer shows them."""
    snapshots = party.backend.enqueue(entries).result(BOUND)
    assert [one.queue for one in snapshots] == [entry.queue for entry in entries]
    found = [one.find(entry.id) for one, entry in zip(snapshots, entries, strict=True)]
    assert None not in found
    return [one for one in found if one is not None]


class EntrySetContract(DisturbedSuite):
    """The suite."""

    needs = ("sets",)

    def test_a_set_stands_in_all_its_queues(self, one: Party, two: Party) -> None:
        entries = entry_set(["c", "a", "b/1"])
        for made, entry in zip(enqueue(one, entries), entries, strict=True):
            assert (made.id, made.claim) == (entry.id, entry.claim)
            assert made.token is not None
            assert two.ids(entry.queue) == [entry.id]

    def test_a_set_may_have_one_entry_or_fifty(self, one: Party) -> None:
        for number in (1, 50):
            entries = entry_set([f"{number}-{index}" for index in range(number)])
            enqueue(one, entries)
            assert all(one.ids(entry.queue) == [entry.id] for entry in entries)
            assert one.backend.withdraw(entries).result(BOUND) is True

    def test_the_snapshots_show_the_nearest_before_each(self, one: Party, two: Party) -> None:
        _, ahead, _ = two.enqueue("a")
        entries = entry_set(["a", "b"])
        two.enqueue("b", Mode.PR)
        snapshots = one.backend.enqueue(entries).result(BOUND)
        for snapshot, entry in zip(snapshots, entries, strict=True):
            contender = snapshot.find(entry.id)
            assert contender is not None
            assert len(snapshot.before(contender)) == 1
        assert snapshots[0].contenders[0].id == ahead.id

    def test_a_set_and_single_entries_stand_in_the_order_of_their_tokens(
        self, one: Party, two: Party
    ) -> None:
        first = two.enqueue("a")[1]
        made = enqueue(one, entry_set(["b", "a"]))[1]
        last = two.enqueue("a")[1]
        assert one.ids("a") == [first.id, made.id, last.id]
        tokens = [each.token for each in (first, made, last)]
        assert tokens == sorted(set(tokens))  # type: ignore[type-var]

    def test_two_sets_meet_in_one_order_in_all_their_queues(self, one: Party, two: Party) -> None:
        """Whatever the order of their names: else two sets could wait for each other."""
        queues = ["a", "b", "c", "d"]
        start = threading.Barrier(2)

        def work(party: Party, seed: int) -> list[list[str]]:
            chance, made = random.Random(seed), []
            for _ in range(25):
                entries = entry_set(chance.sample(queues, 3))
                start.wait(BOUND)
                enqueue(party, entries)
                made.append([entry.id for entry in entries])
            return made

        with ThreadPoolExecutor(2) as pool:
            made = [set_ for done in pool.map(work, (one, two), (1, 2)) for set_ in done]
        number_of = {id: number for number, set_ in enumerate(made) for id in set_}
        orders = [[number_of[id] for id in one.ids(queue)] for queue in queues]
        before = {(a, b) for order in orders for i, a in enumerate(order) for b in order[i + 1 :]}
        assert not {(b, a) for a, b in before} & before

    def test_enqueueing_a_set_again_finds_it(self, one: Party) -> None:
        entries = entry_set(["a", "b"])
        first = enqueue(one, entries)
        again = enqueue(one, entries)
        assert [(c.key, c.order, c.token) for c in again] == [
            (c.key, c.order, c.token) for c in first
        ]
        assert one.ids("a") == [entries[0].id]

    def test_a_set_is_blocked_as_a_whole(self, one: Party, two: Party) -> None:
        entries = entry_set(["a", "b", "c"])
        ahead, _, _ = two.enqueue("b")
        blocked = one.backend.enqueue(entries, unless_blocked=True).result(BOUND)
        assert [[each.id for each in one.contenders] for one in blocked] == [[], [ahead.id], []]
        assert [two.ids(queue) for queue in "abc"] == [[], [ahead.id], []]
        two.remove(ahead)
        free = one.backend.enqueue(entries, unless_blocked=True).result(BOUND)
        assert [[each.id for each in one.contenders] for one in free] == [
            [entry.id] for entry in entries
        ]
        one.backend.enqueue(entries, unless_blocked=True).result(BOUND)
        assert [two.ids(queue) for queue in "abc"] == [[entry.id] for entry in entries]

    @pytest.mark.parametrize("unless_blocked", [False, True])
    def test_a_set_whose_reply_was_lost_is_found_again(
        self, one: Party, two: Party, unless_blocked: bool
    ) -> None:
        entries = entry_set(["a", "b"])
        self.lose_reply(one, "enqueue")
        with pytest.raises(BackendUnavailable):
            one.backend.enqueue(entries).result(BOUND)
        self.repeated(lambda: two.backend.snapshot("a"))
        two.enqueue("a")
        self.repeated(lambda: one.backend.enqueue(entries, unless_blocked=unless_blocked))
        assert two.ids("a")[0] == entries[0].id
        assert two.ids("b") == [entries[1].id]

    def test_a_try_whose_reply_was_lost_is_found_again(self, one: Party, two: Party) -> None:
        [entry] = entry_set(["a"])
        one.backend.queues().result(BOUND)
        self.lose_reply(one, "enqueue")
        with pytest.raises(BackendUnavailable):
            one.add(entry, unless_blocked=True)
        self.repeated(lambda: two.backend.snapshot("a"))
        two.enqueue("a")
        [again] = self.repeated(lambda: one.backend.enqueue([entry], unless_blocked=True))
        assert again.find(entry.id) is not None
        assert two.ids("a")[0] == entry.id

    def test_a_set_of_which_a_part_is_gone_is_not_adopted(self, one: Party, two: Party) -> None:
        """Behind the gap others may have been granted: what is left stands in the wrong order."""
        entries = entry_set(["a", "b", "c"])
        first = enqueue(one, entries)
        behind = [two.enqueue(queue)[0].id for queue in "abc"]
        assert two.backend.evict(first[1]).result(BOUND) is True
        again = enqueue(one, entries)
        for queue, old, new, other in zip("abc", first, again, behind, strict=True):
            assert new.order > old.order
            assert two.ids(queue) == [other, new.id]

    def test_a_set_of_another_session_is_not_adopted(self, one: Party, two: Party) -> None:
        entries = entry_set(["a", "b"])
        enqueue(one, entries)
        for snapshot, entry in zip(
            two.backend.enqueue(entries).result(BOUND), entries, strict=True
        ):
            mine = (entry.id, two.info.id)
            assert mine in [(each.id, each.session) for each in snapshot.contenders]

    def test_a_set_is_withdrawn_as_a_whole(self, one: Party, two: Party) -> None:
        entries = entry_set(["a", "b"])
        enqueue(one, entries)
        waiting = [two.enqueue(queue)[0].id for queue in "ab"]
        assert one.backend.withdraw(entries).result(BOUND) is True
        assert two.ids("a") + two.ids("b") == waiting
        assert one.backend.withdraw(entries).result(BOUND) is False

    def test_what_is_gone_keeps_no_other_from_leaving(self, one: Party, two: Party) -> None:
        entries = entry_set(["a", "b", "c"])
        made = enqueue(one, entries)
        two.backend.evict(made[1]).result(BOUND)
        assert one.backend.withdraw(entries).result(BOUND) is False
        assert [two.ids(queue) for queue in "abc"] == [[], [], []]

    def test_a_withdrawal_whose_reply_was_lost_can_be_repeated(self, one: Party) -> None:
        entries = entry_set(["a", "b"])
        enqueue(one, entries)
        self.lose_reply(one, "withdraw")
        with pytest.raises(BackendUnavailable):
            one.backend.withdraw(entries).result(BOUND)
        self.repeated(lambda: one.backend.withdraw(entries))
        assert one.ids("a") + one.ids("b") == []

    def test_withdrawing_a_set_is_a_departure_from_each_queue(self, one: Party, two: Party) -> None:
        entries = entry_set(["a", "b"])
        snapshots = one.backend.enqueue(entries).result(BOUND)
        told = [threading.Event() for _ in entries]
        for event, snapshot, entry in zip(told, snapshots, entries, strict=True):
            contender = snapshot.find(entry.id)
            assert contender is not None
            two.backend.watch(
                contender,
                snapshot.revision,
                lambda _, event=event: event.set(),  # type: ignore[misc]
            )
        one.backend.withdraw(entries).result(BOUND)
        assert all(event.wait(BOUND) for event in told)
