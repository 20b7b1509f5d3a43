"""Who is there after an outage, by the function that decides it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Snapshot
from coordlock.recipes.member_list import IDENTITY, MemberList, members_of, next_members

GRACE = 9.0

#: At each step: how much later it is, how long an outage lasted then, who is there.
steps = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 4.0, 9.0]),
        st.sampled_from([0.0, 3.0, 20.0]),
        st.sets(st.integers(0, 4)),
    ),
    max_size=12,
)


def snapshot(*who: tuple[int, int], revision: int = 0) -> Snapshot:
    """A queue with members, each by its number and the one of its session."""
    contenders = [
        Contender(f"{one:0{IDENTITY}x}{session:016x}", f"k{one}", Mode.NL, one + 10 * session, one)
        for one, session in who
    ]
    return Snapshot("q", tuple(contenders), revision)


def numbers(listed: MemberList, *, confirmed: bool = True) -> set[int]:
    return {int(one.id, 16) for one in listed.members if one.confirmed is confirmed}


@given(steps, st.sampled_from([0.0, GRACE]))
def test_whoever_was_there_before_an_outage_is_shown_till_the_grace_is_over(
    days: list[tuple[float, float, set[int]]], grace: float
) -> None:
    """By the words of the docstring: each member has a moment until which it is kept."""
    listed: MemberList | None = None
    kept: dict[int, float] = {}
    shown: set[int] = set()
    confirmed: set[int] = set()
    now = 100.0
    for later, outage, there in days:
        now += later + outage
        if outage:
            left = {one: until + outage for one, until in kept.items()}
            kept = {one: now + grace if one in confirmed else left[one] for one in shown}
        queue = snapshot(*((one, 0) for one in sorted(there)))
        listed = next_members(listed, queue, now, grace, outage=outage)
        kept = {one: until for one, until in kept.items() if now < until}
        shown, confirmed = there | set(kept), there
        assert numbers(listed) == there
        assert numbers(listed, confirmed=False) == set(kept) - there
        assert len(listed.members) == len(shown)
        tokens = [one.token or 0 for one in listed.members]
        assert tokens == sorted(tokens)
        if not grace:
            assert listed.members == members_of(queue)


def test_whoever_returns_takes_the_place_of_its_unconfirmed_entry() -> None:
    before = next_members(None, snapshot((1, 0), (2, 0)), 0.0, GRACE)
    gone = next_members(before, snapshot(), 20.0, GRACE, outage=20.0)
    assert [one.confirmed for one in gone.members] == [False, False]
    back = next_members(gone, snapshot((2, 1)), 21.0, GRACE)
    assert [(int(one.id, 16), one.confirmed) for one in back.members] == [(1, False), (2, True)]
    over = next_members(back, snapshot((2, 1)), 29.0, GRACE)
    assert numbers(over) == {2}
    assert numbers(over, confirmed=False) == set()


def test_whoever_is_dead_leaves_though_one_outage_follows_another() -> None:
    now, listed = 20.0, next_members(None, snapshot((1, 0), (2, 0)), 0.0, GRACE)
    for _ in range(4):
        listed = next_members(listed, snapshot((2, 0)), now, GRACE, outage=20.0)
        assert numbers(listed, confirmed=False) == {1}
        now += 2.0 + 20.0
    now += 1.0
    listed = next_members(listed, snapshot((2, 0)), now, GRACE, outage=20.0)
    assert [int(one.id, 16) for one in listed.members] == [2]


def test_a_member_is_listed_once_though_its_last_session_has_not_ended() -> None:
    [first, second] = members_of(snapshot((1, 0), (2, 0), (1, 1)))
    assert (int(first.id, 16), int(second.id, 16)) == (2, 1)
