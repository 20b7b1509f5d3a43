"""Completeness: whether a history tells enough for the other checkers to say something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import (
    AcquireInvoked,
    Act,
    Called,
    Event,
    Kind,
    OperationOffered,
    Reach,
)
from coordlock_faults.fault import Fault
from coordlock_faults.history import History
from coordlock_faults.violation import Violation, together

__all__ = ["Incomplete", "completeness"]


@dataclass(frozen=True, slots=True)
class Incomplete(Violation):
    """Something is not in the history that must be, or does not fit."""


def completeness(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """A history in which something is missing proves nothing, so that is a violation.

    * The run begins, quiesces and ends, once each and in this order; something was granted.
    * Every event follows from others as `coordlock_faults.events` has it, and is whole.
    * No process acquires or releases after it was seen dead.
    * Every fault is healed before the run quiesces, and none begins after that; nor does an
      attempt, an operation, or a call of a client that changes something.
    * Ground truth that was promised is surveyed after that.
    * The outcome of every operation is told, by the client or by the resource; of every other
      call, by the client.
    * A resource with adds tells its final state after that, and so does all that is observed.

    Of a process that was killed, the last line may be missing, and what came of an operation.
    """
    return list(islice(_missing(history), bounds.findings))


def _missing(history: History) -> Iterator[Incomplete]:
    for event, why in history.strays:
        yield Incomplete(f"an event that does not fit: {why}", (event,))
    for writer in history.torn:
        if history.faults.kill(writer) is None:
            yield Incomplete(f"the last line of {writer} is not whole, and nobody killed it", ())
    stages: tuple[tuple[str, Event | None], ...] = (
        ("begins", history.began),
        ("quiesces", history.quiesced),
        ("ends", history.ended),
    )
    for stage, found in stages:
        if found is None:
            yield Incomplete(f"the run never {stage}", ())
    if history.began and history.began.at > history.origin:
        yield Incomplete("something happened before the run began", (history.events[0],))
    if history.ended and history.ended.at < history.end:
        yield Incomplete("something happened after the run ended", (history.events[-1],))
    if not history.granted:
        yield Incomplete("nothing was granted", ())
    yield from _undead(history)
    yield from _untold(history)
    if history.quiesced is not None:
        yield from _after(history, history.quiesced)


def _undead(history: History) -> Iterator[Incomplete]:
    """Whose name is used again seems dead, and nothing would be asked of it any more."""
    dead: dict[str, Fault] = {}
    for fault in history.faults:
        if fault.began.reach is Reach.KILLED:
            for target in fault.began.targets:
                dead.setdefault(target, fault)
    for attempt in history.attempts.values():
        killed = dead.get(attempt.process)
        for event in attempt.events if killed else ():
            if killed and event.at > killed.ends:
                what = f"{attempt.process} was dead and goes on"
                yield Incomplete(what, together(killed, event))


def _untold(history: History) -> Iterator[Incomplete]:
    """A client that doesn't say what was acknowledged has nothing to lose."""
    for resource in history.resources.values():
        for one in resource.operations:
            told = one.accepted or one.refused or one.failed
            if told is None and history.faults.kill(one.offered.process) is None:
                yield Incomplete("what came of an operation is not told", one.events)
    for call in history.calls.values():
        if call.answer is None and call.killed is None:
            yield Incomplete("what came of a call is not told", call.events)


def _after(history: History, quiesced: Event) -> Iterator[Incomplete]:
    for fault in history.faults:
        if fault.ends > quiesced.at:
            yield Incomplete("a fault was not healed in time", together(fault, quiesced))
    for event in history.events:
        begins = isinstance(event, AcquireInvoked | OperationOffered) or (
            isinstance(event, Called)
            and event.act not in (Act.OBSERVE, Act.READ)
            and event.process in history.clients
        )
        if begins and event.at > quiesced.at:
            yield Incomplete("something was begun after quiescence", (quiesced, event))
    if history.has_truth:
        surveyed = history.truth.surveyed
        if surveyed is None or surveyed.at < quiesced.at:
            yield Incomplete("the ground truth was not surveyed", together(quiesced, surveyed))
    for resource in history.resources.values():
        final = together(resource.final_sets, resource.final_value)
        adds = [one for one in resource.operations if one.offered.kind is Kind.ADD]
        if adds and not final:
            yield Incomplete(f"the final state of {resource.name} is not told", ())
        early = [event for event in final if event.at < quiesced.at]
        if early:
            what = f"the final state of {resource.name} was told before quiescence"
            yield Incomplete(what, (early[0], quiesced))
    for of in sorted({one.of for one in history.called(Act.OBSERVE, Act.PUT)}):
        present = history.presents.get(of)
        if present is None or present.at < quiesced.at:
            yield Incomplete(f"the final state of {of} is not told", together(present))
