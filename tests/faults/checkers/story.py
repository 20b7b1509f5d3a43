"""Histories made by hand: one line for each thing that happens, times in milliseconds."""

from __future__ import annotations

from coordlock_faults.bounds import Bounds
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
    Kind,
    LossSignalled,
    OperationAccepted,
    OperationFailed,
    OperationOffered,
    OperationRefused,
    Present,
    Quiesced,
    Raised,
    Reach,
    ReleaseAcknowledged,
    ReleaseSent,
    Returned,
    RunBegan,
    RunEnded,
    Shown,
    Surveyed,
)
from coordlock_faults.history import History
from coordlock_faults.verdict import judge

from coordlock.model.claim import Claim, Mode

MS = 1_000_000
#: A run of a second: a signal may be 10 ms late, everybody is told and answered within 200 ms.
BOUNDS = Bounds(signal=10 * MS, notice=200 * MS, recovery=200 * MS, idle=100 * MS)
QUIET, END = 900, 1000


class Story:
    """A run that is told event by event. Tokens are the revisions at which contenders appear."""

    def __init__(self, *, truth: bool = True, lock: str = "a") -> None:
        self.events: list[Event] = []
        self.truth = truth
        self.lock = lock
        self.revision = 0
        self._numbers: dict[str, int] = {}

    def history(self) -> History:
        """The events so far, and those of the run around them."""
        run: list[Event] = [
            RunBegan(0, "runner", 7, "etcd", self.truth),
            Quiesced(QUIET * MS, "runner"),
            RunEnded(END * MS, "runner"),
        ]
        if self.truth:
            run.append(Surveyed((QUIET + 1) * MS, "observer", self.revision + 1))
        return History([*self.events, *run])

    def add(self, *events: Event) -> None:
        self.events += events

    def name(self, kind: str) -> str:
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return f"{kind}{self._numbers[kind]}"

    def attempt(
        self,
        process: str,
        token: int | None = None,
        *,
        claim: Claim = Mode.EX,
        invoked: int = 0,
        enqueued: int | None = None,
        granted: int | None = None,
        failed: int | None = None,
        deadline: int | None = None,
        released: int | None = None,
        acked: int | None = None,
        held: bool | None = None,
        patience: int | None = None,
        lost: int | None = None,
        deadline_then: int | None = None,
        gone: int | None = None,
        seen: int | None = None,
    ) -> str:
        """One acquire and what becomes of it.

        ``gone`` is the revision at which it leaves the queue; ``seen`` is when the observer sees
        that, the end by default. A release is acknowledged one millisecond later, and has ``held``
        the lock unless it was ``lost``.
        """
        one = self.name("attempt")
        self.add(AcquireInvoked(invoked * MS, process, one, self.lock, claim))
        if enqueued is not None and token is not None:
            self.add(Enqueued(enqueued * MS, process, one, token))
        if granted is not None and token is not None:
            self.add(Granted(granted * MS, process, one, token, _ns(deadline)))
        if failed is not None:
            self.add(AcquireFailed(failed * MS, process, one, "AcquireTimeout"))
        if released is not None:
            self.add(ReleaseSent(released * MS, process, one, _ns(patience)))
            at = released + 1 if acked is None else acked
            held = lost is None if held is None else held
            self.add(ReleaseAcknowledged(at * MS, process, one, held))
        if lost is not None:
            self.add(LossSignalled(lost * MS, process, one, "expired", _ns(deadline_then)))
        if token is not None and self.truth:
            self.contender(token, gone, claim=claim, seen=seen)
        return one

    def contender(
        self,
        token: int,
        gone: int | None = None,
        *,
        claim: Claim = Mode.EX,
        revision: int | None = None,
        seen: int | None = None,
    ) -> None:
        """A contender in the service's record."""
        key = self.name(f"/{self.lock}/key")
        at = (END if seen is None else seen) * MS
        revision = token if revision is None else revision
        self.add(
            ContenderAppeared(at, "observer", self.lock, key, token, claim, f"s{key}", revision)
        )
        self.revision = max(self.revision, revision, gone or 0)
        if gone is not None:
            self.add(ContenderDisappeared(at, "observer", key, gone))

    def fault(self, reach: Reach, began: int, healed: int | None, *targets: str) -> None:
        one = self.name("fault")
        self.add(FaultBegan(began * MS, "nemesis", one, reach.name.lower(), reach, targets))
        if healed is not None:
            self.add(FaultHealed(healed * MS, "nemesis", one))

    def operation(
        self,
        attempt: str,
        token: int,
        *,
        at: int = 0,
        shared: bool = False,
        kind: Kind = Kind.WRITE,
        value: int | None = None,
        order: int | None = None,
        refused_by: int | None = None,
        failed: bool = False,
        resource: str = "ledger",
    ) -> None:
        """One operation, answered a millisecond later if ``order`` or the refusal is given."""
        one = self.name("operation")
        process = f"of {attempt}"
        self.add(
            OperationOffered(at * MS, process, one, resource, attempt, token, shared, kind, value)
        )
        if order is not None:
            self.add(OperationAccepted((at + 1) * MS, process, one, order))
        if refused_by is not None:
            self.add(OperationRefused((at + 1) * MS, process, one, refused_by))
        if failed:
            self.add(OperationFailed((at + 1) * MS, process, one, "ConnectionError"))

    def call(
        self,
        process: str,
        act: Act,
        *values: int,
        at: int = 0,
        attempt: str = "",
        returned: tuple[int, ...] | None = (),
        raised: str = "",
    ) -> None:
        """A call of an election, a group, values or a work queue, answered a millisecond later.

        With neither an error that is ``raised`` nor anything ``returned``, it is not answered.
        """
        one = self.name("call")
        self.add(Called(at * MS, process, one, act, self.lock, attempt, values))
        if raised:
            self.add(Raised((at + 1) * MS, process, one, raised))
        elif returned is not None:
            self.add(Returned((at + 1) * MS, process, one, returned))

    def observe(self, process: str, *states: tuple[int, ...], closed: int | None = END) -> None:
        """An observer that is shown ``states``, a millisecond after each other."""
        one = self.name("call")
        self.add(Called(0, process, one, Act.OBSERVE, self.lock))
        self.add(*(Shown(at * MS, process, one, shown) for at, shown in enumerate(states, 100)))
        if closed is not None:
            self.add(Returned(closed * MS, process, one))

    def present(self, *values: int) -> None:
        self.add(Present((QUIET + 1) * MS, "runner", self.lock, values))

    def final_set(self, *values: int, resource: str = "ledger") -> None:
        self.add(FinalSet((QUIET + 1) * MS, "runner", resource, values))

    def final_value(self, value: int, resource: str = "ledger") -> None:
        self.add(FinalValue((QUIET + 1) * MS, "runner", resource, value))


def _ns(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * MS


def broken(story: Story, bounds: Bounds = BOUNDS) -> list[str]:
    """What all checkers find, by kind."""
    return sorted(type(one).__name__ for one in judge(story.history(), bounds).all())
