"""What a client watches on PostgreSQL, without a server."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from coordlock_memory import VirtualTime, VirtualTimers
from coordlock_postgresql.watches import Watches

from coordlock.errors import BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Owner
from coordlock.runtime.promise import Promise, resolved


def test_a_look_that_fails_is_repeated_after_a_pause() -> None:
    time = VirtualTime()
    looks: list[Promise[Sequence[Sequence[object]]]] = []

    def ask(_: Sequence[Contender], __: Mapping[str, int]) -> Promise[Sequence[Sequence[object]]]:
        looks.append(Promise())
        return looks[-1]

    watches = Watches(ask, lambda _: False, lambda: False, VirtualTimers(time), threading.RLock())
    other = Contender("i", "a/i", Mode.EX, 1, 1, "other-1", Owner("x", 1))
    watches.attend([other])
    for _ in range(3):
        count = len(looks)
        looks[-1].fail(BackendUnavailable("postgresql", "it is away"))
        assert len(looks) == count
        time.advance(1)
        assert len(looks) == count + 1
    looks[-1].resolve([])


def test_a_session_is_looked_at_from_time_to_time_and_ones_own_never() -> None:
    time = VirtualTime()
    looks: list[list[str]] = []

    def ask(
        contenders: Sequence[Contender], _: Mapping[str, int]
    ) -> Promise[Sequence[Sequence[object]]]:
        looks.append([each.session for each in contenders])
        assert len(looks) < 10
        found = [(each.id, each.token, each.version, each.session, 0, 60.0) for each in contenders]
        return resolved(found)

    is_own = "own-1".__eq__
    watches = Watches(ask, is_own, lambda: False, VirtualTimers(time), threading.RLock())
    owner = Owner("x", 1)
    own = Contender("j", "a/j", Mode.EX, 2, 2, "own-1", owner)
    watches.set_live(True)
    watches.attend([Contender("i", "a/i", Mode.EX, 1, 1, "other-1", owner), own])
    assert looks == [["other-1"]]
    time.advance(20)
    assert looks == [["other-1"]] * len(looks)
    assert 3 < len(looks) < 10
