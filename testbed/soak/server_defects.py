"""Violations that are the server's own: a defect of it that is known.

They are recorded apart, by one rule for each, so that no invariant has to be weaker for them.

etcd: a leader that was paused and goes on, deposed meanwhile, revokes leases whose time had run out
on its own clock, though the new leader has kept them alive
(https://github.com/etcd-io/etcd/issues/12528, https://github.com/etcd-io/etcd/issues/15247). From
3.4.31 and 3.5.13 on it asks first whether it still leads, but not where its clock has just ticked,
as it does when it goes on; seen with 3.5.30.

ZooKeeper 3.8.0 may lose transactions when leaders change (ZOOKEEPER-4785, mended in 3.8.4), and
lets members keep contenders that the new leader doesn't have (ZOOKEEPER-5010). So members were seen
to show, for as long as their sessions lived, contenders that nobody had been told of, with
sequences that the next leader gave out again. By the rules of the queue all others overtake them,
unless they ask a member that shows them: then they wait, and the run has no verdict (see
`Observer.contradiction`).
"""

from __future__ import annotations

from typing import Final

from coordlock_faults.events import ContenderAppeared, ReleaseAcknowledged
from coordlock_faults.exclusion import HeldTogether
from coordlock_faults.fifo import NeverFirst, Overtaken, fifo
from coordlock_faults.history import History
from coordlock_faults.loss import EarlyRemoval
from coordlock_faults.release import FalselyLost
from coordlock_faults.truth import Life
from coordlock_faults.violation import Violation
from coordlock_zookeeper.nodes import sequence_of

__all__ = ["is_the_servers"]

#: How long after it goes on a deposed leader may still revoke, in nanoseconds.
_AFTERMATH: Final = 1_000_000_000
_PAUSE: Final = "pause-leader"
#: The bits of a transaction below its leader's epoch.
_EPOCH: Final = 32


def is_the_servers(history: History, violation: Violation) -> bool:
    """Whether ``violation`` is of the kind, and shows the traces, of one of these defects."""
    if isinstance(violation, Overtaken | NeverFirst):
        return _overtakes_phantoms(history, violation)
    if not isinstance(violation, EarlyRemoval | FalselyLost | HeldTogether):
        return False
    if history.began is None or history.began.backend != "etcd":
        return False
    revoked = _revoked(history)
    attempts = {getattr(event, "attempt", None) for event in violation.events}
    involved = [one for one in history.granted if one.name in attempts]
    if not isinstance(violation, EarlyRemoval | FalselyLost):
        # Whoever came last has done nothing but to be granted.
        involved = sorted(involved, key=lambda one: one.token or 0)[:-1]
    return any(one.name in revoked for one in involved)


def _overtakes_phantoms(history: History, violation: Violation) -> bool:
    """Whether nobody is overtaken but contenders of which a later leader did not know.

    So without them nothing is wrong with who overtook them.
    """
    overtaker = _overtaker(violation)
    phantoms = _phantoms(history, overtaker >> _EPOCH)
    if not phantoms:
        return False
    others = History([one for one in history.events if getattr(one, "key", None) not in phantoms])
    still = {(type(one), _overtaker(one)) for one in fifo(others)}
    return (type(violation), overtaker) not in still


def _phantoms(history: History, epoch: int) -> set[str]:
    """The keys of contenders that the leader of ``epoch`` did not know, of leaders before it.

    While they were there their sequence, or an earlier one, was given out once more, by that leader
    or one before it: a queue counts upwards for as long as it has contenders. Nobody was granted by
    one of them.
    """
    granted = {one.token for one in history.granted}
    queues: dict[str, list[tuple[int, Life]]] = {}
    for life in history.truth.lives:
        if (sequence := sequence_of(life.appeared.key)) is not None:  # else another service's
            queues.setdefault(life.appeared.lock, []).append((sequence, life))
    return {
        life.appeared.key
        for queue in queues.values()
        for sequence, life in queue
        if life.appeared.token not in granted
        and any(
            again <= sequence
            and life.appeared.token >> _EPOCH < later.appeared.token >> _EPOCH <= epoch
            and later.appeared.revision < life.gone
            for again, later in queue
        )
    }


def _overtaker(violation: Violation) -> int:
    """The token of who came last, and was granted."""
    appeared = (one.token for one in violation.events if isinstance(one, ContenderAppeared))
    return max(appeared, default=0)


def _revoked(history: History) -> set[str]:
    """The attempts whose contenders went before their time, just after a paused leader went on."""
    resumed = [fault.ends for fault in history.faults if fault.began.kind == _PAUSE]
    revoked: set[str] = set()
    for attempt in history.granted:
        life = history.life(attempt)
        if life is None or life.disappeared is None:
            continue
        told = (attempt.granted, attempt.lost)
        # By whoever was told first: the observer is a client, too, and may be late.
        gone = min(one.at for one in (life.disappeared, attempt.lost) if one is not None)
        deadline = max((one.deadline or 0 for one in told if one is not None), default=0)
        sent, answer = attempt.release_sent, attempt.release_answer
        found_nothing = isinstance(answer, ReleaseAcknowledged) and not answer.held
        released = sent is not None and sent.at < gone and not found_nothing
        evicted = history.eviction(attempt, gone)
        just_after = any(at <= gone <= at + _AFTERMATH for at in resumed)
        if just_after and gone < deadline and not released and not evicted:
            revoked.add(attempt.name)
    return revoked
