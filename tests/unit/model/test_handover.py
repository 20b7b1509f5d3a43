"""What departures prove to one that waits in several queues, against a reading of all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from coordlock.model.admission import blockers, omits_blockers
from coordlock.model.claim import AnyClaim, Convertible, Mode, Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.handover import Departure, after

Queues = tuple[Snapshot, ...]
Rule = Callable[[Queues, Sequence[Contender], Mapping[Contender, Departure]], Queues | None]

READER = Convertible(Mode.PR)
WRITER = replace(READER, mode=Mode.EX)


def is_admitted(contenders: Sequence[Contender], me: Contender) -> bool:
    return not blockers(Snapshot("q", tuple(contenders)), me)


class Story:
    """What has happened in my queues since I read them, and what was reported of it.

    Others leave, one after the other. I may lose my places; until that is reported, the service
    calls departures after it out of order. A convertible contender becomes exclusive in between.
    """

    def __init__(self, queues: Sequence[Sequence[Contender]], omitted: Sequence[int]) -> None:
        self.now = [list(one) for one in queues]
        self.mine = [one[-1] for one in queues]
        self.seen = tuple(
            Snapshot(f"q{number}", tuple(queue[skipped:]), omitted=skipped)
            for number, (queue, skipped) in enumerate(zip(queues, omitted, strict=True))
        )
        self.departures: dict[Contender, Departure] = {}
        self.is_there = True
        #: Whether I was still there when the last departure that was reported happened.
        self.was_there = True

    def leave(self, number: int, place: int, is_ordered: bool) -> None:
        """A contender before me leaves."""
        one = self.now[number][place]
        held = is_admitted(self.now[number], one)
        self.now[number].remove(one)
        if one in self.seen[number].contenders:
            in_order = Departure.FIRST if held else Departure.IN_ORDER
            is_ordered = is_ordered and self.is_there
            self.departures[one] = in_order if is_ordered else Departure.UNORDERED
            self.was_there = self.is_there

    def convert(self, number: int, place: int) -> None:
        """A convertible contender before me becomes exclusive; not past one that was admitted."""
        queue = self.now[number]
        if queue[place].claim == READER and not is_admitted(queue, self.mine[number]):
            queue[place] = replace(queue[place], claim=WRITER)

    def is_wrong(self, rule: Rule) -> bool:
        """Whether ``rule`` grants what I would not be granted, had I read all queues instead."""
        queues = rule(self.seen, self.mine, self.departures)
        if queues is None or any(map(blockers, queues, self.mine)):
            return False
        if any(map(omits_blockers, queues, self.mine)):
            return False
        return not (self.was_there and all(map(is_admitted, self.now, self.mine)))


def story(seed: int) -> Story:
    """Up to three queues of modes or permits, and up to six events."""
    dice = random.Random(seed)
    queues = []
    for number in range(dice.choice((1, 1, 2, 3))):
        some: Sequence[AnyClaim] = dice.choice(
            ([Mode.EX], [Mode.PR, Mode.EX], [*Mode], [Permit(2)], [Permit(3)])
        )
        claims = dice.choices(some, k=dice.randint(1, 5))
        if isinstance(some[0], Mode) and len(claims) > 1 and dice.random() < 0.5:
            claims[0] = READER
        queues.append(
            [
                Contender(f"{number}-{order}", f"q{number}/{order}", claim, order)
                for order, claim in enumerate(claims, 1)
            ]
        )
    story = Story(queues, [dice.randrange(len(one)) for one in queues])
    for _ in range(dice.randint(0, 6)):
        number = dice.randrange(len(queues))
        if dice.random() < 0.1:
            story.is_there = False
        elif (ahead := len(story.now[number]) - 1) and dice.random() < 0.6:
            story.leave(number, dice.randrange(ahead), dice.random() < 0.8)
        elif ahead:
            story.convert(number, dice.randrange(ahead))
    return story


def is_wrong(rule: Rule) -> bool:
    return any(story(seed).is_wrong(rule) for seed in range(20_000))


def test_what_departures_prove_is_what_a_reading_of_all_queues_would_find() -> None:
    assert not is_wrong(after)


def test_departures_that_prove_enough_spare_the_reading() -> None:
    first, second, me = (Contender(f"{n}", f"q/{n}", Mode.EX, n) for n in (1, 2, 3))
    seen = (Snapshot("q", (first, second, me)), Snapshot("r", (me,)))
    behind = (Snapshot("q", (second, me), omitted=1), Snapshot("r", (me,)))
    for queues, departures, is_enough in (
        (seen, {first: Departure.IN_ORDER, second: Departure.IN_ORDER}, True),
        (seen, {second: Departure.IN_ORDER}, False),
        (seen, {second: Departure.FIRST}, True),
        (behind, {second: Departure.IN_ORDER}, False),
        (behind, {second: Departure.FIRST}, True),
        (behind, {second: Departure.UNORDERED}, False),
    ):
        left = after(queues, (me, me), departures)
        assert (left == (replace(seen[0], contenders=(me,)), seen[1])) is is_enough
