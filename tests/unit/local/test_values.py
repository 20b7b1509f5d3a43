"""What convertible contenders publish."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from coordlock_local import values
from coordlock_local.contenders import Contenders
from coordlock_local.directory import Directory
from coordlock_local.queue import LocalQueue
from coordlock_local.session import LocalSession
from coordlock_local.values import publish

from coordlock.model.claim import AnyClaim, Convertible, Mode
from coordlock.model.contender import Contender, Entry, Owner

SHORT = Convertible(Mode.PR)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Contenders, Contenders]]:
    """Two sessions in one directory."""
    made = []
    for _ in range(2):
        session = LocalSession(Directory.prepare(str(tmp_path / "state")))
        session.start()
        made.append(Contenders(session))
    yield made[0], made[1]
    for one in made:
        one.end()


def enter(who: Contenders) -> Contender:
    entry = Entry("q", os.urandom(16).hex(), SHORT, Owner("host", 1), SHORT.encode())
    [snapshot] = who.add([entry], unless_blocked=False)
    return snapshot.contenders[-1]


def seen(who: Contenders) -> list[tuple[AnyClaim, int]]:
    """The claims in the queue and their versions, as each kind of reading has them."""
    readings = [
        LocalQueue(who.session.directory, "q").snapshot(owners=owners).contenders
        for owners in (False, True)
    ]
    one, other = ([(each.claim, each.version) for each in reading] for reading in readings)
    assert one == other
    return one


def test_a_contender_that_follows_in_the_slot_does_not_inherit(
    both: tuple[Contenders, Contenders],
) -> None:
    one, other = both
    me = enter(one)
    publish(one.session, me, Convertible(Mode.EX).encode(), 1)
    one.remove(me.id)
    [snapshot] = other.add([Entry("q", "b" * 32, Mode.CR, Owner("host", 2))], unless_blocked=False)
    assert [(each.claim, each.value) for each in snapshot.contenders] == [(Mode.CR, b"")]
    other.remove("b" * 32)
    assert os.listdir(one.session.directory.values) == []
    later = enter(other)
    assert later.key.partition("@")[2].partition(".")[0] == "0"
    assert seen(one) == [(SHORT, 1)]


def test_a_reading_with_owners_shows_the_values_of_one_moment(
    both: tuple[Contenders, Contenders], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = [(who, enter(who)) for who in both]
    described, read = values.described, list[Contender]()

    def describe(directory: Directory, contender: Contender) -> Contender:
        found = described(directory, contender)
        if not read:  # both publish after the first value was read
            for who, me in entered:
                publish(who.session, me, SHORT.encode() + b" ", 1)
        read.append(found)
        return found

    monkeypatch.setattr(values, "described", describe)
    snapshot = LocalQueue(both[0].session.directory, "q").snapshot(owners=True)
    assert [each.version for each in snapshot.contenders] == [2, 2]
