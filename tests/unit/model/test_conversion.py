"""Upgrades against a model in which readings are late and any two steps may change places."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordlock.model.admission import blockers, holders
from coordlock.model.claim import AnyClaim, Convertible, Mode
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.conversion import Publish, WaitFor, decide
from coordlock.model.handover import Departure, after


@dataclass(eq=False)
class Party:
    """A client with one contender, and what it believes."""

    number: int
    me: Contender
    #: Whether its readings may be of the past, as those of a server that lags behind.
    lags: bool
    came: int
    granted: bool = False
    gone: bool = False
    #: What it believes to hold.
    holds: set[Mode] = field(default_factory=set)
    target: Mode | None = None
    #: What it has read, and until when it need not read again: one of these changes.
    seen: Snapshot | None = None
    seen_at: int = 0
    waits_for: tuple[Contender, ...] = ()
    #: What it is about to publish.
    outbox: Convertible | None = None


class World:
    """One queue: its present, and its past for those that lag."""

    def __init__(self, seed: int, modes: list[Mode]) -> None:
        self.dice = random.Random(seed)
        self.modes = modes
        self.parties: list[Party] = []
        self.states: list[tuple[Contender, ...]] = [()]
        self.orders = 0

    @property
    def queue(self) -> tuple[Contender, ...]:
        return self.states[-1]

    def change(self, queue: tuple[Contender, ...]) -> None:
        self.states.append(queue)

    # What parties do

    def come(self) -> Party:
        self.orders += 1
        wanted: AnyClaim = self.dice.choice(self.modes)
        if self.dice.random() < 0.4:
            wanted = Convertible(Mode.PR, update=True)
        version = 1 if isinstance(wanted, Convertible) else 0
        name = f"c{self.orders}"
        me = Contender(name, f"q/{name}", wanted, self.orders, self.orders, version=version)
        self.change((*self.queue, me))
        lags = self.dice.random() < 0.3
        party = Party(len(self.parties), me, lags, len(self.states) - 1)
        party.seen_at = party.came
        self.parties.append(party)
        return party

    def leave(self, party: Party) -> None:
        party.gone, party.holds, party.target, party.outbox = True, set(), None, None
        self.change(tuple(one for one in self.queue if one.key != party.me.key))

    def publish(self, party: Party) -> None:
        assert party.outbox is not None
        party.me = replace(party.me, claim=party.outbox, version=party.me.version + 1)
        party.outbox = None
        self.change(tuple(party.me if one.key == party.me.key else one for one in self.queue))
        party.seen, party.waits_for = None, ()
        party.seen_at = len(self.states) - 1
        if party.me.claim == Convertible(party.target or Mode.NL, update=True):
            party.target = None
            party.holds = {self.mode_of(party.me)}

    @staticmethod
    def mode_of(one: Contender) -> Mode:
        claim = one.claim
        assert isinstance(claim, Mode | Convertible)
        return claim.mode if isinstance(claim, Convertible) else claim

    def read(self, party: Party) -> Snapshot:
        """The queue, perhaps as it was; never before what this party has seen or done."""
        at = len(self.states) - 1
        if party.lags:
            at = self.dice.randint(party.seen_at, at)
        party.seen_at = at
        return Snapshot("q", self.states[at])

    def contend(self, party: Party) -> None:
        """Go on with the acquisition."""
        if party.seen is None or not party.waits_for:
            party.seen = self.read(party)
        else:
            [blocker] = party.waits_for
            there = {one.key for one in self.queue}
            has_departed = blocker.key not in there
            departure = Departure.UNORDERED  # or it has changed
            if has_departed and not isinstance(blocker.claim, Convertible):
                held = self.was_granted(blocker)
                departure = Departure.FIRST if held else Departure.IN_ORDER
            left = after([party.seen], [party.me], {blocker: departure})
            party.seen_at = len(self.states) - 1 if has_departed else party.seen_at
            party.seen = self.read(party) if left is None else left[0]
        party.waits_for = blockers(party.seen, party.me)
        if not party.waits_for:
            party.granted, party.holds, party.seen = True, {self.mode_of(party.me)}, None

    def was_granted(self, one: Contender) -> bool:
        return any(party.granted for party in self.parties if party.me.key == one.key)

    def convert(self, party: Party) -> None:
        """Go on with the conversion."""
        assert party.target is not None
        snapshot = self.read(party)
        if snapshot.find(party.me.id) is None:
            return
        if party.target is Mode.PR:
            party.outbox, party.holds = Convertible(Mode.PR, update=True), {Mode.PR}
            return
        match decide(snapshot, party.me):
            case Publish(claim):
                party.outbox = claim
                if claim.mode is Mode.EX:
                    # From now on it does what the new mode allows.
                    party.holds = {Mode.EX}
            case WaitFor(contender):
                party.seen, party.waits_for = snapshot, (contender,)

    def give_up(self, party: Party) -> None:
        """The time of its conversion is up."""
        mine = party.me.claim
        assert isinstance(mine, Convertible)
        party.target, party.waits_for, party.outbox = None, (), None
        party.holds = {mine.mode}
        if mine.target is not None:
            party.outbox = replace(mine, target=None, yields_to=None)

    def is_woken(self, party: Party) -> bool:
        """Whether something has happened that it watches; all is told in the end."""
        if not party.waits_for:
            return True
        now = {one.key: one for one in self.queue}
        for one in party.waits_for:
            there = now.get(one.key)
            if there is None:
                return True
            if isinstance(one.claim, Convertible) and there.version != one.version:
                return True
        return False

    # The course of things

    def moves(self) -> Iterator[tuple[str, Party]]:
        """What may happen next, beside comings."""
        for party in self.parties:
            if party.gone:
                continue
            if party.outbox is not None:
                yield "publish", party
            elif not party.granted:
                if self.is_woken(party):
                    yield "contend", party
            elif party.target is not None:
                if self.is_woken(party):
                    yield "convert", party
            elif party.granted:
                yield "go on", party

    def move(self, what: str, party: Party, *, ends: bool) -> None:
        if what == "publish":
            self.publish(party)
        elif what == "contend":
            self.contend(party)
        elif what == "convert":
            self.convert(party)
        elif isinstance(party.me.claim, Convertible) and not ends and self.dice.random() < 0.7:
            party.target = Mode.EX if party.me.claim.mode is Mode.PR else Mode.PR
            party.waits_for, party.seen = (), None
        else:
            self.leave(party)

    def check(self) -> None:
        held = [(party, mode) for party in self.parties for mode in party.holds if not party.gone]
        for (one, mine), (other, theirs) in combinations(held, 2):
            assert not mine.conflicts(theirs), self.told(one, other)
            both = all(isinstance(each.me.claim, Convertible) for each in (one, other))
            assert not both, self.told(one, other)

    def told(self, *parties: Party) -> str:
        return f"{[party.me for party in parties]} hold together in {self.queue}"

    def run(self, comings: int) -> None:
        for _ in range(comings * 12):
            moves = list(self.moves())
            chance = self.dice.random()
            if self.orders < comings and (chance < 0.15 or not moves):
                self.come()
            elif chance < 0.19 and (waiting := [p for p in self.parties if not p.gone]):
                party = self.dice.choice(waiting)
                if party.target is not None and (
                    party.outbox is None or party.outbox.target is not None
                ):
                    self.give_up(party)
                elif not party.granted:
                    self.leave(party)
            elif moves:
                self.move(*self.dice.choice(moves), ends=False)
            self.check()

    def end(self) -> None:
        """Everybody goes on and nobody begins anything: who is left waits for ever."""
        for party in self.parties:
            party.lags = False
        for _ in range(10_000):
            moves = list(self.moves())
            if not moves:
                break
            self.move(*self.dice.choice(moves), ends=True)
            self.check()
        stuck = [party for party in self.parties if not party.gone]
        assert not stuck, f"{[party.me for party in stuck]} wait for ever in {self.queue}"


@pytest.mark.parametrize(
    "modes",
    [
        [Mode.PR, Mode.EX],
        [Mode.PR, Mode.PW, Mode.EX],
        [Mode.CR, Mode.CW, Mode.PR],
        list(Mode),
    ],
    ids=["read and write", "update", "intentions", "all"],
)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_what_conflicts_is_never_held_together(modes: list[Mode], seed: int) -> None:
    world = World(seed, modes)
    world.run(comings=12)


@pytest.mark.parametrize(
    "modes",
    [
        [Mode.PR, Mode.EX],
        [Mode.PR, Mode.PW, Mode.EX],
        [Mode.CR, Mode.CR, Mode.CW, Mode.PR],
        list(Mode),
    ],
    ids=["read and write", "update", "intentions", "all"],
)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_nobody_waits_for_ever(modes: list[Mode], seed: int) -> None:
    world = World(seed, modes)
    world.run(comings=14)
    world.end()


# The cases that show why it is as it is


def upgrading(*yields_to: tuple[int, int], decided: bool = True) -> Convertible:
    return Convertible(Mode.PR, Mode.EX, yields_to if decided else None, update=True)


BEGUN = upgrading(decided=False)


def queue(*claims: AnyClaim) -> Snapshot:
    return Snapshot(
        "q",
        tuple(
            Contender(f"c{order}", f"q/c{order}", claim, order, order, version=1)
            for order, claim in enumerate(claims, start=1)
        ),
    )


def test_readers_behind_a_waiting_writer_are_not_waited_for() -> None:
    """At the end of the queue it would wait for them, and they for the writer, and that for it."""
    snapshot = queue(BEGUN, Mode.EX, Mode.PR)
    assert decide(snapshot, snapshot.contenders[0]) == Publish(Convertible(Mode.EX, update=True))


def test_when_the_writer_gives_up_its_readers_are_not_let_in_beside_the_upgraded_one() -> None:
    [me, _, reader] = queue(BEGUN, Mode.EX, Mode.PR).contenders
    assert blockers(Snapshot("q", (me, reader)), reader) == (me,)


def test_those_that_hold_go_first_and_are_told_so() -> None:
    claims = (BEGUN, Mode.PR, Mode.NL, Mode.PR, Mode.EX, Mode.PR)
    snapshot = queue(*claims)
    decision = decide(snapshot, snapshot.contenders[0])
    assert decision == Publish(upgrading((2, 2), (4, 4)))
    decided = queue(decision.claim, *claims[1:])
    assert holders(decided) == {"c1", "c2", "c3", "c4"}
    assert decide(decided, decided.contenders[0]) == WaitFor(decided.contenders[3])


def test_one_in_between_that_waits_is_not_taken_for_one_that_goes_first() -> None:
    """The waiting CW conflicts with what is held; the CR behind it is admitted."""
    snapshot = queue(BEGUN, Mode.CR, Mode.CW, Mode.CR)
    assert decide(snapshot, snapshot.contenders[0]) == Publish(upgrading((2, 2), (4, 4)))


def test_another_upgradeable_lock_waits_behind_and_is_not_waited_for() -> None:
    snapshot = queue(BEGUN, Convertible(Mode.PR, update=True), Mode.PR)
    assert decide(snapshot, snapshot.contenders[0]) == Publish(upgrading((3, 3)))


def test_who_could_be_granted_but_for_an_upgrade_that_is_not_decided_holds() -> None:
    snapshot = queue(BEGUN, Mode.PR, Mode.EX, Mode.PR)
    assert holders(snapshot) == {"c1", "c2"}


def test_a_contender_before_is_waited_for_whether_it_holds_or_not() -> None:
    """It waits for none behind it, so it would be let in beside the upgraded one."""
    claims = (Mode.PR, Mode.CR)
    snapshot = queue(*claims, BEGUN)
    decision = decide(snapshot, snapshot.contenders[2])
    assert decision == Publish(upgrading())
    decided = queue(*claims, decision.claim)
    assert decide(decided, decided.contenders[2]) == WaitFor(decided.contenders[1])


def test_what_an_upgrade_has_left_behind_that_could_not_take_it_back_is_gone_on_with() -> None:
    snapshot = queue(upgrading((2, 2)), Mode.PR, Mode.PR)
    assert decide(snapshot, snapshot.contenders[0]) == WaitFor(snapshot.contenders[1])
    exclusive = queue(Convertible(Mode.EX, update=True), Mode.PR)
    assert decide(exclusive, exclusive.contenders[0]) == Publish(Convertible(Mode.EX, update=True))


def test_what_is_published_is_read_again() -> None:
    for claim in (
        Convertible(Mode.PR),
        Convertible(Mode.PR, update=True),
        Convertible(Mode.CR, Mode.EX),
        Convertible(Mode.CR, Mode.EX, ()),
        Convertible(Mode.CR, Mode.EX, ((1, 2), (2**62, 2**62)), update=True),
    ):
        assert Convertible.decode(claim.encode()) == claim


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            b"",
            b"\xff",
            b"[]",
            b"{}",
            b'{"format": 1, "mode": "XX"}',
            b'{"format": 1, "mode": "PR", "target": 5}',
            b'{"format": 2, "mode": "PR"}',
            b"7",
        ),
        b'{"format": 1, "mode": "PR", "yields_to": [[Infinity, 1]]}',
        b"[" * 100_000,
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_read_counts_as_exclusive(value: bytes | None) -> None:
    assert Convertible.decode(value) == Convertible(Mode.EX)


# The model can fail: each of these rules is needed


def _nobody(*_: object, **__: object) -> bool:
    return False


def _none(_: Snapshot) -> frozenset[str]:
    return frozenset()


def _all(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(one.id for one in snapshot.contenders)


def _everybody(*_: object, **__: object) -> bool:
    return True


def _by_mode_alone(self: Convertible, mode: Mode, order: int, *, update: bool = False) -> bool:
    return self.mode.conflicts(mode) or (update and self.update)


WRONG = {
    "none behind is waited for": ("coordlock.model.conversion.holders", _none),
    "all behind are waited for": ("coordlock.model.conversion.holders", _all),
    "targets exclude nobody": ("coordlock.model.claim.Convertible.excludes", _by_mode_alone),
    "those that go first are not let pass": (
        "coordlock.model.claim.Convertible.lets_pass",
        _nobody,
    ),
    "all may pass": ("coordlock.model.claim.Convertible.lets_pass", _everybody),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_model_finds_what_is_wrong(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[wrong])
    for seed in range(6000):
        for modes in ([Mode.CR, Mode.CR, Mode.CW, Mode.PR], list(Mode)):
            world = World(seed, modes)
            try:
                world.run(comings=14)
                world.end()
            except AssertionError:
                return
    pytest.fail("it was not found")
