"""Who waits in a cycle: against a model that lets every party go on that can."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordlock.model.admission import holders, keeps_out
from coordlock.model.claim import AnyClaim, Claim, Mode, Permit
from coordlock.model.contender import Contender, Owner, Snapshot
from coordlock.model.waits import Wait, _Graph, by_contender, deadlocks, needed


@dataclass
class Party:
    """A thread that acquires one lock after the other, or several at once; it waits with the last.

    ``last`` counts the places of the last acquire.
    """

    name: str
    places: list[tuple[str, Contender]] = field(default_factory=list)
    last: int = 0


class Town:
    """Queues, and parties that stand in them."""

    def __init__(
        self, seed: int, parties: int, queues: int, claims: list[Claim], most: int = 1
    ) -> None:
        """A party takes up to ``most`` places at once."""
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
            order += 1
            party.last = min(dice.randint(1, most), len(free))
            for queue in dice.sample(free, party.last):
                claim = dice.choice(self.kinds[queue])
                id = f"{party.name}-{queue}"
                one = Contender(id, id, claim, order, order)
                self.queues[queue].append(one)
                party.places.append((queue, one))

    def snapshots(self) -> dict[str, Snapshot]:
        return {queue: Snapshot(queue, tuple(all_)) for queue, all_ in self.queues.items()}

    def waits(self, party: Party) -> bool:
        """Whether a place of ``party`` is not admitted: then it is one of the last."""
        return any(
            one.id not in holders(Snapshot(queue, tuple(self.queues[queue])))
            for queue, one in party.places
        )

    def published(self) -> list[Wait]:
        """Of those that wait and keep other places meanwhile."""
        return [
            Wait(
                party.name,
                tuple((queue, one.place) for queue, one in party.places[-party.last :]),
                frozenset(one.place for _, one in party.places[: -party.last]),
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
    most=st.integers(1, 3),
)
def test_a_deadlock_is_found_exactly_where_somebody_waits_for_ever(
    seed: int, parties: int, queues: int, claims: list[Claim], most: int
) -> None:
    see_who_is_stuck(Town(seed, parties, queues, claims, most))


def see_who_is_stuck(town: Town) -> None:
    """Let victims leave, until nobody waits for ever; each must be the youngest that could."""
    for _ in range(len(town.parties) + 1):
        found = list(deadlocks(town.published(), town.snapshots()))
        waiting = {place for wait in town.published() for _, place in wait.waits}
        for deadlock in found:
            able = [one.waiter for one in deadlock.steps if one.waiter.place in waiting]
            assert party_of(max(able, key=lambda one: one.order).id) == party_of(deadlock.victim)
            for step in deadlock.steps:
                for one, at in ((step.waiter, step.waiter_at), (step.blocker, step.blocker_at)):
                    assert at in ("", party_of(one.id))
                assert step.waiter_at or step.waiter.place not in waiting
        victims = {deadlock.victim for deadlock in found}
        stuck = town.go_on()  # what can go on takes nothing from a cycle
        assert bool(stuck) is bool(victims)
        for victim in victims:
            parties = [one for one in stuck if one.places and one.name == party_of(victim)]
            assert len(parties) == 1, "a victim that is not stuck"
            [party] = parties
            assert len(party.places) > 1, "a victim that keeps nothing"
            assert victim in waiting, "a victim that waits elsewhere"
            town.leave(party)
        if not stuck:
            return
    raise AssertionError("as many victims as parties are not enough")


def party_of(id: str) -> str:
    return id.rpartition("-")[0]


def ex(id: str, order: int, claim: AnyClaim = Mode.EX) -> Contender:
    return Contender(id, id, claim, order, order)


def placed(waits: Sequence[Wait], queues: Iterable[Snapshot]) -> list[Wait]:
    """``waits`` with the places of the contenders in ``queues`` in place of their ids."""
    known = {one.id: one.place for queue in queues for one in queue.contenders}
    return [
        Wait(
            wait.actor,
            tuple((queue, known.get(id, id)) for queue, id in wait.waits),
            frozenset(known.get(id, id) for id in wait.holds),
        )
        for wait in waits
    ]


def test_the_text_of_a_deadlock_takes_no_time_in_a_queue_for_the_time_of_holding() -> None:
    owner = Owner("h", 1, since=86_400.0)
    places = [ex("a", 1), ex("b", 2), ex("c", 3), ex("d", 4)]
    a, b, c, d = (replace(one, owner=owner) for one in places)
    queues = {"p": Snapshot("p", (a, d)), "q": Snapshot("q", (b, c))}
    waits = [
        Wait("A", (("q", "c"),), frozenset({"a"})),
        Wait("B", (("p", "d"),), frozenset({"b"})),
    ]
    [deadlock] = deadlocks(placed(waits, queues.values()), queues)
    queued = f"(queued {datetime.fromtimestamp(86_400.0):%H:%M:%S})"
    assert str(deadlock.steps[0]) == (
        f"h:1 (token 4) B {queued} waits for 'p', which h:1 (token 1) A {queued} holds"
    )


@pytest.mark.parametrize("is_cycle", [True, False])
@pytest.mark.parametrize("claims", [[Mode.EX], [Mode.PR, Mode.EX], [Permit(1)]])
def test_the_work_grows_with_the_number_of_contenders_alone(
    claims: list[Claim], is_cycle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(crowd: int) -> int:
        """How many looks and comparisons it takes to find a cycle through a crowd, or none."""
        queue = [ex("h", 1, claims[-1])]
        queue += [ex(f"w{one}", 10 + one, claims[one % len(claims)]) for one in range(crowd)]
        waits = [Wait("W", (("a", f"w{one}"),), frozenset({f"k{one}"})) for one in range(crowd)]
        waits.append(Wait("H", (("b", "h2"),), frozenset({"h"})))
        queues = {
            "a": Snapshot("a", tuple(queue)),
            "b": Snapshot("b", (ex(f"k{crowd - 1}", 2), ex("h2", 3))),
        }
        if not is_cycle:
            queues["b"] = Snapshot("b", queues["b"].contenders[1:])
        done = 0
        blocked = _Graph._blocked

        def compared(other: Contender, me: Contender) -> bool:
            nonlocal done
            done += 1
            return keeps_out(other, me)

        def looked(
            self: _Graph, snapshot: Snapshot, stuck: Collection[str]
        ) -> Iterator[tuple[str, str]]:
            nonlocal done
            done += len(snapshot.contenders)
            return blocked(self, snapshot, stuck)

        with monkeypatch.context() as patched:
            patched.setattr("coordlock.model.waits.keeps_out", compared)
            patched.setattr(_Graph, "_blocked", looked)
            assert len(list(deadlocks(placed(waits, queues.values()), queues))) == is_cycle
        return done

    assert work(400) <= 2.1 * work(200)


def test_a_place_that_waits_is_not_held_whatever_was_published() -> None:
    queues = {
        "a": Snapshot("a", (ex("h", 1), ex("w", 2), ex("y2", 5))),
        "b": Snapshot("b", (ex("y", 3), ex("x2", 4))),
    }
    waits = [
        Wait("X", (("b", "x2"),), frozenset({"w"})),
        Wait("Y", (("a", "y2"),), frozenset({"y"})),
    ]
    assert list(deadlocks(placed(waits, queues.values()), queues)) == []


def test_the_queues_that_matter_are_those_that_the_blockers_wait_in() -> None:
    waits = [
        Wait("H", (("b", "h2"),), frozenset({"h"})),
        Wait("X", (("c", "x2"),), frozenset({"x"})),
    ]
    queue = Snapshot("a", (ex("h", 1), ex("me", 2)))
    assert needed(by_contender(placed(waits, [queue])), [queue]) == {"b"}


@pytest.mark.parametrize(
    "record",
    [
        *(b"", b"a label", b"[]", b"{}", b"\xff", pytest.param(b"[" * 100_000, id="deep")),
        *(b'{"actor": 1, "waits": 2}', b'{"actor": "", "waits": [], "holds": ["1"]}'),
    ],
)
def test_what_is_no_record_says_nothing(record: bytes) -> None:
    assert Wait.decode(record) is None


def test_a_record_says_what_was_published() -> None:
    places = tuple((f"a b {one}", f"{one}") for one in range(500))
    wait = Wait("in thread 'x'", places, frozenset(map(str, range(500, 1000))))
    assert Wait.decode(wait.encode()) == wait


# The model can fail: each of these rules is needed


def _oldest(self: _Graph, place: str) -> tuple[int, str]:
    return -self._contenders[place][1].order, place


def _only_ex(other: Contender, me: Contender) -> bool:
    return other.claim is Mode.EX and keeps_out(other, me)


def _holders_alone(
    self: _Graph,
    snapshot: Snapshot,
    stuck: Collection[str],
    blocked: Callable[
        [_Graph, Snapshot, Collection[str]], Iterator[tuple[str, str]]
    ] = _Graph._blocked,
) -> Iterator[tuple[str, str]]:
    return blocked(self, snapshot, self._admitted.intersection(stuck))


def _all_that_wait(self: _Graph) -> dict[str, str]:
    looked = [self._blocked(queue, self._contenders) for queue in self._queues.values()]
    return {place: blocker for pairs in looked for place, blocker in pairs if blocker}


def _each_alone(waits: Sequence[Wait]) -> dict[str, list[Wait]]:
    """Only the first place of a wait for several belongs to it."""
    parts = [replace(one, waits=one.waits[:1]) for one in waits]
    return by_contender(parts)


WRONG: dict[str, tuple[str, object]] = {
    "a place goes on without the others of its wait": (
        "coordlock.model.waits.by_contender",
        _each_alone,
    ),
    "who can go on counts as stuck": (
        "coordlock.model.waits._Graph.stuck",
        _all_that_wait,
    ),
    "one holder of a semaphore is enough": ("coordlock.model.waits.Permit", ()),
    "the oldest gives up": ("coordlock.model.waits._Graph.age", _oldest),
    "who reads is in nobody's way": ("coordlock.model.waits.keeps_out", _only_ex),
    "who waits is in nobody's way": ("coordlock.model.waits._Graph._blocked", _holders_alone),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_model_finds_what_is_wrong(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[wrong])
    for seed in range(3000):
        town = Town(seed, 2 + seed % 6, 2 + seed % 4, [Mode.PR, Mode.EX], 1 + seed % 3)
        try:
            see_who_is_stuck(town)
        except (AssertionError, RuntimeError):  # or nobody is left to go to
            return
    pytest.fail("it was not found")
