"""What is in the way in a queue, read as little as possible."""

from __future__ import annotations

from pathlib import Path

import pytest
from coordlock_local.contenders import Contenders
from coordlock_local.counter import check
from coordlock_local.directory import Directory
from coordlock_local.session import LocalSession
from coordlock_local.slots import Slots
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordlock.model.admission import blockers
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner

OWNER = Owner("here", 1)


def session(path: Path) -> Contenders:
    path.chmod(0o700)
    directory = Directory.prepare(str(path))
    check(directory)
    started = LocalSession(directory)
    started.start()
    return Contenders(started)


def entry(number: int, mode: Mode) -> Entry:
    return Entry("q", f"{number:032x}", mode, OWNER)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(list(Mode)), st.booleans()), max_size=25)
)
def test_what_conflicts_is_listed_however_often_the_rest_was_seen(
    tmp_path: Path, steps: list[tuple[int, Mode, bool]]
) -> None:
    sessions = [session(tmp_path) for _ in range(2)]
    made: list[tuple[int, Entry]] = []
    try:
        for number, (who, mode, leaves) in enumerate(steps):
            if leaves and made:
                owner, old = made.pop(number % len(made))
                assert sessions[owner].remove(old.id)
            new = entry(number, mode)
            [snapshot] = sessions[who].add([new], unless_blocked=False)
            made.append((who, new))
            me = snapshot.contenders[-1]
            every = sessions[who].queue("q").snapshot(owners=True)
            assert [one.id for one in every.contenders] == [one.id for _, one in made]
            found = sessions[who].queue("q").snapshot(me, conflicting=True)
            *ahead, last = found.contenders
            assert last == me
            assert found.omitted == 0
            wanted = [one for one in every.before(me) if mode.conflicts(one.claim)]  # type: ignore[arg-type]
            assert [one.key for one in ahead] == [one.key for one in wanted]
            assert [one.key for one in blockers(found, me)] == [one.key for one in wanted[-1:]]
    finally:
        for one in sessions:
            one.end()


def test_who_shares_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many, one = session(tmp_path), session(tmp_path)
    many.add([entry(0, Mode.EX)], unless_blocked=False)
    for number in range(1, 100):
        many.add([entry(number, Mode.CW)], unless_blocked=False)
    [snapshot] = one.add([entry(100, Mode.CW)], unless_blocked=False)
    me = snapshot.contenders[-1]
    queue = one.queue("q")
    assert len(queue.snapshot(me, conflicting=True).contenders) == 2
    read: list[int] = []
    contender = Slots.contender

    def count(slots: Slots, slot: int, token: int, **options: bool) -> object:
        read.append(slot)
        return contender(slots, slot, token, **options)

    monkeypatch.setattr(Slots, "contender", count)
    assert len(queue.snapshot(me, conflicting=True).contenders) == 2
    assert read == [0]
    many.end()
    one.end()
