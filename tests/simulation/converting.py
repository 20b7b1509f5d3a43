"""Processes that convert what they hold on a bad day, against a lock manager without time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar

from coordlock_memory import Fault
from hypothesis import strategies as st
from hypothesis.stateful import rule

from coordlock.errors import LockLost, WaitTimeout
from coordlock.locks.grant import Grant
from coordlock.locks.upgradeable import UpgradeableGrant
from coordlock.model.claim import AnyClaim, Convertible, Mode, in_force
from tests.simulation.bad_day import HONEST, indices
from tests.simulation.contention import Contention, trusts
from tests.simulation.turns import may_hold_together
from tests.simulation.world import Call, Party

__all__ = ["ConvertingIntentions", "ConvertingReaders"]


class ConvertingReaders(Contention):
    """Readers, writers, and those that go from the one to the other.

    Besides: what holders believe to hold, upgraded or not, may be held together after every event,
    and there is never more than one upgradeable lock. Who is done with an upgrade is exclusive,
    else it shares as before. In the end whoever waits has somebody in the way, and nobody is left
    who converts.
    """

    claims: ClassVar[list[AnyClaim]] = [
        Mode.PR,
        Mode.PR,
        Mode.EX,
        Convertible(Mode.PR),
        Convertible(Mode.PR),
    ]

    def __init__(self) -> None:
        super().__init__()
        #: What converts, and to what.
        self.conversions: dict[Grant, tuple[Party, Call[None], Mode]] = {}

    @rule(
        which=indices,
        what=indices,
        timeout=st.sampled_from([None, None, None, 0.0, 0.5, 30.0]),
    )
    def convert(self, which: int, what: int, timeout: float | None) -> None:
        able = [
            (party, grant)
            for party, grant in self.unreleased
            if isinstance(grant, UpgradeableGrant)
            and grant not in self.conversions
            and not party.paused
        ]
        if able:
            party, grant = able[which % len(able)]
            down = grant.claim is Mode.EX and what % 4 > 0
            if down and timeout is not None:  # readers come in before it hears of that
                party.network.faults.inject("publish", Fault.LOSE_REPLY, 1)
            call = party.run(grant._downgrade() if down else grant._upgrade(timeout))
            self.conversions[grant] = party, call, Mode.PR if down else Mode.EX
        self.check()

    @rule(seed=indices)
    def bustle(self, seed: int) -> None:
        """A while in which some come, some convert, some give up and some leave."""
        dice = random.Random(seed)
        acts: list[Callable[[int, int], None]] = [
            lambda who, what: self.acquire([who], what, dice.choice([None, 30.0]), True),
            lambda who, what: self.convert(who, what, None),
            lambda who, what: self.convert(who, what, dice.choice([0.0, 0.1, 0.5])),
            lambda who, _: self.release(who, 0.0),
            lambda who, _: self.give_up(who, "cancel"),
        ]
        for _ in range(16):
            [act] = dice.choices(acts, [5, 4, 3, 2, 1])
            act(dice.randrange(1000), dice.randrange(1000))
            self.world.advance(dice.choice([0.0, 0.0, 0.05, 0.3]))

    @rule(which=indices, how=st.sampled_from(["cancel", "fault"]), fault=st.sampled_from(Fault))
    def disturb(self, which: int, how: str, fault: Fault) -> None:
        """Somebody gives up a conversion, or what it publishes gets lost."""
        if how == "fault":
            self.pick(which).network.faults.inject("publish", fault, 1 + which % 3)
        elif self.conversions:
            party, call, _ = list(self.conversions.values())[which % len(self.conversions)]
            if not party.paused:
                call.cancel()
        self.check()

    def check(self) -> None:
        super().check()
        for grant, (_, call, target) in list(self.conversions.items()):
            if call.done:
                del self.conversions[grant]
                if call.error is None:
                    assert grant.claim is target
                else:
                    assert isinstance(call.error, (*HONEST, WaitTimeout, LockLost))
                    # What failed was an upgrade, or a downgrade, which counts at once.
                    assert grant.claim is Mode.PR or not trusts(grant)
        running = [grant for party, grant in self.held if not party.paused and trusts(grant)]
        there = [grant for grant in running if grant._first_token not in self.removed]
        claims = [grant.claim for grant in there]
        assert may_hold_together(claims), "conflicting modes are held together"
        updating = [grant for grant in there if isinstance(grant, UpgradeableGrant)]
        assert len(updating) <= 1, "two upgradeable locks are held together"

    def idle(self) -> set[str]:
        """Who waits for nobody, and who keeps others out for nothing."""
        queue = self.world.queue()
        granted = {grant._ticket.entries[0].id for _, grant in self.unreleased}
        converting = {grant._ticket.entries[0].id for grant in self.conversions}
        found: set[str] = set()
        for place, one in enumerate(queue):
            before = [other.claim for other in queue[:place]]
            modes = [in_force(claim) for claim in before]
            modes += [c.target for c in before if isinstance(c, Convertible) and c.target]
            stands_alone = all(may_hold_together([in_force(one.claim), mode]) for mode in modes)
            if not isinstance(one.claim, Convertible):
                if stands_alone and one.id not in granted:
                    found.add(f"{one.id} waits for nobody")
            elif one.claim.target is not None and one.id not in converting:
                found.add(f"{one.id} keeps others out, and converts no more")
        return found

    def get_over(self) -> None:
        self.world.advance(20.0)  # until all news have come
        idle = self.idle()
        self.world.advance(5.0)  # some may just have come, when another one's time was up
        assert not idle & self.idle()
        super().get_over()
        assert not self.conversions, "somebody converts for ever"


class ConvertingIntentions(ConvertingReaders):
    """Upgrades among all modes."""

    claims: ClassVar[list[AnyClaim]] = [*Mode, Mode.CR, *[Convertible(Mode.PR)] * 4]
