"""What convertible contenders publish is in their slots, where it fits there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from coordlock_local import values
from coordlock_local.contenders import Contenders
from coordlock_local.directory import Directory
from coordlock_local.session import LocalSession

from coordlock import connect
from coordlock.model.claim import AnyClaim, Convertible, Mode
from coordlock.model.contender import Contender, Entry, Owner

SHORT = Convertible(Mode.PR)
LONG = Convertible(Mode.PR, Mode.EX, tuple((one, one) for one in range(1, 1000, 2)))


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


def enter(who: Contenders, claim: Convertible = SHORT, label: str = "") -> Contender:
    entry = Entry("q", os.urandom(16).hex(), claim, Owner("host", 1, label), claim.encode())
    [snapshot] = who.add([entry], unless_blocked=False)
    return snapshot.contenders[-1]


def seen(who: Contenders) -> list[tuple[AnyClaim, int]]:
    """The claims in the queue and their versions, as each kind of reading has them."""
    readings = [who.queue("q").snapshot(owners=owners).contenders for owners in (False, True)]
    one, other = ([(each.claim, each.version) for each in reading] for reading in readings)
    assert one == other
    return one


def files(who: Contenders) -> list[str]:
    return os.listdir(who.session.directory.values)


@pytest.mark.parametrize("label", ["", "x" * 3000], ids=["short", "a label that fills the slot"])
def test_each_reading_has_what_was_published_last_however_long(
    both: tuple[Contenders, Contenders], label: str
) -> None:
    one, other = both
    me = enter(one, label=label)
    fits = not label
    assert seen(one) == seen(other) == [(SHORT, 1)]
    for version, claim in enumerate((LONG, SHORT, LONG, SHORT), start=2):
        one.publish(me, claim.encode(), version - 1)
        assert seen(one) == seen(other) == [(claim, version)]
        assert values.version_of(other.session.directory, me) == version
    assert one.remove(me.id)
    assert seen(other) == []
    assert files(one) == []
    if fits:
        enter(one)
        assert files(one) == []


def test_a_contender_that_follows_in_the_slot_does_not_inherit(
    both: tuple[Contenders, Contenders],
) -> None:
    one, other = both
    me = enter(one)
    one.publish(me, Convertible(Mode.EX).encode(), 1)
    one.remove(me.id)
    [snapshot] = other.add([Entry("q", "b" * 32, Mode.CR, Owner("host", 2))], unless_blocked=False)
    assert [(each.claim, each.value) for each in snapshot.contenders] == [(Mode.CR, b"")]
    other.remove("b" * 32)
    later = enter(other)
    assert later.key.partition("@")[2].partition(".")[0] == "0"
    assert seen(one) == [(SHORT, 1)]


def test_a_reading_that_meets_a_write_reads_again(
    both: tuple[Contenders, Contenders], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = both
    me = enter(one)
    one.publish(me, Convertible(Mode.EX).encode(), 1)
    read, torn = os.pread, list[int]()

    def half_written(descriptor: int, length: int, offset: int) -> bytes:
        page = read(descriptor, length, offset)
        if offset == 8192 and len(torn) < 3:
            torn.append(offset)
            page = page[:2050] + b"x" + page[2051:]
        return page

    monkeypatch.setattr(os, "pread", half_written)
    [found] = other.queue("q").snapshot().contenders
    assert (found.claim, found.version) == (Convertible(Mode.EX), 2)
    assert len(torn) == 3


def test_a_convertible_contender_of_an_earlier_state_is_read_from_its_file(
    both: tuple[Contenders, Contenders], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = both
    me = enter(one)
    with (Path(one.session.directory.queues) / "q").open("r+b") as file:
        file.truncate(8192 + 2048)
    values.write(one.session.directory, me.session, me.id, SHORT.encode(), 7)
    assert seen(other) == [(SHORT, 7)]


def test_a_conversion_makes_no_file(tmp_path: Path) -> None:
    url = f"local://{tmp_path / 'state'}"
    with connect(url) as client, client.upgradeable_lock("q").acquire() as grant:
        before = sorted(tmp_path.rglob("*"))
        grant.upgrade()
        grant.downgrade()
        assert sorted(tmp_path.rglob("*")) == before
