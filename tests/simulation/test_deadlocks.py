"""Actors that take one lock after the other: whom the detection of deadlocks ends, and when.

News are slow, some sessions expire, and some grants are converted. The truth about the queues says
who waits for ever.
"""

from __future__ import annotations

import itertools
import random
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock.errors import CoordlockError, DeadlockDetected
from coordlock.kernel.acquisition import acquisition
from coordlock.locks.grant import Grant
from coordlock.locks.upgradeable import UpgradeableGrant
from coordlock.model.admission import holders
from coordlock.model.claim import AnyClaim, Convertible, Mode, Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.conversion import upgrade_blockers
from tests.simulation.bad_day import WatchedTime
from tests.simulation.world import Call, Party, World

#: Which locks there are, and as what they are acquired.
QUEUES: Final[dict[str, list[AnyClaim]]] = {
    "a": [Mode.EX],
    "b": [Mode.PR, Mode.EX],
    "c": [*[Convertible(Mode.PR)] * 2, Mode.PR, Mode.EX],
    "d": [Permit(2)],
}


@dataclass(eq=False)
class Actor:
    """A thread of a client."""

    party: Party
    thread: threading.Thread
    grants: dict[str, Grant] = field(default_factory=dict)
    #: The labels of its contenders, that with which it waits among them, by queue.
    places: dict[str, str] = field(default_factory=dict)
    #: What it waits for: the queue, and the call.
    wait: tuple[str, Call[Any]] | None = None
    #: Whether it was ever certain during this wait that it would wait for ever.
    was_stuck: bool = False


def label_of(one: Contender) -> str:
    return one.owner.label if one.owner else ""


def goes_on(actor: Actor, queues: dict[str, Snapshot]) -> bool:
    """Whether nobody in ``queues`` is in the way of what ``actor`` waits for."""
    assert actor.wait is not None
    queue, _ = actor.wait
    label = actor.places[queue]
    me = next((one for one in queues[queue].contenders if label_of(one) == label), None)
    if me is None:
        return True  # it has not come, or has left
    if isinstance(me.claim, Convertible) and me.claim.target is not None:
        return not upgrade_blockers(queues[queue], me)
    return me.id in holders(queues[queue])


class Town:
    """Four clients with two actors each."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World(WatchedTime(self.look))
        self.numbers = itertools.count()
        self.victims = 0
        self.actors: list[Actor] = []
        for _ in range(4):
            party = self.world.party()
            longest = self.dice.choice([0.0, 0.0, 0.05, 0.4])
            party.network.faults.latency = lambda longest=longest: self.dice.uniform(0, longest)
            for number in range(2):
                self.actors.append(Actor(party, threading.Thread(name=f"t{number}")))

    # What actors do

    def act(self, actor: Actor) -> None:
        chance = self.dice.random()
        able = [
            (queue, grant)
            for queue, grant in actor.grants.items()
            if isinstance(grant, UpgradeableGrant)
        ]
        free = sorted(QUEUES.keys() - actor.grants.keys())
        if chance < 0.25 or not (free or able):
            self.release(actor)
        elif able and chance < 0.6:
            queue, grant = able[0]
            is_down = grant.claim is Mode.EX
            converts = grant._downgrade() if is_down else grant._upgrade(None)
            self.begin(actor, queue, actor.party.run(converts))
        elif free:
            queue = self.dice.choice(free)
            claims = {queue: self.dice.choice(QUEUES[queue])}
            label = actor.places[queue] = f"{next(self.numbers)}"
            caller = weakref.ref(actor.thread)
            steps = acquisition(actor.party.engine, claims, None, caller, label)
            self.begin(actor, queue, actor.party.run(steps))

    @staticmethod
    def begin(actor: Actor, queue: str, call: Call[Any]) -> None:
        actor.wait, actor.was_stuck = (queue, call), False

    @staticmethod
    def release(actor: Actor) -> None:
        for grant in actor.grants.values():
            actor.party.run(grant._release(None))
        actor.grants.clear()
        actor.places.clear()

    def hear(self, actor: Actor) -> None:
        """Take what the call of ``actor`` has come to."""
        if actor.wait is None or not actor.wait[1].done:
            return
        queue, call = actor.wait
        actor.wait = None
        if isinstance(call.error, DeadlockDetected):
            assert actor.was_stuck, f"{call.error} at a time at which all could go on"
            self.victims += 1
        elif call.error is None and queue not in actor.grants:
            actor.grants[queue] = actor.party.grant(call.result)
        elif call.error is not None:
            assert isinstance(call.error, CoordlockError), call.error
        if call.error is not None:
            self.release(actor)

    # The truth

    def look(self) -> None:
        """After every event: who waits for ever now, and who has heard of it."""
        for actor in self.stuck():
            actor.was_stuck = True
        for actor in self.actors:
            self.hear(actor)

    def stuck(self) -> list[Actor]:
        """Those that wait and cannot go on, even if all others do and release what they have."""
        queues = {queue: self.world.queue(queue) for queue in QUEUES}
        waiting = [actor for actor in self.actors if actor.wait is not None]
        while True:
            labels = {label for actor in waiting for label in actor.places.values()}
            left = {
                queue: Snapshot(queue, tuple(one for one in all_ if label_of(one) in labels))
                for queue, all_ in queues.items()
            }
            able = [actor for actor in waiting if goes_on(actor, left)]
            if not able:
                return waiting
            waiting = [actor for actor in waiting if actor not in able]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            actor = self.dice.choice(self.actors)
            if actor.wait is None:
                self.act(actor)
            if self.dice.random() < 0.02:
                session = actor.party.network._session
                if session is not None:
                    self.world.service.expire(session)
            self.world.advance(self.dice.choice([0.0, 0.0, 0.1, 0.5, 2.0]))
            self.look()

    def end(self) -> None:
        """Everybody who can ends its work; nobody may be left."""
        for _ in range(60):
            for actor in self.actors:
                if actor.wait is None:
                    self.release(actor)
            self.world.advance(10.0)
            self.look()
            if all(actor.wait is None and not actor.grants for actor in self.actors):
                break
        left = [actor.wait for actor in self.actors if actor.wait is not None]
        assert not left, f"{left} wait for ever: {self.world.everybody()}"
        self.world.advance(300.0)
        assert self.world.everybody() == []


@given(seed=st.integers(0, 2**32))
def test_a_circle_ends_and_nobody_outside_of_one_is_its_victim(seed: int) -> None:
    town = Town(seed)
    town.run(60)
    town.end()


# The simulation can fail: it finds what is wrong with kernels that are. The graph: test_waits


def _nothing(*_: object) -> None:
    """Do not."""


WRONG: dict[str, tuple[str, object]] = {
    "nobody looks": ("coordlock.kernel.deadlock_detector.DeadlockDetector._start", _nothing),
}
#: They are found after dozens of days.
RARE: dict[str, tuple[str, object]] = {
    "who converts waits for nobody": ("coordlock.model.waits.upgrade_blockers", lambda *_: ()),
    "the conversion does not end": (
        "coordlock.locks.upgradeable._UpgradeableGrant._give_up",
        _nothing,
    ),
}
WRONG |= RARE


@pytest.mark.long_on(*RARE)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_is_wrong_is_found_out(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[wrong])
    for seed in range(200):
        town = Town(seed)
        try:
            town.run(60)
            town.end()
        except AssertionError:
            return
    pytest.fail("it was not found")
