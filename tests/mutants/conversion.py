"""Mistakes in converting grants, and in what those behind them make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from coordlock_memory import MemoryBackend

import coordlock.kernel.acquisition
import coordlock.model.admission
import coordlock.model.conversion
from coordlock.backend import Departure
from coordlock.locks.upgradeable import _UpgradeableGrant
from coordlock.model.admission import blockers
from coordlock.model.claim import Convertible, Mode
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, resolved
from tests.mutants.mutant import SUITES, Changes, mutant
from tests.simulation.converting import ConvertingReaders


@mutant(
    "An upgrade waits for those alone that came before, and takes the lock from later readers.",
    simulated=(ConvertingReaders,),
)
def converts_without_looking_behind() -> Changes:
    return [(coordlock.model.conversion, "holders", lambda _: frozenset())]


@mutant("A reader is let in while an upgrade is being done.", simulated=(ConvertingReaders,))
def lets_in_those_whom_a_target_keeps_out() -> Changes:
    def by_mode_alone(self: Convertible, mode: Mode, _order: int) -> bool:
        return self.mode.conflicts(mode)

    return [(Convertible, "excludes", by_mode_alone)]


@mutant(
    "Readers that hold the lock already wait for the upgrade that waits for them.",
    simulated=(ConvertingReaders,),
)
def lets_nobody_go_first() -> Changes:
    return [(Convertible, "lets_pass", lambda *_: False)]


@mutant("Two upgradeable locks are held at once.", simulated=(ConvertingReaders,))
def shares_upgradeable_locks() -> Changes:
    keeps_out = coordlock.model.admission.keeps_out

    def shares(other: Contender, me: Contender) -> bool:
        if isinstance(me.claim, Convertible):
            me = replace(me, claim=me.claim.mode)
        return keeps_out(other, me)

    return [(coordlock.model.admission, "keeps_out", shares)]


@mutant("A grant counts as stronger before the service knows.", simulated=(ConvertingReaders,))
def counts_as_stronger_too_early() -> Changes:
    upgrade = _UpgradeableGrant._become_exclusive

    def upgrade_early(self: _UpgradeableGrant) -> Steps[None]:
        self._mode = Mode.EX
        try:
            yield from upgrade(self)
        except BaseException:
            self._mode = Mode.PR
            raise

    return [(_UpgradeableGrant, "_become_exclusive", upgrade_early)]


@mutant(
    "A grant counts as strong when it is weaker already.",
    simulated=(ConvertingReaders,),
    rare=True,
)
def counts_as_weaker_too_late() -> Changes:
    def downgrade_late(self: _UpgradeableGrant) -> Steps[None]:
        yield self._publish(Convertible(Mode.PR))
        self._mode = Mode.PR

    return [(_UpgradeableGrant, "_downgraded", downgrade_late)]


@mutant(
    "An upgrade that was given up keeps readers out.",
    SUITES + "TestConversionOnMemory"
    "::test_a_conversion_that_times_out_leaves_the_grant_and_keeps_nobody_out",
)
def never_takes_a_conversion_back() -> Changes:
    publish = _UpgradeableGrant._publish

    def left_as_it_is(self: _UpgradeableGrant, claim: Convertible | None = None) -> Promise[None]:
        mine = self._mine().claim
        if claim is None and isinstance(mine, Convertible) and mine.target is not None:
            return resolved(None)
        return publish(self, claim)

    return [(_UpgradeableGrant, "_publish", left_as_it_is)]


@mutant(
    "A waiter is granted the lock when the one before it becomes stronger.",
    simulated=(ConvertingReaders,),
)
def takes_a_change_for_a_departure() -> Changes:
    def after(
        queues: Sequence[Snapshot], mine: Sequence[Contender], departures: Mapping[Contender, Any]
    ) -> tuple[Snapshot, ...] | None:
        left = tuple(queue.without(departures) for queue in queues)
        pairs = list(zip(left, mine, strict=True))
        return None if any(queue.omitted or blockers(queue, me) for queue, me in pairs) else left

    return [(coordlock.kernel.acquisition, "after", after)]


@mutant(
    "Nobody is let in by a downgrade before the release.",
    simulated=(ConvertingReaders,),
    rare=True,
)
def hears_of_departures_alone() -> Changes:
    def watch(
        self: MemoryBackend,
        one: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        return whole(self, one, revision, on_departure, waiters=() if changes else waiters)

    whole = MemoryBackend.watch
    return [(MemoryBackend, "watch", watch)]
