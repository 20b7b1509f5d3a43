"""What the capability ``ordered`` promises. Subclass `QueueContract` as `BackendContract`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest

from coordlock.backend import Departure, Written
from coordlock.errors import BackendUnavailable, Evicted, SessionLost
from coordlock.model.admission import is_blocked
from coordlock.model.claim import Claim, Mode, Permit
from coordlock.model.contender import Contender, Entry, are_same
from coordlock.testing.backend_contract import BOUND, OWNER, Party, PartySuite
from coordlock.testing.waiting import eventually

__all__ = ["QueueContract"]


class QueueContract(PartySuite):
    """The suite."""

    needs = ("ordered",)

    def test_a_closed_backend_reads_and_evicts_nothing(self, one: Party) -> None:
        entry, contender, _ = one.enqueue("q")
        one.backend.close().result(BOUND)
        for request in (
            lambda: one.backend.enqueue([entry]),
            lambda: one.backend.snapshot("q"),
            lambda: one.backend.queues(),
            lambda: one.backend.evict(contender),
        ):
            with pytest.raises((BackendUnavailable, SessionLost)):
                request().result(BOUND)

    # Enqueueing

    def test_a_contender_is_seen_with_its_claim_and_token(self, one: Party) -> None:
        for claim in (*Mode, Permit(1), Permit(10_000)):
            entry, contender, _ = one.enqueue(f"q {claim}", claim)
            assert contender.id == entry.id
            assert contender.claim == claim
            assert contender.token is not None
            assert 1 <= contender.token < 2**63

    def test_contenders_stand_in_the_order_of_their_tokens(self, one: Party, two: Party) -> None:
        made = [party.enqueue("q")[1] for party in (one, two, two, one, two)]
        seen = one.backend.snapshot("q", owners=True).result(BOUND)
        assert {c.id: c.token for c in seen.contenders} == {c.id: c.token for c in made}
        orders = [c.order for c in seen.contenders]
        assert orders == sorted(set(orders))
        assert seen.omitted == 0
        assert [c.id for c in seen.contenders] == [c.id for c in made]
        if self.backend.capabilities.fenced:
            tokens = [c.token for c in seen.contenders]
            assert tokens == sorted(set(tokens))  # type: ignore[type-var]

    def test_queues_read_together_show_all_contenders_with_owners(
        self, one: Party, two: Party
    ) -> None:
        names = ["z", "a/\u00e4 %", "empty", "b"]
        made = {name: [party.enqueue(name)[1].id for party in (two, one)] for name in names}
        for contender in one.backend.snapshot("empty").result(BOUND).contenders:
            assert one.backend.evict(contender).result(BOUND)
        seen = one.backend.snapshots(names).result(BOUND)
        assert [snapshot.queue for snapshot in seen] == names
        for snapshot in seen:
            found = [contender.id for contender in snapshot.contenders]
            assert found == ([] if snapshot.queue == "empty" else made[snapshot.queue])
            assert all(contender.owner == OWNER for contender in snapshot.contenders)
            assert snapshot.omitted == 0
        assert one.backend.snapshots([]).result(BOUND) == ()

    def test_tokens_that_grow_do_so_when_a_queue_or_a_session_has_ended(
        self, one: Party, two: Party, party: Callable[[], Party]
    ) -> None:
        if not self.backend.capabilities.fenced:
            return
        tokens = []
        for each in (one, two, one):
            entry, contender, _ = each.enqueue("q")
            tokens.append(contender.token)
            each.remove(entry)
        tokens.append(two.enqueue("q")[1].token)
        two.backend.close().result(BOUND)
        eventually(lambda: one.backend.snapshot("q").result(BOUND).contenders == ())
        tokens += [each.enqueue("q")[1].token for each in (one, party())]
        assert tokens == sorted(set(tokens))  # type: ignore[type-var]

    def test_enqueueing_again_still_shows_the_nearest_before_it(
        self, one: Party, two: Party
    ) -> None:
        _, ahead, _ = two.enqueue("q")
        entry, _, _ = one.enqueue("q")
        for _ in range(12):
            two.enqueue("q")
        snapshot = one.add(entry)
        contender = snapshot.find(entry.id)
        assert contender is not None
        assert [c.id for c in snapshot.before(contender)] == [ahead.id]

    @pytest.mark.parametrize("claim", [Mode.EX, Mode.PR, Permit(3), Permit(20)], ids=str)
    def test_a_snapshot_lists_the_nearest_before_and_counts_the_rest(
        self, one: Party, two: Party, claim: Claim
    ) -> None:
        ahead = [two.enqueue("q", claim)[1].id for _ in range(14)]
        entry, contender, snapshot = one.enqueue("q", claim)
        two.enqueue("q", claim)
        read = one.backend.snapshot("q", contender).result(BOUND)
        for seen in (snapshot, read):
            before = [c.id for c in seen.before(contender)]
            assert before == ahead[len(ahead) - len(before) :]
            assert len(before) >= min(claim.window, 14)
            # 0 where the rest is known to share with it.
            assert seen.omitted in (14 - len(before), 0 if claim is not Mode.EX else -1)
        assert read.find(entry.id) is not None

    def test_a_snapshot_up_to_one_who_has_left_shows_that(self, one: Party, two: Party) -> None:
        _, ahead, _ = two.enqueue("q")
        entry, contender, _ = one.enqueue("q")
        one.remove(entry)
        seen = one.backend.snapshot("q", contender).result(BOUND)
        assert seen.find(entry.id) is None
        assert [c.id for c in seen.before(contender)] == [ahead.id]

    def test_a_full_snapshot_omits_nobody_and_names_owners(self, one: Party, two: Party) -> None:
        ids = [party.enqueue("q")[0].id for party in (one, two) * 10]
        seen = two.backend.snapshot("q", owners=True).result(BOUND)
        assert [c.id for c in seen.contenders] == ids
        assert seen.omitted == 0
        assert {c.owner for c in seen.contenders} == {OWNER}
        assert {c.session for c in seen.contenders} == {one.info.id, two.info.id}

    def test_a_queue_that_never_was_is_empty(self, one: Party) -> None:
        assert one.backend.snapshot("q", owners=True).result(BOUND).contenders == ()

    def test_queues_are_apart(self, one: Party) -> None:
        for queue in ("a", "a/b", "b"):
            one.enqueue(queue)
        assert len(one.backend.snapshot("a").result(BOUND).contenders) == 1
        assert {"a", "a/b", "b"} <= set(one.backend.queues().result(BOUND))

    def test_a_queue_that_all_have_left_is_not_listed(self, one: Party, two: Party) -> None:
        entries = [(party, party.enqueue("left")[0]) for party in (one, two)]
        one.enqueue("there")
        for party, entry in entries:
            assert "left" in two.backend.queues().result(BOUND)
            assert party.remove(entry) is True
        listed = two.backend.queues().result(BOUND)
        assert "left" not in listed
        assert "there" in listed

    def test_many_requests_at_a_time_are_all_answered(self, one: Party) -> None:
        entries = [Entry("q", uuid.uuid4().hex, Mode.EX, OWNER) for _ in range(200)]
        futures = [one.backend.enqueue([entry]) for entry in entries]
        tokens = []
        for entry, future in zip(entries, futures, strict=True):
            contender = future.result(BOUND)[0].find(entry.id)
            assert contender is not None
            tokens.append(contender.token)
        assert len(set(tokens)) == 200
        removals = [one.backend.withdraw([entry]) for entry in entries]
        assert all(removal.result(BOUND) for removal in removals)

    # Enqueueing unless blocked

    @pytest.mark.parametrize("held", Mode, ids=str)
    @pytest.mark.parametrize("wanted", Mode, ids=str)
    def test_a_mode_is_blocked_by_what_conflicts_with_it(
        self, one: Party, two: Party, held: Mode, wanted: Mode
    ) -> None:
        ahead, _, _ = two.enqueue("q", held)
        entry, snapshot = one.try_to("q", wanted)
        if wanted.conflicts(held):
            assert [c.id for c in snapshot.contenders] == [ahead.id] == one.ids("q")
        else:
            assert snapshot.find(entry.id) is not None
            assert one.ids("q") == [ahead.id, entry.id]

    def test_who_waits_blocks_like_who_holds(self, one: Party, two: Party) -> None:
        ahead = [two.enqueue("q", claim)[0].id for claim in (Mode.PR, Mode.EX, Mode.PR)]
        _, snapshot = one.try_to("q", Mode.PR)
        assert ahead[1] in [c.id for c in snapshot.contenders]
        assert one.ids("q") == ahead

    def test_who_is_blocked_sees_it_behind_however_many_that_share(
        self, one: Party, two: Party
    ) -> None:
        ahead = [two.enqueue("q", claim)[0].id for claim in (Mode.EX, *[Mode.PR] * 20)]
        entry, snapshot = one.try_to("q", Mode.PR)
        assert is_blocked(snapshot, entry)
        assert one.ids("q") == ahead

    def test_a_permit_is_blocked_when_all_are_taken(self, one: Party, two: Party) -> None:
        held = [two.enqueue("q", Permit(2))[0].id, one.try_to("q", Permit(2))[0].id]
        _, snapshot = one.try_to("q", Permit(2))
        assert [c.id for c in snapshot.contenders] == held == one.ids("q")

    @pytest.mark.parametrize(
        ("held", "wanted"), [(Permit(3), Mode.PR), (Mode.PR, Permit(3)), (Permit(2), Permit(3))]
    )
    def test_a_queue_of_another_kind_blocks(
        self, one: Party, two: Party, held: Claim, wanted: Claim
    ) -> None:
        ahead, _, _ = two.enqueue("q", held)
        _, snapshot = one.try_to("q", wanted)
        assert [c.id for c in snapshot.contenders] == [ahead.id] == one.ids("q")

    def test_who_stands_in_the_queue_is_not_blocked_by_itself(self, one: Party, two: Party) -> None:
        entry, first = one.try_to("q")
        later, _, _ = two.enqueue("q")
        mine, again = (
            snapshot.find(entry.id) for snapshot in (first, one.add(entry, unless_blocked=True))
        )
        assert mine is not None
        assert again is not None
        assert are_same(mine, again)
        assert one.ids("q") == [entry.id, later.id]

    # Leaving

    def test_withdrawing_tells_whether_there_was_one(self, one: Party) -> None:
        entry, _, _ = one.enqueue("q")
        assert one.remove(entry) is True
        assert one.remove(entry) is False
        assert one.backend.snapshot("q").result(BOUND).contenders == ()

    def test_anybody_can_be_evicted(self, one: Party, two: Party) -> None:
        one.enqueue("q")
        [contender] = two.backend.snapshot("q", owners=True).result(BOUND).contenders
        assert two.backend.evict(contender).result(BOUND) is True
        assert two.backend.evict(contender).result(BOUND) is False
        assert one.backend.snapshot("q").result(BOUND).contenders == ()

    def test_whether_a_contender_stands_is_verified(self, one: Party, two: Party) -> None:
        _, contender, _ = one.enqueue("q")
        assert isinstance(one.backend.write((), [contender]).result(BOUND), Written)
        two.backend.evict(contender).result(BOUND)
        with pytest.raises(Evicted):
            one.backend.write((), [contender]).result(BOUND)
        _, left, _ = one.enqueue("q")
        one.backend.close().result(BOUND)
        with pytest.raises((SessionLost, BackendUnavailable)):
            one.backend.write((), [left]).result(BOUND)

    # Watching

    def test_a_departure_is_told_once(self, one: Party, two: Party) -> None:
        entry, _, _ = one.enqueue("q")
        _, contender, snapshot = two.enqueue("q")
        [ahead] = snapshot.before(contender)
        told: list[int] = []
        two.backend.watch(ahead, snapshot.revision, lambda _: told.append(1))
        two.enqueue("q")
        assert told == []
        one.remove(entry)
        eventually(lambda: told)
        two.backend.heartbeat().result(BOUND)
        assert told == [1]

    def test_a_departure_before_the_watch_is_told_at_once(self, one: Party, two: Party) -> None:
        entry, _, _ = one.enqueue("q")
        _, contender, snapshot = two.enqueue("q")
        [ahead] = snapshot.before(contender)
        one.remove(entry)
        told = threading.Event()
        two.backend.watch(ahead, snapshot.revision, lambda _: told.set())
        assert told.wait(BOUND)

    def test_a_departure_before_the_watch_is_told_however_many_others_followed_it(
        self, one: Party
    ) -> None:
        entry, ahead, _ = one.enqueue("q")
        _, waiter, snapshot = one.enqueue("q")
        one.remove(entry)
        size = 50 if self.backend.capabilities.sets else 1
        for _ in range(5000 // size):
            others = [Entry(f"q{place}", uuid.uuid4().hex, Mode.NL, OWNER) for place in range(size)]
            # ZooKeeper may delete an empty queue each time that a contender comes.
            self.repeated(lambda: one.backend.enqueue(others))  # noqa: B023
            self.repeated(lambda: one.backend.withdraw(others))  # noqa: B023
        told = threading.Event()
        one.backend.watch(ahead, snapshot.revision, lambda _: told.set(), waiters=(waiter,))
        assert told.wait(BOUND)

    def test_all_watchers_of_a_contender_are_told(self, one: Party, two: Party) -> None:
        entry, ahead, snapshot = one.enqueue("q")
        told = [threading.Event() for _ in range(50)]
        for event in told:
            two.backend.watch(ahead, snapshot.revision, lambda _, event=event: event.set())  # type: ignore[misc]
        one.remove(entry)
        assert all(event.wait(BOUND) for event in told)

    def test_a_cancelled_watch_tells_nothing_and_leaves_the_others_alone(
        self, one: Party, two: Party
    ) -> None:
        entry, ahead, snapshot = one.enqueue("q")
        told: list[str] = []
        cancel = two.backend.watch(ahead, snapshot.revision, lambda _: told.append("cancelled"))
        two.backend.watch(ahead, snapshot.revision, lambda _: told.append("kept"))
        cancel()
        cancel()
        one.remove(entry)
        eventually(lambda: told)
        assert told == ["kept"]

    def test_a_watch_can_be_set_again_after_its_cancellation(self, one: Party, two: Party) -> None:
        entry, ahead, snapshot = one.enqueue("q")
        two.backend.watch(ahead, snapshot.revision, lambda _: None)()
        told = threading.Event()
        two.backend.watch(ahead, snapshot.revision, lambda _: told.set())
        one.remove(entry)
        assert told.wait(BOUND)

    def test_the_end_of_a_session_is_a_departure(self, one: Party, two: Party) -> None:
        _, ahead, snapshot = one.enqueue("q")
        told = threading.Event()
        two.backend.watch(ahead, snapshot.revision, lambda _: told.set())
        one.backend.close().result(BOUND)
        assert told.wait(BOUND)

    def test_of_many_that_share_those_that_conflict_are_read(self, one: Party, two: Party) -> None:
        readers = [two.enqueue("q", Mode.CR)[1] for _ in range(15)]
        writer = two.enqueue("q", Mode.PW)[1]
        sharing = [two.enqueue("q", mode)[1] for mode in (Mode.NL, Mode.CR) * 8]
        _, me, _ = one.enqueue("q", Mode.CW)
        two.enqueue("q", Mode.EX)
        seen = one.backend.snapshot("q", me, conflicting=True).result(BOUND)
        listed = [contender.id for contender in seen.before(me)]
        assert writer.id in listed
        assert set(listed) <= {contender.id for contender in (*readers, writer, *sharing)}
        assert seen.omitted == 0
        assert seen.find(me.id) is not None
        two.backend.evict(me).result(BOUND)
        seen = one.backend.snapshot("q", me, conflicting=True).result(BOUND)
        assert seen.find(me.id) is None

    def test_of_a_semaphore_all_before_are_in_the_way(self, one: Party, two: Party) -> None:
        """Each has a permit or waits for one, though none alone keeps another out."""
        before = [party.enqueue("q", Permit(3))[1].id for party in (one, two) * 3]
        _, me, _ = one.enqueue("q", Permit(3))
        seen = one.backend.snapshot("q", me, conflicting=True).result(BOUND)
        assert [contender.id for contender in seen.before(me)] == before
        assert seen.omitted == 0

    def test_a_departure_told_in_order_comes_after_an_earlier_one_of_the_waiter(
        self, one: Party, two: Party
    ) -> None:
        """Else a waiter that was evicted would be granted in the place of its predecessor."""
        pairs: list[tuple[Contender, Contender, list[str]]] = []
        for number in range(20):
            _, ahead, _ = two.enqueue(f"q{number}")
            _, waiter, snapshot = one.enqueue(f"q{number}")
            told: list[str] = []

            def departed(departure: Departure, told: list[str] = told) -> None:
                told.append("in doubt" if departure is Departure.UNORDERED else "in order")

            def waiter_departed(_: Departure, told: list[str] = told) -> None:
                told.append("the waiter")

            one.backend.watch(waiter, snapshot.revision, waiter_departed)
            one.backend.watch(ahead, snapshot.revision, departed, waiters=(waiter,))
            pairs.append((waiter, ahead, told))
        for waiter, ahead, _ in pairs:
            assert two.backend.evict(waiter).result(BOUND) is True
            assert two.backend.evict(ahead).result(BOUND) is True
        eventually(lambda: all(len(told) == 2 for *_, told in pairs))
        assert ["in order", "the waiter"] not in [told for *_, told in pairs]

    def test_without_a_waiter_no_departure_counts_as_told_in_order(
        self, one: Party, two: Party
    ) -> None:
        entry, ahead, snapshot = one.enqueue("q")
        told: list[Departure] = []
        two.backend.watch(ahead, snapshot.revision, told.append)
        one.remove(entry)
        eventually(lambda: told)
        assert told == [Departure.UNORDERED]
