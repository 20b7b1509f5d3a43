"""Everything that coordlock raises.

::

    CoordlockError
    ├── ConfigurationError (ValueError)      a URL, file or clock that cannot be used
    ├── InvalidName (ValueError)             a name or a key that no backend could store
    ├── NameConflict (ValueError)            the name is in use: as another kind, or by a client
    ├── WaitError                            a call that waits ended without what it waited for
    │   ├── WaitTimeout (TimeoutError)       the caller's timeout passed
    │   │   ├── AcquireTimeout               others held the lock, or were ahead
    │   │   └── WorkQueueEmpty               no item was ready, or others were faster
    │   ├── WaitCancelled (RuntimeError)     the program cancelled the wait
    │   ├── DeadlockDetected (RuntimeError)  the wait would never have ended
    │   └── Evicted (RuntimeError)           somebody removed the waiting contender
    ├── LockLost (RuntimeError)              a grant ended before it was released
    ├── StaleToken (RuntimeError)            a fence has seen a newer token
    ├── InvalidToken (ValueError)            not a fencing token, nor a sequencer
    ├── WorkQueueFull (RuntimeError)         a work queue holds ``max_depth`` items
    ├── JobNotRun (RuntimeError)             a call did not run the slot of a job
    │   ├── AlreadyDone                      the slot is done
    │   ├── AlreadyFailed                    the slot has failed, or was interrupted
    │   └── AlreadyRunning                   the job is at work elsewhere
    ├── VersionMismatch (RuntimeError)       a key is not at the version that a write expected
    ├── Unsupported (NotImplementedError)    the backend, or the grant, cannot do this
    ├── ClientClosed                         the client was closed, or is a parent's
    └── BackendError                         the service refused, or did not answer
        ├── BackendUnavailable (ConnectionError)            no answer; the outcome may be unknown
        │   └── WaitUnavailable (WaitError, TimeoutError)     the wait ended without an answer
        ├── TooLarge (ValueError)                           a request exceeds a limit of the service
        ├── AuthenticationFailed (PermissionError)          wrong credentials, or missing rights
        └── SessionLost (WaitError, ConnectionError)      the session ended with its contenders

Most are also the built-in exception that fits. Each carries its facts as fields, and pickles.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from typing import Any, Self

__all__ = [
    "AcquireTimeout",
    "AlreadyDone",
    "AlreadyFailed",
    "AlreadyRunning",
    "AuthenticationFailed",
    "BackendError",
    "BackendUnavailable",
    "ClientClosed",
    "ConfigurationError",
    "CoordlockError",
    "DeadlockDetected",
    "Evicted",
    "InvalidName",
    "InvalidToken",
    "JobNotRun",
    "LockLost",
    "NameConflict",
    "SessionLost",
    "StaleToken",
    "TooLarge",
    "Unsupported",
    "VersionMismatch",
    "WaitCancelled",
    "WaitError",
    "WaitTimeout",
    "WaitUnavailable",
    "WorkQueueEmpty",
    "WorkQueueFull",
]


class CoordlockError(Exception):
    """The base of every error that coordlock raises on purpose."""

    def __repr__(self) -> str:
        # One for all, which otherwise would be made for each class at every start.
        if not (fields := getattr(self, "__dataclass_fields__", None)):
            return super().__repr__()
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        return f"{type(self).__qualname__}({shown})"

    @classmethod
    def _rebuild(cls, fields: dict[str, Any]) -> Self:
        error = cls.__new__(cls)
        error.__dict__.update(fields)
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception pickles positional arguments only; the fields are the truth here.
        return type(self)._rebuild, (self.__dict__.copy(),)


@dataclass(eq=False, repr=False)
class ConfigurationError(CoordlockError, ValueError):
    """The configuration cannot be used; the message names the part and what is accepted.

    Also where an extra is not installed, and where a host's clock names a slot in the future.
    """

    problem: str

    def __str__(self) -> str:
        return self.problem

    @classmethod
    def missing(cls, problem: str, extra: str) -> Self:
        """The error for an ``extra`` that is not installed, with the command that installs it."""
        return cls(f"{problem}; install it with: pip install 'coordlock[{extra}]'")


@dataclass(eq=False, repr=False)
class InvalidName(CoordlockError, ValueError):
    """A name of a lock, or a key of a value (``what``), that no backend could store."""

    name: str
    problem: str
    what: str = "lock name"

    def __str__(self) -> str:
        shown = self.name if len(self.name) <= 40 else self.name[:40] + "…"
        return f"{self.what} {shown!r} {self.problem}"


@dataclass(eq=False, repr=False)
class NameConflict(CoordlockError, ValueError):
    """The name is in use as another kind, or with other permits, parties or counts.

    ``holder`` describes the client that uses it; empty if unknown. Also where a record can't be
    deleted, because a client uses it.
    """

    name: str
    wanted: str
    found: str
    holder: str
    #: Replaces the text about kinds.
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        by = f" (by {self.holder})" if self.holder else ""
        return (
            f"{self.name!r} is in use as {self.found}{by}, so it can't be {self.wanted}: all "
            "clients must use a name as the same kind"
        )


#: What did not happen to what was waited for, by its kind; of locks of all kinds, the default.
_IN_VAIN = {
    "barrier": "was not passed",
    "double barrier": "was not passed",
    "election": "was not won",
    "gate": "did not open",
    "group": "was not joined",
    "latch": "did not open",
    "work queue": "had nothing to take",
}


class WaitError(CoordlockError):
    """The base of the errors of calls that wait: the wait ended without success.

    These calls wait: ``acquire``, ``upgrade``, ``campaign``, ``join``, ``take``, ``wait``,
    ``enter``, ``leave`` and ``next``. ``kind`` says what the call waited for, such as ``"lock"``,
    ``"semaphore"``, ``"election"`` or ``"work queue"``.

    Waiting longer, calling again or answering "try later" can help. Errors that a retry cannot
    mend, such as `NameConflict`, are not of this class.
    """

    kind: str = "lock"


@dataclass(eq=False, repr=False)
class WaitTimeout(WaitError, TimeoutError):
    """The caller's timeout passed before the wait succeeded.

    ``kind`` and ``name`` say what the call waited for, and ``waited`` for how many seconds.
    ``problem`` says what did not happen, where ``kind`` does not tell.
    """

    name: str
    waited: float
    kind: str = field(default="lock", kw_only=True)
    problem: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        problem = self.problem or _IN_VAIN.get(self.kind, "was not granted")
        return f"{self.kind} {self.name!r} {problem} within {self.waited:.3g} s"


@dataclass(eq=False, repr=False)
class AcquireTimeout(WaitTimeout):
    """The lock was not granted within the caller's timeout; the contender was withdrawn.

    ``waited`` is in seconds. ``position`` counts the contenders ahead of this one as the client
    last saw the queue: half a second before the deadline, or in the try of a timeout of 0. It is
    None if the client never saw the queue. ``holder`` describes the nearest of them; after a
    timeout of 0 it may be only a key, because its owner would cost another request. ``held_here``
    says since when, and in which thread or task, this process itself holds the lock, if it does.
    """

    position: int | None = None
    holder: str | None = None
    held_here: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        if self.position is None:
            return text
        text = f"{text}: {self.position} contender(s) ahead, the nearest is {self.holder}"
        return f"{text}; held by this process {self.held_here}" if self.held_here else text


@dataclass(eq=False, repr=False)
class WorkQueueEmpty(WaitTimeout):
    """The consumer got no item of the work queue within its timeout.

    ``refused`` counts its claims that came too late, because other consumers were faster; 0 where
    no item was ready.
    """

    refused: int = 0
    kind: str = field(default="work queue", kw_only=True)

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}: {self.refused} claims came too late" if self.refused else text


@dataclass(eq=False, repr=False)
class WaitCancelled(WaitError, RuntimeError):
    """The program cancelled the wait; a contender that waited has left its queue.

    A `Cancellation` did it, or a signal after `release_on_signals`. A cancelled asyncio task raises
    `asyncio.CancelledError` as usual.
    """

    name: str
    reason: str
    kind: str = field(default="lock", kw_only=True)
    problem: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        problem = self.problem or _IN_VAIN.get(self.kind, "was not granted")
        return f"{self.kind} {self.name!r} {problem}: the wait was cancelled ({self.reason})"


@dataclass(eq=False, repr=False)
class DeadlockDetected(WaitError, RuntimeError):
    """Clients waited for each other in a cycle, and this wait, the youngest, was given up.

    Release what you hold and acquire again, or acquire all locks at once with ``multi_lock``.
    ``cycle`` has a sentence for each step: who waits for what, and who has it.
    """

    name: str
    cycle: tuple[str, ...]
    kind: str = field(default="lock", kw_only=True)

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name!r} {_IN_VAIN.get(self.kind, 'was not granted')}, because of a "
            f"deadlock: {'; '.join(self.cycle)}. Acquire them all at once, with "
            "client.multi_lock([...])"
        )


@dataclass(eq=False, repr=False)
class Evicted(WaitError, RuntimeError):
    """The contender was removed from its queue while the session lives.

    To wait again, at the end of the queue, call ``acquire`` again.
    """

    name: str
    kind: str = field(default="lock", kw_only=True)

    @property
    def reason(self) -> str:
        """What happened, for messages that name the lock themselves."""
        return f"its contender {_WAS_REMOVED}"

    def __str__(self) -> str:
        return f"the contender for {self.kind} {self.name!r} {_WAS_REMOVED}"


_WAS_REMOVED = "was removed from the queue: an operator evicted it, or deleted it in the service"


@dataclass(eq=False, repr=False)
class LockLost(CoordlockError, RuntimeError):
    """A grant ended before it was released: another client may hold the lock now."""

    name: str
    token: int
    reason: str
    kind: str = field(default="lock", kw_only=True)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (token {self.token}) was lost: {self.reason}"


@dataclass(eq=False, repr=False)
class StaleToken(CoordlockError, RuntimeError):
    """The resource has seen a newer token: the grant was lost, and its holder has continued.

    ``newest`` is the newest token seen. Do not use what was read under ``token`` either.
    """

    resource: str
    token: int
    newest: int

    def __str__(self) -> str:
        return (
            f"{self.resource!r} refuses the fencing token {self.token}, because it has seen "
            f"{self.newest}: the lock was lost, and another client has held it since"
        )


@dataclass(eq=False, repr=False)
class InvalidToken(CoordlockError, ValueError):
    """The value given is not a fencing token, nor a sequencer where one is asked for."""

    token: object
    #: Replaces the text about numbers.
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"{reprlib.repr(self.token)} {self.problem}"
        huge = isinstance(self.token, int) and self.token.bit_length() > 64
        shown = "a larger one" if huge else reprlib.repr(self.token)
        return f"a fencing token is an integer from 1 to 2**63 - 1, not {shown}"


@dataclass(eq=False, repr=False)
class VersionMismatch(CoordlockError, RuntimeError):
    """Nothing was written: ``key`` is not at the version that the write expected."""

    key: str
    expected: int

    def __str__(self) -> str:
        wanted = f"is not at version {self.expected}" if self.expected else "exists"
        return f"nothing was written: {self.key!r} {wanted}"


@dataclass(eq=False, repr=False)
class WorkQueueFull(CoordlockError, RuntimeError):
    """The item was not put: ``max_depth`` items already wait in the work queue."""

    name: str
    max_depth: int

    def __str__(self) -> str:
        return f"work queue {self.name!r} is full: {self.max_depth} items wait to be taken"


@dataclass(eq=False, repr=False)
class JobNotRun(CoordlockError, RuntimeError):
    """A call did not run a slot of a job: the slot has left the job's history.

    So its outcome is unknown. Other reasons have errors of their own below this class. Where
    several hosts start each slot, all but one of them get such an error.
    """

    name: str
    slot: str

    def __str__(self) -> str:
        return (
            f"job {self.name!r}: slot {self.slot} has passed: later slots have pushed it out of "
            "the job's history"
        )


@dataclass(eq=False, repr=False)
class AlreadyDone(JobNotRun):
    """The slot was done before, by ``owner``."""

    owner: str

    def __str__(self) -> str:
        return f"job {self.name!r}: slot {self.slot} was done by {self.owner}"


@dataclass(eq=False, repr=False)
class AlreadyFailed(JobNotRun):
    """The slot was started and not done, and is not started again now.

    ``state`` is ``"failed"``, or ``"interrupted"`` where its holder has ended, or lost the lock, at
    work. ``owner`` started it. ``retry_at`` is when it may be started again; where that is empty,
    `Job.retry` lets it start again. ``is_news`` says that this call was the first to find it
    interrupted.
    """

    state: str
    owner: str
    retry_at: str = ""
    is_news: bool = False

    def __str__(self) -> str:
        by = f", started by {self.owner}," if self.owner else ""
        what = "has failed" if self.state == "failed" else "was interrupted"
        then = f"it may be started again at {self.retry_at}"
        if not self.retry_at:
            advice = f"coordlock jobs retry {self.name!r} {self.slot}"
            then = f"it is not started again; to let it start again: {advice}"
        return f"job {self.name!r}: slot {self.slot}{by} {what}, and {then}"


@dataclass(eq=False, repr=False)
class AlreadyRunning(JobNotRun):
    """The job is at work, with this slot or another one. ``holder`` describes who has its lock.

    ``slot`` is empty where none was to be run.
    """

    holder: str

    def __str__(self) -> str:
        by = f" by {self.holder}" if self.holder else ""
        what = f"slot {self.slot} is not run" if self.slot else "wait until that has ended"
        return f"job {self.name!r} is at work{by}: {what}"


@dataclass(eq=False, repr=False)
class Unsupported(CoordlockError, NotImplementedError):
    """The backend, or the grant, cannot do this; the message says why, or what to use instead."""

    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, repr=False)
class ClientClosed(CoordlockError):
    """The client was closed, or belongs to the parent process: a fork never shares its session."""

    problem: str = "this client is closed; call coordlock.connect() for a new one"

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, repr=False)
class BackendError(CoordlockError):
    """The coordination service refused a request, or could not be asked.

    ``service`` is the scheme of its URL, such as ``etcd``, or ``work queue`` for a damaged item.
    """

    service: str
    reason: str

    def __str__(self) -> str:
        return f"{self.service}: {self.reason}"


@dataclass(eq=False, repr=False)
class BackendUnavailable(BackendError, ConnectionError):
    """The service gave no answer. Whether the request took effect is unknown.

    ``away`` says for how many seconds the service has answered no heartbeat, where the client knows
    that; else it is None. With the option ``fail_fast``, the client raises this without asking
    while it knows.
    """

    away: float | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return f"{self.service} is unavailable: {self.reason}"


@dataclass(eq=False, repr=False)
class WaitUnavailable(BackendUnavailable, WaitError, TimeoutError):
    """The wait ended because the service does not answer; its outcome is unknown.

    `BackendUnavailable` is its first base class, so frameworks that look for a handler class by
    class treat it as an outage. ``kind``, ``name``, ``waited`` and ``problem`` are as in
    `WaitTimeout`. ``position`` and ``holder`` describe the queue before the service fell silent;
    ``position`` is None if it never answered. ``held_here`` is as in `AcquireTimeout`.
    """

    name: str
    waited: float
    position: int | None = None
    holder: str | None = None
    held_here: str | None = None
    kind: str = field(default="lock", kw_only=True)
    problem: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        problem = self.problem or _IN_VAIN.get(self.kind, "was not granted")
        text = f"{self.kind} {self.name!r} {problem} within {self.waited:.3g} s: "
        text += BackendUnavailable.__str__(self)
        if self.position is None:
            return text
        ahead = f"{self.position} contender(s) ahead, the nearest was {self.holder}"
        return f"{text}; before that: {ahead}"


class TooLarge(BackendError, ValueError):
    """The request exceeds a limit of the service, which did nothing."""


class AuthenticationFailed(BackendError, PermissionError):
    """The service refused the credentials, or they do not allow what was asked."""

    def __str__(self) -> str:
        return f"{self.service} refused access: {self.reason}"


class SessionLost(BackendError, WaitError, ConnectionError):
    """The client's session ended: all of its contenders have left their queues."""

    def __str__(self) -> str:
        return f"the {self.service} session was lost: {self.reason}"
