"""A run as its events tell it, put in order for the checkers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final

from coordlock_faults.attempt import Attempt, Told
from coordlock_faults.call import Call
from coordlock_faults.events import (
    AcquireFailed,
    AcquireInvoked,
    Act,
    Called,
    ContenderAppeared,
    ContenderDisappeared,
    Enqueued,
    Event,
    FaultBegan,
    FaultHealed,
    FinalSet,
    FinalValue,
    Granted,
    LossSignalled,
    OperationAccepted,
    OperationFailed,
    OperationOffered,
    OperationRefused,
    Present,
    Quiesced,
    Raised,
    ReleaseAcknowledged,
    ReleaseFailed,
    ReleaseSent,
    Returned,
    RunBegan,
    RunEnded,
    Shown,
    Surveyed,
    Withdrawn,
)
from coordlock_faults.fault import Fault, Faults
from coordlock_faults.operation import Operation, Resource
from coordlock_faults.times import RevisionTimes
from coordlock_faults.truth import Life, Truth

__all__ = ["History"]


class History:
    """All events of a run, and what they say of each attempt, operation, fault and contender.

    Attributes:
        events: all, in the order of time.
        torn: whose last lines were not whole.
        attempts: every call of acquire, by its name, in the order of the calls.
        resources: every resource with the operations on it, by its name.
        calls: every other call, by its name, in the order of the calls.
        presents: the states after quiescence, by what they are of.
        faults: what the nemesis did.
        truth: what the service says.
        counts: of what can leak, in the order of time.
        began, quiesced, ended: the run's own events, where they are.
        strays: events that do not fit to the others, and why.
    """

    def __init__(self, events: Iterable[Event], torn: Sequence[str] = ()) -> None:
        self.events: Final = tuple(sorted(events, key=lambda one: one.at))
        self.torn: Final = tuple(torn)
        self.attempts: Final[dict[str, Attempt]] = {}
        self.resources: Final[dict[str, Resource]] = {}
        self.calls: Final[dict[str, Call]] = {}
        self.presents: Final[dict[str, Present]] = {}
        self.strays: Final[list[tuple[Event, str]]] = []
        self.began: RunBegan | None = None
        self.quiesced: Quiesced | None = None
        self.ended: RunEnded | None = None
        self._operations: dict[str, Operation] = {}
        self._faults: dict[str, Fault] = {}
        self._appearances: list[ContenderAppeared] = []
        self._disappearances: list[ContenderDisappeared] = []
        self._surveyed: Surveyed | None = None
        takers = self._takers()
        for event in self.events:
            takers[type(event)](event)
        self.faults: Final = Faults(self._faults.values())
        self.truth: Final = Truth(self._appearances, self._disappearances, self._surveyed)
        self.strays.extend(
            (one, "the service's record contradicts it") for one in self.truth.strays
        )
        #: The names of all client processes.
        self.clients: Final = frozenset(one.process for one in self.attempts.values())
        for attempt in self.attempts.values():
            attempt.killed = self.faults.kill(attempt.process)
        for call in self.calls.values():
            call.killed = self.faults.kill(call.process)

    @property
    def origin(self) -> int:
        """The first moment."""
        return self.events[0].at if self.events else 0

    @property
    def end(self) -> int:
        """The last moment."""
        return self.events[-1].at if self.events else 0

    @property
    def has_truth(self) -> bool:
        """Whether the ground truth was promised."""
        return self.began is not None and self.began.truth

    @property
    def granted(self) -> list[Attempt]:
        """The attempts that were granted."""
        return [one for one in self.attempts.values() if one.granted is not None]

    @cached_property
    def times(self) -> RevisionTimes:
        """When the service's revisions were made, as far as that can be proven."""
        return RevisionTimes(self.truth, self.attempts.values())

    @property
    def locks(self) -> dict[str, list[Attempt]]:
        """The attempts by lock."""
        locks: dict[str, list[Attempt]] = {}
        for attempt in self.attempts.values():
            locks.setdefault(attempt.lock, []).append(attempt)
        return locks

    def called(self, *acts: Act) -> list[Call]:
        """The calls of these kinds."""
        return [one for one in self.calls.values() if one.act in acts]

    def life(self, attempt: Attempt) -> Life | None:
        """The contender of ``attempt`` in the service, where its token is known."""
        return self.truth.find(attempt.lock, attempt.token)

    def eviction(self, attempt: Attempt, until: int) -> Fault | None:
        """An operator's act that may have removed the contender of ``attempt`` before ``until``.

        It names the contender, its session or its lock. Where there is ground truth, the contender
        was removed, and perhaps in the time of the act.
        """
        life = self.life(attempt)
        names = (attempt.lock,) if life is None else life.names
        acts = self.faults.acts(names, attempt.invoked.at, until)
        if life is not None:
            if life.disappeared is None:
                return None
            earliest, latest = self.times.not_before(life.gone), self.times.not_after(life.gone)
            acts = (one for one in acts if one.meets(earliest, latest))
        return next(acts, None)

    def eviction_of_set(self, attempt: Attempt, until: int) -> Fault | None:
        """The same of any contender of its set, which is lost together."""
        same = self._sets.get(attempt.invoked.together, (attempt,))
        return next((act for one in same if (act := self.eviction(one, until))), None)

    @cached_property
    def _sets(self) -> dict[str, list[Attempt]]:
        """The attempts that asked for several locks together."""
        sets: dict[str, list[Attempt]] = {}
        for attempt in self.attempts.values():
            if attempt.invoked.together:
                sets.setdefault(attempt.invoked.together, []).append(attempt)
        return sets

    def _takers(self) -> dict[type[Event], Callable[[Any], None]]:
        told = (
            Enqueued,
            Granted,
            AcquireFailed,
            Withdrawn,
            ReleaseSent,
            ReleaseAcknowledged,
            ReleaseFailed,
            LossSignalled,
        )
        answers = OperationAccepted, OperationRefused, OperationFailed
        return {
            RunBegan: self._begin,
            Quiesced: self._quiesce,
            RunEnded: self._end,
            AcquireInvoked: self._invoke,
            **dict.fromkeys(told, self._tell),
            OperationOffered: self._offer,
            **dict.fromkeys(answers, self._answer),
            FinalSet: self._finish,
            FinalValue: self._finish,
            Called: self._call,
            **dict.fromkeys((Returned, Raised, Shown), self._tell_call),
            Present: self._present,
            FaultBegan: self._break,
            FaultHealed: self._heal,
            ContenderAppeared: self._appearances.append,
            ContenderDisappeared: self._disappearances.append,
            Surveyed: self._survey,
        }

    def _stray(self, event: Event, why: str) -> None:
        self.strays.append((event, why))

    def _begin(self, event: RunBegan) -> None:
        if self.began is not None:
            self._stray(event, "the run had begun")
        self.began = event

    def _quiesce(self, event: Quiesced) -> None:
        if self.quiesced is not None:
            self._stray(event, "the run had quiesced")
        self.quiesced = event

    def _end(self, event: RunEnded) -> None:
        if self.ended is not None:
            self._stray(event, "the run had ended")
        self.ended = event

    def _invoke(self, event: AcquireInvoked) -> None:
        if event.attempt in self.attempts:
            self._stray(event, "there was an attempt of this name")
        self.attempts[event.attempt] = Attempt(event)

    def _tell(self, event: Told) -> None:
        attempt = self.attempts.get(event.attempt)
        if attempt is None:
            self._stray(event, "the attempt was not invoked before")
        elif not attempt.take(event):
            self._stray(event, "it does not follow from what the attempt's process told before")

    def _offer(self, event: OperationOffered) -> None:
        if event.operation in self._operations:
            self._stray(event, "there was an operation of this name")
        operation = self._operations[event.operation] = Operation(event)
        self._resource(event.resource).operations.append(operation)

    def _answer(self, event: OperationAccepted | OperationRefused | OperationFailed) -> None:
        operation = self._operations.get(event.operation)
        if operation is None:
            self._stray(event, "the operation was not offered before")
        elif not operation.take(event):
            self._stray(event, "the operation's outcome was told otherwise")

    def _finish(self, event: FinalSet | FinalValue) -> None:
        resource = self._resource(event.resource)
        if isinstance(event, FinalSet):
            resource.final_sets.append(event)
        else:
            if resource.final_value is not None:
                self._stray(event, "the final value was told before")
            resource.final_value = event

    def _resource(self, name: str) -> Resource:
        return self.resources.setdefault(name, Resource(name))

    def _call(self, event: Called) -> None:
        if event.call in self.calls:
            self._stray(event, "there was a call of this name")
        self.calls[event.call] = Call(event)

    def _tell_call(self, event: Returned | Raised | Shown) -> None:
        call = self.calls.get(event.call)
        if call is None:
            self._stray(event, "the call was not made before")
        elif not call.take(event):
            self._stray(event, "it does not follow from what was told of the call before")

    def _present(self, event: Present) -> None:
        if event.of in self.presents:
            self._stray(event, "the state was told before")
        self.presents[event.of] = event

    def _break(self, event: FaultBegan) -> None:
        if event.fault in self._faults:
            self._stray(event, "there was a fault of this name")
        self._faults[event.fault] = Fault(event)

    def _heal(self, event: FaultHealed) -> None:
        fault = self._faults.get(event.fault)
        if fault is None or fault.healed is not None:
            self._stray(event, "no such fault was there")
        else:
            fault.healed = event

    def _survey(self, event: Surveyed) -> None:
        self._surveyed = event
