"""Who waits in a circle: against a model that lets every party go on that can."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordlock.model.admission import holders
from coordlock.model.claim import Claim, Mode, Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.waits import Wait, deadlocks, needed


@dataclass
class Party:
    """A thread that acquires one place after the other; it waits with the last."""

    name: str
    places: list[tuple[str, Contender]] = field(default_factory=list)


class Town:
    """Queues, and parties that stand in them."""

    def __init__(self, seed: int, parties: int, queues: int, claims: list[Claim]) -> None:
        dice = random.Random(seed)
        self.queues: dict[str, list[Contender]] = {f"q{one}": [] for one in range(queues)}
        kinds: list[list[Claim]] = [claims, [Permit(2)]]
        self.kinds = {queue: dice.choice(kinds) for queue in self.queues}
        self.parties = [Party(f"p{one}") for one in range(parties)]
        order = 0
        for _ in range(parties * 3):
            party = dice.choice(self.parties)
            taken = {queue for queue, _ in party.places}
            free = sorted(self.queues.keys() - taken)
            if self.waits(party) or not free:
                continue
            queue = dice.choice(free)
            order += 1
            claim = dice.choice(self.kinds[queue])
            one = Contender(f"{party.name}-{queue}", f"{queue}/{order}", claim, order, order)
            self.queues[queue].append(one)
            party.places.append((queue, one))

    def snapshots(self) -> dict[str, Snapshot]:
        return {queue: Snapshot(queue, tuple(all_)) for queue, all_ in self.queues.items()}

    def waits(self, party: Party) -> bool:
        """Whether a place of ``party`` is not admitted: then it is the last."""
        return any(
            one.id not in holders(Snapshot(queue, tuple(self.queues[queue])))
            for queue, one in party.places
        )

    def published(self) -> list[Wait]:
        """Of those that wait and hold something."""
        return [
            Wait(
                party.name,
                ((party.places[-1][0], party.places[-1][1].id),),
                frozenset(one.id for _, one in party.places[:-1]),
            )
            for party in self.parties
            if len(party.places) > 1 and self.waits(party)
        ]

    def leave(self, party: Party) -> None:
        for queue, one in party.places:
            self.queues[queue].remove(one)
        party.places = []

    def go_on(self) -> list[Party]:
        """Let all end their work that can; those that are left."""
        while True:
            able = [one for one in self.parties if one.places and not self.waits(one)]
            if not able:
                return [one for one in self.parties if one.places]
            for party in able:
                self.leave(party)


@settings(max_examples=400)
@given(
    seed=st.integers(0, 10**6),
    parties=st.integers(2, 7),
    queues=st.integers(2, 5),
    claims=st.sampled_from([[Mode.EX], [Mode.PR, Mode.EX], list(Mode)]),
)
def test_a_deadlock_is_found_exactly_where_somebody_waits_for_ever(
    seed: int, parties: int, queues: int, claims: list[Claim]
) -> None:
    town = Town(seed, parties, queues, claims)
    for _ in range(parties + 1):
        found = list(deadlocks(town.published(), town.snapshots()))
        victims = {deadlock.victim for deadlock in found}
        stuck = town.go_on()  # what can go on takes nothing from a circle
        assert bool(stuck) is bool(victims)
        for victim in victims:
            [party] = [one for one in stuck if one.places[-1][1].id == victim]
            assert len(party.places) > 1, "a victim that holds nothing"
            town.leave(party)
        if not stuck:
            return
    pytest.fail("as many victims as parties are not enough")


def ex(id: str, order: int, claim: Claim = Mode.EX) -> Contender:
    return Contender(id, f"q/{order}", claim, order, order)


def test_the_youngest_that_holds_something_is_the_victim() -> None:
    queues = {
        "a": Snapshot("a", (ex("h", 1, Mode.PR), ex("w", 2), ex("r", 4, Mode.PR))),
        "b": Snapshot("b", (ex("r2", 3), ex("h2", 5))),
    }
    waits = [
        Wait("H", (("b", "h2"),), frozenset({"h"})),
        Wait("R", (("a", "r"),), frozenset({"r2"})),
    ]
    [deadlock] = deadlocks(waits, queues)
    assert deadlock.victim == "h2"
    steps = [(one.waiter.id, one.blocker.id, one.holding) for one in deadlock.steps]
    assert steps == [("h2", "r2", True), ("r", "w", False), ("w", "h", True)]


def test_the_queues_that_matter_are_those_that_the_blockers_wait_in() -> None:
    waits = [
        Wait("H", (("b", "h2"),), frozenset({"h"})),
        Wait("X", (("c", "x2"),), frozenset({"x"})),
    ]
    assert needed(waits, {"a": Snapshot("a", (ex("h", 1), ex("me", 2)))}) == {"b"}


@pytest.mark.parametrize("text", ["", "a label", "[]", "{}", '{"actor": 1, "waits": 2}'])
def test_what_is_no_record_says_nothing(text: str) -> None:
    assert Wait.decode(text) is None


def test_a_record_says_what_was_published() -> None:
    wait = Wait("in thread 'x'", (("a b", "1"),), frozenset({"2", "3"}))
    assert Wait.decode(wait.encode()) == wait
