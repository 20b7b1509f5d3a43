from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock.model.admission import blockers, holders, is_blocked, mismatch
from coordlock.model.claim import AnyClaim, Claim, Mode, Permit
from coordlock.model.contender import Contender, Entry, Owner, Snapshot

#: Row: held, column: asked for; the published table of the VMS lock manager.
TABLE = """
        NL  CR  CW  PR  PW  EX
    NL  yes yes yes yes yes yes
    CR  yes yes yes yes yes no
    CW  yes yes yes no  no  no
    PR  yes yes no  yes no  no
    PW  yes yes no  no  no  no
    EX  yes no  no  no  no  no
"""
COLUMNS, *ROWS = (line.split() for line in TABLE.split("\n") if line.strip())
COMPATIBLE = {
    (Mode[row[0]], Mode[column]): word == "yes"
    for row in ROWS
    for column, word in zip(COLUMNS, row[1:], strict=True)
}


def contender(order: int, claim: AnyClaim) -> Contender:
    return Contender(id=f"id{order}", key=f"q/{order}", claim=claim, order=order, token=order)


def queue(claims: list[Claim]) -> Snapshot:
    return Snapshot("q", tuple(contender(order, claim) for order, claim in enumerate(claims, 1)))


def truly_admitted(snapshot: Snapshot, me: Contender) -> bool:
    """By the definitions: no earlier conflict; fewer than n before a permit of n."""
    earlier = [one for one in snapshot.contenders if one.order < me.order]
    if isinstance(me.claim, Permit):
        return len(earlier) < me.claim.of
    for one in earlier:
        assert isinstance(me.claim, Mode)
        if not isinstance(one.claim, Mode) or not COMPATIBLE[one.claim, me.claim]:
            return False
    return True


modes: st.SearchStrategy[list[Claim]] = st.lists(st.sampled_from(Mode), min_size=1, max_size=12)
permits: st.SearchStrategy[list[Claim]] = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.just(Permit(n)), min_size=1, max_size=14)
)
claims = modes | permits


@given(claims, st.data())
def test_who_would_come_is_blocked_where_it_would_have_to_wait(
    standing: list[Claim], data: st.DataObject
) -> None:
    entry = Entry("q", "new", data.draw(st.sampled_from(standing)), Owner("h", 1))
    snapshot = queue(standing)
    me = replace(contender(len(standing) + 1, entry.claim), id=entry.id)
    there = replace(snapshot, contenders=(*snapshot.contenders, me))
    assert is_blocked(snapshot, entry) is bool(blockers(there, me))
    assert not is_blocked(there, entry)
    assert not is_blocked(queue([]), entry)


@pytest.mark.parametrize("held", Mode)
@pytest.mark.parametrize("asked", Mode)
def test_the_modes_conflict_as_in_the_published_table(held: Mode, asked: Mode) -> None:
    assert asked.conflicts(held) is not COMPATIBLE[held, asked]
    snapshot = queue([held, asked])
    assert (blockers(snapshot, snapshot.contenders[1]) == ()) is COMPATIBLE[held, asked]


@given(claims)
def test_who_is_admitted_is_decided_as_the_definitions_say(claims: list[Claim]) -> None:
    snapshot = queue(claims)
    admitted = {one.id for one in snapshot.contenders if truly_admitted(snapshot, one)}
    assert holders(snapshot) == admitted
    for one in snapshot.contenders:
        assert (blockers(snapshot, one) == ()) is (one.id in admitted)


@given(claims)
def test_only_earlier_contenders_are_waited_for_so_there_is_no_deadlock(
    claims: list[Claim],
) -> None:
    snapshot = queue(claims)
    assert not blockers(snapshot, snapshot.contenders[0])
    for one in snapshot.contenders:
        assert all(other.order < one.order for other in blockers(snapshot, one))


@given(claims, st.data())
def test_a_departure_that_admits_me_is_one_of_those_i_wait_for(
    claims: list[Claim], data: st.DataObject
) -> None:
    """Nobody misses his turn: before it comes, somebody he has named departs."""
    now = queue(claims)
    me = data.draw(st.sampled_from(now.contenders))
    named = set(blockers(now, me))
    if not named:
        return
    while not truly_admitted(now, me):
        others = [one for one in now.contenders if one.order < me.order]
        gone = data.draw(st.sampled_from(others))
        now = now.without([gone])
        if gone in named:
            return
    pytest.fail("admitted, and nobody named has departed")


@given(st.integers(2, 60))
def test_in_a_queue_of_exclusive_locks_a_departure_wakes_one(length: int) -> None:
    snapshot = queue([Mode.EX] * length)
    named = Counter(b.id for one in snapshot.contenders for b in blockers(snapshot, one))
    assert set(named.values()) == {1}


@given(st.integers(1, 8), st.integers(1, 60))
def test_in_a_queue_of_permits_a_departure_wakes_at_most_as_many_as_there_are_permits(
    of: int, length: int
) -> None:
    snapshot = queue([Permit(of)] * length)
    named = Counter(b.id for one in snapshot.contenders for b in blockers(snapshot, one))
    assert max(named.values(), default=0) <= of


@given(modes)
def test_those_a_departure_wakes_could_all_hold_together(claims: list[Claim]) -> None:
    """A wake-up of several is no herd: none of them is in another's way."""
    snapshot = queue(claims)
    for gone in snapshot.contenders:
        woken = [one for one in snapshot.contenders if gone in blockers(snapshot, one)]
        for number, one in enumerate(woken):
            for other in woken[number + 1 :]:
                assert isinstance(one.claim, Mode)
                assert isinstance(other.claim, Mode)
                assert COMPATIBLE[one.claim, other.claim]


@given(claims, st.data())
def test_the_window_suffices_to_decide_or_says_that_it_does_not(
    claims: list[Claim], data: st.DataObject
) -> None:
    full = queue(claims)
    me = data.draw(st.sampled_from(full.contenders))
    upto = [one for one in full.contenders if one.order <= me.order]
    listed = upto[-(me.claim.window + 1) :]
    cut = replace(full, contenders=tuple(listed), omitted=len(upto) - len(listed))
    if blockers(cut, me):
        assert not truly_admitted(full, me)
    elif not cut.omitted:
        assert truly_admitted(full, me)
    if isinstance(me.claim, Permit):
        assert (not blockers(cut, me)) is truly_admitted(full, me)


@given(st.lists(st.sampled_from([*Mode, Permit(1), Permit(2), Permit(3)]), min_size=1, max_size=10))
def test_a_queue_of_mixed_kinds_is_seen_by_whoever_is_admitted(claims: list[Claim]) -> None:
    snapshot = queue(claims)
    for one in snapshot.contenders:
        kinds = {
            "mode" if isinstance(c.claim, Mode) else str(c.claim)
            for c in (*snapshot.before(one), one)
        }
        assert (mismatch(snapshot, one) is None) is (len(kinds) == 1)
        if (other := mismatch(snapshot, one)) is not None:
            assert other.order < one.order
