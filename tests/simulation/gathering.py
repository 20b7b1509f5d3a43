"""Members of a group on a bad day, and those who observe them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from coordlock.backend import Queue
from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError, LockLost
from coordlock.locks.grant import GrantState
from coordlock.model.contender import Snapshot
from coordlock.recipes.group import Group, GroupView, view_of
from coordlock.recipes.member_list import next_members
from coordlock.recipes.membership import Membership, Presence
from tests.simulation.bad_day import PARTIES, BadDay, delays, indices
from tests.simulation.followers import Followers
from tests.simulation.world import Call, Party

__all__ = ["Gathering"]

#: How a value may not come to be published.
HONEST = (BackendUnavailable, ClientClosed, LockLost)


class Gathering(BadDay):
    """Processes that join a group, for once or for good, and publish other values.

    After every single event: what an observer knows is a state that the group had, and not an older
    one than it knew before.

    In the end: who stays is a member once, with the newest value. Whoever holds a membership is a
    member, with the value that was acknowledged last. Who left or was lost is none, and all
    observers see that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.followers = Followers(self.world.service, Queue("q"), shown)
        self.joining: list[tuple[Party, Call[Any]]] = []
        self.members: list[tuple[Party, Membership]] = []
        self.updates: dict[Membership, list[Call[None]]] = {}
        self.present: list[tuple[Party, Presence]] = []
        self.leaving: list[Call[Any]] = []
        self.number = 0

    @initialize()
    def connect(self) -> None:
        super().connect()
        for party in self.world.parties[:PARTIES]:
            self.followers.add(group_of(party).observe(grace=0))

    @rule(who=indices, stays=st.booleans(), seconds=delays)
    def join(self, who: int, stays: bool, seconds: float) -> None:
        party = self.pick(who)
        if not party.paused and len(self.joining) + len(self.members) + len(self.present) < 12:
            group = group_of(party)
            steps = group._keep_joined(self.value()) if stays else group._join(self.value())
            self.joining.append((party, party.run(steps)))
        self.world.advance(seconds)
        self.take_in()

    @rule(which=indices, again=st.integers(1, 3), seconds=delays)
    def update(self, which: int, again: int, seconds: float) -> None:
        self.take_in()
        everybody: list[tuple[Party, Any]] = [*self.members, *self.present]
        running = [one for one in everybody if not one[0].paused]
        if running:
            party, member = running[which % len(running)]
            for _ in range(again):
                if isinstance(member, Presence):
                    member.publish(self.value())
                else:
                    call = party.run(member._publish(self.value()))
                    self.updates.setdefault(member, []).append(call)
        self.world.advance(seconds)

    @rule(which=indices, seconds=delays)
    def leave(self, which: int, seconds: float) -> None:
        self.take_in()
        everybody: list[tuple[Party, Any]] = [*self.members, *self.present]
        running = [one for one in everybody if not one[0].paused]
        if running:
            self.let_go(running[which % len(running)])
        self.world.advance(seconds)

    def let_go(self, one: tuple[Party, Any]) -> None:
        party, member = one
        if isinstance(member, Presence):
            self.present.remove(one)
            self.leaving.append(party.run(member._leave()))
        else:
            self.members.remove(one)
            self.leaving.append(party.run(member._release()))

    def value(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    def take_in(self) -> None:
        """Those that have joined."""
        for party, call in list(self.joining):
            if call.done:
                self.joining.remove((party, call))
                if isinstance(call.error, CoordlockError):
                    continue
                result = call.result
                kept: list[Any] = self.present if isinstance(result, Presence) else self.members
                kept.append((party, result))

    def check(self) -> None:
        self.followers.check()

    def get_over(self) -> None:
        for _ in range(20):
            self.world.advance(30.0)
            self.take_in()
        assert not self.joining, "somebody was never answered"
        values = sorted(self.followers.present.values)
        expected = [presence.value for _, presence in self.present]
        for _, membership in self.members:
            if membership.state is GrantState.HELD:
                expected.append(membership.value)
        assert values == sorted(expected)
        for update in (one for updates in self.updates.values() for one in updates):
            assert update.done
            assert update.error is None or isinstance(update.error, HONEST), update.error
        self.followers.check_present()
        for one in [*self.members, *self.present]:
            self.let_go(one)
        for _ in range(5):
            self.world.advance(30.0)
        assert all(call.done for call in self.leaving)
        assert self.followers.present.members == ()
        self.followers.check_present()
        self.followers.close()


def group_of(party: Party) -> Group:
    return Group(party.access, "q")


def shown(snapshot: Snapshot) -> GroupView:
    return view_of(next_members(None, snapshot, 0.0, 0.0), None)
