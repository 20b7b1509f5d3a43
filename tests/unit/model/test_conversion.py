"""What an upgrade does next: the cases that show why. `ConvertingReaders` simulates the rest."""

from __future__ import annotations

import pytest

from coordlock.model.admission import blockers, holders
from coordlock.model.claim import AnyClaim, Convertible, Mode
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.conversion import Publish, WaitFor, decide


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
