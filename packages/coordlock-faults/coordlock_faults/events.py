"""What happens in a run with faults: the events, their writers, and exactly when each is written.

Every event has ``at``, nanoseconds on the machine's CLOCK_MONOTONIC, and ``process``, the name of
its writer. Names are never used again: a process that is restarted gets a new one.

The checkers take the times literally, so what is claimed of an interval is only as good as its
ends. One rule gives them all: **an action is logged before it is done, and an answer
after it was given.**
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from coordlock.model.claim import Claim

__all__ = [
    "FOREVER",
    "AcquireFailed",
    "AcquireInvoked",
    "Act",
    "Called",
    "ContenderAppeared",
    "ContenderDisappeared",
    "Enqueued",
    "Event",
    "FaultBegan",
    "FaultHealed",
    "FinalSet",
    "FinalValue",
    "Granted",
    "Kind",
    "LossSignalled",
    "OperationAccepted",
    "OperationFailed",
    "OperationOffered",
    "OperationRefused",
    "Present",
    "Quiesced",
    "Raised",
    "Reach",
    "ReleaseAcknowledged",
    "ReleaseFailed",
    "ReleaseSent",
    "Returned",
    "RunBegan",
    "RunEnded",
    "Shown",
    "Surveyed",
    "Withdrawn",
]

#: Later than every time and every revision.
FOREVER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        at: when, in nanoseconds on CLOCK_MONOTONIC.
        process: the one that writes it.
    """

    at: int
    process: str


# The run: written by the program that runs it.


@dataclass(frozen=True, slots=True)
class RunBegan(Event):
    """Before anything else.

    ``truth`` promises the ground truth of every lock, from the service's beginning on; without it
    the checkers have only what clients saw. Leave it out where the service shows none.
    """

    seed: int
    backend: str
    truth: bool
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Quiesced(Event):
    """All faults are healed, everything is answered, and clients begin nothing any more.

    No call waits. A lock that is still held is so until the end; those are the live tickets.
    """


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """After everything else."""


# Clients. ``attempt`` names one call of acquire in the whole run, and the grant that it returns.


@dataclass(frozen=True, slots=True)
class AcquireInvoked(Event):
    """Before ``acquire`` is called.

    A call for several locks at once is one attempt for each, all with the same ``together``, a name
    that no other call has. ``actor`` is the thread or the task that calls: it waits for one call at
    a time, and keeps what it holds meanwhile.
    """

    attempt: str
    lock: str
    claim: Claim
    together: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True)
class Enqueued(Event):
    """After the service has acknowledged the contender, where that can be seen. Optional.

    It makes known the tokens of those that wait or give up, which nothing else does.
    """

    attempt: str
    token: int


@dataclass(frozen=True, slots=True)
class Granted(Event):
    """After ``acquire`` has returned, before anything is done with the grant.

    ``deadline`` is the session's local deadline, on the clock of ``at``; None where it has none.
    """

    attempt: str
    token: int
    deadline: int | None


@dataclass(frozen=True, slots=True)
class AcquireFailed(Event):
    """After ``acquire`` has raised or, for ``try_acquire``, returned None.

    ``error`` is the name of the exception's class, or "busy"; ``detail`` its text.
    """

    attempt: str
    error: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Withdrawn(Event):
    """Before ``acquire`` is cancelled. Not for its own timeout, which is not seen coming."""

    attempt: str


@dataclass(frozen=True, slots=True)
class ReleaseSent(Event):
    """Before ``release`` is called, or the client that holds it closed.

    ``patience`` is how long it waits for the service's answer, in nanoseconds, if that is known.
    """

    attempt: str
    patience: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseAcknowledged(Event):
    """After ``release`` has returned. ``held`` is its answer: whether it was still held.

    It also returns when the service does not answer, so the contender may be there still.
    """

    attempt: str
    held: bool


@dataclass(frozen=True, slots=True)
class ReleaseFailed(Event):
    """After ``release`` has raised. It may have been done, or may be yet."""

    attempt: str
    error: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LossSignalled(Event):
    """As soon as the loss signal was seen set, by a thread that does nothing but wait for it.

    ``deadline`` is the local deadline as it was known then, on the clock of ``at``. Once for each
    attempt, and not for a grant that was released first.
    """

    attempt: str
    reason: str
    deadline: int | None


# The resource: the same ``operation`` may be logged by the client and by the resource, so that
# nothing is missing where one of them dies.


class Kind(Enum):
    """What an operation does."""

    READ = "read"
    ADD = "add"  #: its value is to be in the final set, or to be part of the final sum
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class OperationOffered(Event):
    """Before the operation is sent to the resource, by the client. A mere check is a read.

    Values that are added to one resource differ from each other, unless it keeps their sum.
    """

    operation: str
    resource: str
    attempt: str
    token: int
    shared: bool
    kind: Kind
    value: int | None = None


@dataclass(frozen=True, slots=True)
class OperationAccepted(Event):
    """After the client was told, or after the resource has committed it.

    ``order`` is the resource's own: it grows with every accepted operation, and was assigned in
    the step that accepted it. ``value`` is what a read returned.
    """

    operation: str
    order: int
    value: int | None = None


@dataclass(frozen=True, slots=True)
class OperationRefused(Event):
    """After `StaleToken`. ``newest`` is the token that the fence names. Nothing was done."""

    operation: str
    newest: int


@dataclass(frozen=True, slots=True)
class OperationFailed(Event):
    """After any other error. It may have been done, or may be yet."""

    operation: str
    error: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FinalSet(Event):
    """What the resource holds after quiescence. Several lines make one set: `Journal.final_set`."""

    resource: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FinalValue(Event):
    """The sum that the resource holds after quiescence, of values that were added to 0."""

    resource: str
    value: int


# Elections, groups, values and work queues. ``call`` names one call in the whole run. What is put,
# written or published is a mark: a number that nothing else in the run has.


class Act(Enum):
    """What is called, and which numbers are passed and returned.

    A *state* is that of an election, the token and the mark of the leader; of a group, those of
    each member; of values, the number of each key, its version and its mark.
    """

    PUBLISH = "publish"  #: a mark, by ``attempt``: to campaign, to publish; to join, to update
    OBSERVE = "observe"  #: nothing; `Shown` has each state. It returns when it is given up
    READ = "read"  #: nothing; returns the state
    WRITE = "write"  #: for each key its number, the version that is expected, and the mark
    PUT = "put"  #: the mark, and 1 if the item is delayed, else 0; returns the item's id
    TAKE = "take"  #: nothing; returns the item's id, which attempt at it this is, and the mark
    DONE = "done"  #: the item's id, by ``attempt``, which took it
    NACK = "nack"  #: the same


@dataclass(frozen=True, slots=True)
class Called(Event):
    """Before the call.

    ``of`` is the election's or the group's name, the work queue's, or that of the folder of values.
    ``attempt`` is the term, the membership or the job that it belongs to.
    """

    call: str
    act: Act
    of: str
    attempt: str = ""
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Returned(Event):
    """After the call has returned."""

    call: str
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Raised(Event):
    """After the call has raised. It may have been done, or may be yet, as the error says."""

    call: str
    error: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Shown(Event):
    """After an observer has given the next state."""

    call: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Present(Event):
    """The state after quiescence, as the service tells it; of a work queue the marks that it has.

    After all that the dead have left has gone, and after all observers have had their time.
    """

    of: str
    values: tuple[int, ...]


# The nemesis. ``fault`` names one fault in the whole run.


class Reach(Enum):
    """What a fault touches, and so what may be asked of the lock meanwhile."""

    SERVERS = "servers"
    NETWORK = "network"
    PAUSED = "client paused"
    KILLED = "client killed"  #: a client process is gone for good, whether killed or crashed
    CLOCKS = "wall clocks"  #: and nothing may come of it: all that matters is on CLOCK_MONOTONIC
    OPERATOR = "operator"  #: contenders or sessions are removed by another than their owner
    DATA = "data lost"  #: what was acknowledged is gone, or two servers each have some of it


@dataclass(frozen=True, slots=True)
class FaultBegan(Event):
    """Before the fault is made: before the signal is sent, the link cut, the key deleted.

    ``kind`` is for people and their tables. ``targets`` are names of processes for PAUSED and
    KILLED; locks, contenders' keys or sessions for OPERATOR, where only the ground truth tells
    whose the latter are; free for the others.
    """

    fault: str
    kind: str
    reach: Reach
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FaultHealed(Event):
    """After the fault is over: the signal to go on was sent, the link works, the server answers.

    A fault of one stroke is healed when the stroke was done; one that kills when the process was
    seen dead.
    """

    fault: str


# Ground truth: written by an observer of the service, from its own record. ``at`` is any moment by
# which it had certainly happened, such as that of reading the record; ``revision`` counts the
# service's transactions (etcd's revision, ZooKeeper's zxid). Repeated lines do no harm.


@dataclass(frozen=True, slots=True)
class ContenderAppeared(Event):
    """A contender was created. ``token`` as the service's record gives it, not as clients do."""

    lock: str
    key: str
    token: int
    claim: Claim
    session: str
    revision: int


@dataclass(frozen=True, slots=True)
class ContenderDisappeared(Event):
    """A contender was deleted, by its owner or another."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Surveyed(Event):
    """The ground truth is complete up to ``revision``, which was current after quiescence."""

    revision: int
