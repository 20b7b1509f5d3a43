"""Outages of any length, at any moment: no observer says that a member has left that returns."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coordlock.locks.grant import GrantState
from coordlock.recipes.group import Group, GroupView
from coordlock.recipes.membership import Presence
from coordlock.recipes.shared.observer import Observer
from tests.simulation.world import TTL, World

#: How long to wait for the outage, and how long it lasts; for members, and for the observer.
outages = st.lists(
    st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 3 * TTL), st.floats(0.0, 4.0)),
    min_size=1,
    max_size=3,
)


def present(observer: Observer[GroupView]) -> set[bytes]:
    return set(observer.state.values)


@settings(max_examples=50)
@given(outages, st.booleans())
def test_whoever_returns_soon_after_an_outage_is_shown_all_the_time(
    days: list[tuple[float, float, float]], observer_first: bool
) -> None:
    world = World()
    members, watcher = [world.party() for _ in range(3)], world.party()
    group = Group(watcher.access, "q")
    patient, hasty = group.observe(), group.observe(grace=0)
    wanted = {b"0", b"1", b"2"}
    staying = [
        member.run(Group(member.access, "q")._keep_joined(b"%d" % number))
        for number, member in enumerate(members)
    ]
    once = members[0].run(Group(members[0].access, "q")._join(b"once"))
    world.advance(1.0)
    assert present(patient) == present(hasty) == {*wanted, b"once"}
    ids = {one.id for one in patient.state.members if one.value in wanted}
    for wait, length, later in days:
        first, second = ([watcher], members) if observer_first else (members, [watcher])
        for seconds, act, parties in (
            (wait, "cut_off", [*members, watcher]),
            (length, "heal", first),
            (later, "heal", second),
        ):
            for _ in range(int(seconds / 0.25) + 1):
                world.advance(0.25)
                assert present(patient) >= wanted
            for party in parties:
                getattr(party, act)()
            world.settle()
            assert present(patient) >= wanted
    # When the grace is over, both observers show the same: whoever is there.
    for _ in range(int(2 * TTL / 0.25)):
        world.advance(0.25)
        assert present(patient) >= wanted
        assert {one.id for one in patient.state.members if one.value in wanted} == ids
    assert patient.state.members == hasty.state.members
    assert all(isinstance(call.result, Presence) for call in staying)
    assert (b"once" in present(hasty)) is (once.result.state is GrantState.HELD)
    for observer in (patient, hasty):
        observer.close()


def test_an_observer_that_believes_each_word_says_that_they_have_left() -> None:
    """The proof that the test above can fail."""
    world = World()
    member, watcher = world.party(), world.party()
    patient, hasty = (Group(watcher.access, "q").observe(grace=one) for one in (TTL, 0))
    member.run(Group(member.access, "q")._keep_joined(b"0"))
    world.advance(1.0)
    for party in (member, watcher):
        party.cut_off()
    world.advance(2 * TTL)
    watcher.heal()
    world.advance(TTL / 2)
    assert present(hasty) == set()
    [kept] = patient.state.members
    assert (kept.value, kept.confirmed) == (b"0", False)
    world.advance(TTL / 2 + 1.0)
    assert present(patient) == set()
    member.heal()
    world.advance(TTL)
    assert patient.state == hasty.state
    for observer in (patient, hasty):
        observer.close()
