"""What release says of a hold: whether it was still held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.attempt import Attempt
from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import FOREVER, Reach, ReleaseAcknowledged, ReleaseSent
from coordlock_faults.history import History
from coordlock_faults.violation import Violation, together

__all__ = ["FalselyHeld", "FalselyLost", "release"]

#: What may come between a client and the service's answer.
_SILENCING = (Reach.SERVERS, Reach.NETWORK, Reach.PAUSED)


@dataclass(frozen=True, slots=True)
class FalselyHeld(Violation):
    """Release said that the lock was still held, and it was not."""


@dataclass(frozen=True, slots=True)
class FalselyLost(Violation):
    """Release said that the lock was not held any more, and nothing had ended the hold."""


def release(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """What release answers is true.

    It says "held" neither after the loss was signalled nor, by the ground truth, when the contender
    was gone before it was called:

    * for more than ``bounds.notice``, because by then the holder knows;
    * at all, if the service has answered: release returned before its patience was over, and for
      ``bounds.notice`` there was no fault that could have lost a first answer. Else it says what
      the client thought.

    It says "not held" only if the loss was signalled before, or an operator has removed the
    contender or another one of its set, or the local deadline, as it was known when the lock was
    granted, had passed when it returned. No fault of the network excuses more: the service keeps
    the contender until then. Nor does one of servers where there is ground truth: what the service
    removed earlier is for `loss` to tell.
    """
    found = (
        violation
        for attempt in history.granted
        if attempt.release_sent is not None
        and isinstance(answer := attempt.release_answer, ReleaseAcknowledged)
        for check in (_falsely_held if answer.held else _falsely_lost,)
        for violation in check(history, bounds, attempt, attempt.release_sent, answer)
    )
    return list(islice(found, bounds.findings))


def _falsely_held(
    history: History,
    bounds: Bounds,
    attempt: Attempt,
    sent: ReleaseSent,
    answer: ReleaseAcknowledged,
) -> Iterator[Violation]:
    who = f"{attempt.process} was told that it still held {attempt.lock} (token {attempt.token})"
    if attempt.lost is not None and attempt.lost.at < sent.at:
        yield FalselyHeld(f"{who}, after its loss was signalled", attempt.events)
        return
    life = history.life(attempt)
    if life is None or life.disappeared is None:
        return
    gone = history.times.not_after(life.gone)
    known = history.faults.running(attempt.process, gone + bounds.notice, bounds.signal)
    asked = sent.patience is not None and answer.at < sent.at + sent.patience
    silenced = any(
        one.began.reach in _SILENCING and one.meets(sent.at - bounds.notice, answer.at)
        for one in history.faults
    )
    if sent.at > known + bounds.signal or (sent.at > gone and asked and not silenced):
        ago = (sent.at - gone) / 1e6
        what = f"{who}, and its contender had gone {ago:.3f} ms or more before"
        yield FalselyHeld(what, together(attempt, life))


def _falsely_lost(
    history: History,
    bounds: Bounds,
    attempt: Attempt,
    sent: ReleaseSent,
    answer: ReleaseAcknowledged,
) -> Iterator[Violation]:
    assert attempt.granted is not None
    deadline = attempt.granted.deadline
    if attempt.lost is not None or (deadline is not None and deadline <= answer.at):
        return
    life = history.life(attempt)
    if life is None:
        # Only the ground truth tells whose contender an operator's act names, and whether a server
        # that was killed still has it.
        removing = (Reach.OPERATOR, Reach.DATA, Reach.SERVERS)
        acts = (one for one in history.faults if one.began.reach in removing)
        if any(one.meets(attempt.invoked.at, answer.at) for one in acts):
            return
    elif life.gone != FOREVER and history.times.not_after(life.gone) < sent.at:
        return
    if not history.eviction_of_set(attempt, answer.at):
        what = (
            f"{attempt.process} was told that it did not hold {attempt.lock} (token "
            f"{attempt.token}) any more, and nothing had ended its hold"
        )
        yield FalselyLost(what, together(attempt, life))
