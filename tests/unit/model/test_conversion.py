"""What an upgrade does next: the cases that show why. `ConvertingReaders` simulates the rest."""

from __future__ import annotations

import pytest

from coordlock.model.admission import blockers, holders
from coordlock.model.claim import AnyClaim, Convertible, Mode
from coordlock.model.contender import Contender, Snapshot
from coordlock.model.conversion import decide


def upgrading(*yields_to: tuple[int, int], decided: bool = True) -> Convertible:
    return Convertible(Mode.PR, Mode.EX, yields_to if decided else None)


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
    assert decide(snapshot, snapshot.contenders[0]) == Convertible(Mode.EX)


def test_when_the_writer_gives_up_its_readers_are_not_let_in_beside_the_upgraded_one() -> None:
    [me, _, reader] = queue(BEGUN, Mode.EX, Mode.PR).contenders
    assert blockers(Snapshot("q", (me, reader)), reader) == (me,)


def test_those_that_hold_go_first_and_are_told_so() -> None:
    claims = (BEGUN, Mode.PR, Mode.NL, Mode.PR, Mode.EX, Mode.PR)
    snapshot = queue(*claims)
    decision = decide(snapshot, snapshot.contenders[0])
    assert decision == upgrading((2, 2), (4, 4))
    decided = queue(decision, *claims[1:])
    assert holders(decided) == {"c1", "c2", "c3", "c4"}
    assert decide(decided, decided.contenders[0]) == decided.contenders[3]


def test_one_in_between_that_waits_is_not_taken_for_one_that_goes_first() -> None:
    """The waiting CW conflicts with what is held; the CR behind it is admitted."""
    snapshot = queue(BEGUN, Mode.CR, Mode.CW, Mode.CR)
    assert decide(snapshot, snapshot.contenders[0]) == upgrading((2, 2), (4, 4))


def test_another_upgradeable_lock_waits_behind_and_is_not_waited_for() -> None:
    snapshot = queue(BEGUN, Convertible(Mode.PR), Mode.PR)
    assert decide(snapshot, snapshot.contenders[0]) == upgrading((3, 3))


def test_who_could_be_granted_but_for_an_upgrade_that_is_not_decided_holds() -> None:
    snapshot = queue(BEGUN, Mode.PR, Mode.EX, Mode.PR)
    assert holders(snapshot) == {"c1", "c2"}


def test_a_contender_before_is_waited_for_whether_it_holds_or_not() -> None:
    """It waits for none behind it, so it would be let in beside the upgraded one."""
    claims = (Mode.PR, Mode.CR)
    snapshot = queue(*claims, BEGUN)
    decision = decide(snapshot, snapshot.contenders[2])
    assert decision == upgrading()
    decided = queue(*claims, decision)
    assert decide(decided, decided.contenders[2]) == decided.contenders[1]


def test_what_an_upgrade_has_left_behind_that_could_not_take_it_back_is_gone_on_with() -> None:
    snapshot = queue(upgrading((2, 2)), Mode.PR, Mode.PR)
    assert decide(snapshot, snapshot.contenders[0]) == snapshot.contenders[1]
    exclusive = queue(Convertible(Mode.EX), Mode.PR)
    assert decide(exclusive, exclusive.contenders[0]) == Convertible(Mode.EX)


def test_what_is_published_is_read_again() -> None:
    for claim in (
        Convertible(Mode.PR),
        Convertible(Mode.PR),
        Convertible(Mode.CR, Mode.EX),
        Convertible(Mode.CR, Mode.EX, ()),
        Convertible(Mode.CR, Mode.EX, ((1, 2), (2**62, 2**62))),
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
