"""Everything that coordlock raises.

::

    CoordlockError
    ├── ConfigurationError (ValueError)      a URL, mapping or file that cannot be used
    │   └── MissingExtra (ImportError)       the backend's package is not installed
    ├── InvalidName (ValueError)             a lock name that no backend could store
    ├── NameConflict (ValueError)           one name used as two kinds of lock
    ├── WaitError                            a call that waits ended without what it waited for
    │   ├── WaitTimeout (TimeoutError)       it did not come in time
    │   │   ├── AcquireTimeout               others held the lock, or were ahead
    │   │   ├── ConversionTimeout            the lock is held, in its mode as before
    │   │   ├── BarrierTimeout               too few parties came, or left
    │   │   ├── WorkQueueEmpty               no item was ready
    │   │   └── WorkQueueContended           other consumers were faster, each time
    │   ├── WaitCancelled (RuntimeError)     the program ended the wait
    │   │   └── ConversionCancelled          the lock is held, in its mode as before
    │   ├── DeadlockDetected (RuntimeError)  the wait would never have ended
    │   ├── ConversionDeadlock (RuntimeError) another holder converts, and waits for this one
    │   └── Evicted (RuntimeError)           somebody removed the waiting contender
    ├── LockLost (RuntimeError)              a grant ended before it was released
    ├── StaleToken (RuntimeError)            a fence has seen a newer token
    ├── InvalidToken (ValueError)            no fencing token: not an integer, or out of range
    ├── InvalidSequencer (ValueError)        no text form of a token
    ├── Unfenceable (ValueError)             a grant whose kind has no order to fence by
    ├── WorkQueueFull (RuntimeError)         a work queue has as many items as it may have
    ├── ItemEnded (RuntimeError)             an item was acknowledged, or given back, before
    ├── JobNotRun                            a call did not run the slot of a job
    │   ├── AlreadyDone (RuntimeError)       the slot is done, passed or skipped, or was started
    │   └── AlreadyRunning (RuntimeError)    the job is at work elsewhere
    ├── FutureSlot (ValueError)              a slot that lies too far in the future
    ├── JobBacklog (RuntimeError)            a job has too many unfinished slots
    ├── VersionMismatch (RuntimeError)       a key has another version than a write expected
    ├── InvalidKey (ValueError)              a key that no value can have
    ├── Unsupported (NotImplementedError)    something that the backend cannot do
    ├── ClientClosed (RuntimeError)          the client was used after ``close``
    ├── ForkedClient (RuntimeError)          the client was used in a forked child
    └── BackendError                         the service said no, or said nothing
        ├── BackendUnavailable (ConnectionError)            no answer; the outcome may be unknown
        │   └── WaitUnavailable (WaitError, TimeoutError)     the wait ended without an answer
        ├── TooLarge (ValueError)                           more at once than the service takes
        ├── AuthenticationFailed (PermissionError)          wrong credentials, or too few rights
        └── SessionLost (WaitError, ConnectionError)      the session ended with its contenders

Each is also the built-in exception that fits, carries its facts as fields, and pickles.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from typing import Any, Self

__all__ = [
    "AcquireTimeout",
    "AlreadyDone",
    "AlreadyRunning",
    "AuthenticationFailed",
    "BackendError",
    "BackendUnavailable",
    "BarrierTimeout",
    "ClientClosed",
    "ConfigurationError",
    "ConversionCancelled",
    "ConversionDeadlock",
    "ConversionTimeout",
    "CoordlockError",
    "DeadlockDetected",
    "Evicted",
    "ForkedClient",
    "FutureSlot",
    "InvalidKey",
    "InvalidName",
    "InvalidSequencer",
    "InvalidToken",
    "ItemEnded",
    "JobBacklog",
    "JobNotRun",
    "LockLost",
    "MissingExtra",
    "NameConflict",
    "SessionLost",
    "StaleToken",
    "TooLarge",
    "Unfenceable",
    "Unsupported",
    "VersionMismatch",
    "WaitCancelled",
    "WaitError",
    "WaitTimeout",
    "WaitUnavailable",
    "WorkQueueContended",
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
    """The configuration cannot be used; the message names the part and what is accepted."""

    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, repr=False)
class MissingExtra(ConfigurationError, ImportError):
    """A backend's or the command line's dependencies are not installed."""

    extra: str

    def __str__(self) -> str:
        return f"{self.problem}; install it with: pip install 'coordlock[{self.extra}]'"


@dataclass(eq=False, repr=False)
class InvalidName(CoordlockError, ValueError):
    """A lock name is empty, too long, or not encodable as UTF-8."""

    name: str
    problem: str

    def __str__(self) -> str:
        shown = self.name if len(self.name) <= 40 else self.name[:40] + "…"
        return f"lock name {shown!r} {self.problem}"


@dataclass(eq=False, repr=False)
class NameConflict(CoordlockError, ValueError):
    """A name is in use as another kind, or as one with other permits, parties or counts.

    ``holder`` describes who uses it so, and is empty where that is not known.
    """

    name: str
    wanted: str
    found: str
    holder: str

    def __str__(self) -> str:
        by = f" (by {self.holder})" if self.holder else ""
        return (
            f"{self.name!r} is in use as {self.found}{by} and was asked for as {self.wanted}: "
            "every client of one name must ask for the same kind"
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
    """The base of every error with which a call that waits ends without what it waited for.

    Such calls are ``acquire``, ``convert``, ``campaign``, ``join``, ``take``, ``wait``, ``enter``,
    ``leave`` and ``next``. ``kind`` says what was waited for, such as ``"lock"``, ``"semaphore"``,
    ``"election"`` or ``"work queue"``.

    To wait for longer, to call again or to answer "try later" can help. It cannot help against a
    mistake of the program, such as `NameConflict`, so that is none of these.
    """

    kind: str = "lock"


@dataclass(eq=False, repr=False)
class WaitTimeout(WaitError, TimeoutError):
    """What was waited for did not come within the caller's timeout.

    ``kind`` and ``name`` say what it was, ``waited`` for how many seconds, and ``problem`` what did
    not happen, where that is not plain from the kind.
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

    ``waited`` is in seconds. ``position`` counts the contenders that stood before this one when
    the queue was last seen, or is None when the queue was never seen; ``holder`` describes the
    contender that was waited for: by its key alone where it would have taken another request to
    ask for its owner, and the timeout was 0. ``held_here`` says since when, and in which thread or
    task, this process itself holds the lock, if it does.
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
class ConversionTimeout(WaitTimeout):
    """The grant was not converted within the caller's timeout: it is held in its mode as before.

    ``waited`` is in seconds. ``blockers`` counts the holders that the conversion waited for when
    the queue was last seen, and ``holder`` describes one of them. ``mode`` and ``target`` are the
    names of the modes.
    """

    blockers: int
    holder: str
    mode: str
    target: str

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name!r} was not converted to {self.target} within "
            f"{self.waited:.3g} s, and is still held in mode {self.mode}: {self.holder} is in the "
            "way"
        )


@dataclass(eq=False, repr=False)
class BarrierTimeout(WaitTimeout):
    """Too few parties came to a barrier, or left it, within the caller's timeout.

    ``waited`` is in seconds. Of the ``parties`` that it takes, ``arrived`` were there when it was
    last seen, this one too.
    """

    arrived: int
    parties: int
    kind: str = field(default="barrier", kw_only=True)

    def __str__(self) -> str:
        problem = self.problem or "was reached by"  # or "was not left by"
        of = f"{self.arrived} of {self.parties} parties"
        return f"{self.kind} {self.name!r} {problem} {of} within {self.waited:.3g} s"


@dataclass(eq=False, repr=False)
class WorkQueueEmpty(WaitTimeout):
    """No item of the work queue came to this consumer within its timeout; it waits no longer."""

    kind: str = field(default="work queue", kw_only=True)


@dataclass(eq=False, repr=False)
class WorkQueueContended(WaitTimeout):
    """Items were ready, and other consumers were faster each time until the timeout.

    ``refused`` is how many of this consumer's claims were.
    """

    refused: int
    kind: str = field(default="work queue", kw_only=True)

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name!r} gave no item within {self.waited:.3g} s, though some were "
            f"ready: {self.refused} claims came too late, because the queue had changed"
        )


@dataclass(eq=False, repr=False)
class WaitCancelled(WaitError, RuntimeError):
    """The program ended the wait before what it waited for had come; nothing of it is left.

    A `Cancellation` did it, or a signal after `release_on_signals`. In asyncio, a task that is
    cancelled raises `asyncio.CancelledError` as ever.
    """

    name: str
    reason: str
    kind: str = field(default="lock", kw_only=True)

    def __str__(self) -> str:
        problem = _IN_VAIN.get(self.kind, "was not granted")
        return f"{self.kind} {self.name!r} {problem}: the wait was cancelled: {self.reason}"


@dataclass(eq=False, repr=False)
class ConversionCancelled(WaitCancelled):
    """The program ended the conversion of a grant: it is held in its mode as before.

    ``mode`` and ``target`` are the names of the modes.
    """

    mode: str
    target: str

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name!r} was not converted to {self.target}, and is still held in "
            f"mode {self.mode}: {self.reason}"
        )


@dataclass(eq=False, repr=False)
class DeadlockDetected(WaitError, RuntimeError):
    """The lock was waited for in a circle, and this wait was the youngest: it was given up.

    Release what is held, and acquire again; or acquire all of it at once, by ``multi_lock``.
    ``circle`` has a sentence for each step: who waits for what, and who has it.
    """

    name: str
    circle: tuple[str, ...]
    kind: str = field(default="lock", kw_only=True)

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name!r} {_IN_VAIN.get(self.kind, 'was not granted')}, because of a "
            f"deadlock: {'; '.join(self.circle)}. Acquire them all at once, with "
            "client.multi_lock([...])"
        )


@dataclass(eq=False, repr=False)
class ConversionDeadlock(WaitError, RuntimeError):
    """Another holder converts its grant, too, and each would wait for the other.

    The grant is held in its mode as before: release it, so that the other can go on. Holders of an
    upgradeable lock share it with readers and not with each other, so this does not happen to them.
    """

    name: str
    mode: str
    target: str
    other: str

    def __str__(self) -> str:
        return (
            f"lock {self.name!r} was not converted to {self.target}, and is still held in mode "
            f"{self.mode}: {self.other} converts it, too, and waits for this grant. Release it, or "
            "acquire with client.upgradeable_lock(), which one client holds at a time"
        )


@dataclass(eq=False, repr=False)
class Evicted(WaitError, RuntimeError):
    """The contender was removed from its queue while the session lives; acquire again to go on."""

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
    """The resource has seen a newer token: the grant was lost, though its holder went on.

    ``newest`` is the token that was seen. What was read under ``token`` must not be used either.
    """

    resource: str
    token: int
    newest: int

    def __str__(self) -> str:
        return (
            f"{self.resource!r} refuses the fencing token {self.token}, "
            f"because it has seen {self.newest}: the lock was lost and somebody else had it since"
        )


@dataclass(eq=False, repr=False)
class InvalidToken(CoordlockError, ValueError):
    """What was presented as a fencing token is none."""

    token: object

    def __str__(self) -> str:
        huge = isinstance(self.token, int) and self.token.bit_length() > 64
        shown = "a larger one" if huge else reprlib.repr(self.token)
        return f"a fencing token is an integer from 1 to 2**63 - 1, not {shown}"


@dataclass(eq=False, repr=False)
class InvalidSequencer(CoordlockError, ValueError):
    """What was to be verified is not the text form of a token."""

    text: str

    def __str__(self) -> str:
        shown = reprlib.repr(self.text)
        return f"{shown} is no sequencer: give what grant.sequencer says, such as 'orders:lock:42'"


@dataclass(eq=False, repr=False)
class Unfenceable(CoordlockError, ValueError):
    """Several clients hold this kind of grant at once: no order of tokens tells which are stale.

    A transaction guarded by the grant itself works for every kind: ``grant.transaction()``.
    """

    name: str
    token: int
    kind: str
    #: In place of what is said of such kinds.
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"the grant of {self.name!r} {self.problem}"
        return (
            f"the grant of {self.name!r} (token {self.token}) is of {self.kind}, which several "
            "hold at once in any order: a fence would refuse live holders; fence an exclusive, "
            "a write or a read lock, or use grant.transaction()"
        )


@dataclass(eq=False, repr=False)
class VersionMismatch(CoordlockError, RuntimeError):
    """A write was not made: ``key`` has not the version that it expected."""

    key: str
    expected: int

    def __str__(self) -> str:
        wanted = f"is not at version {self.expected}" if self.expected else "exists"
        return f"nothing was written: {self.key!r} {wanted}"


@dataclass(eq=False, repr=False)
class WorkQueueFull(CoordlockError, RuntimeError):
    """The item was not put: as many as ``max_depth`` wait in the work queue already."""

    name: str
    max_depth: int

    def __str__(self) -> str:
        return f"work queue {self.name!r} is full: {self.max_depth} items wait to be taken"


@dataclass(eq=False, repr=False)
class ItemEnded(CoordlockError, RuntimeError):
    """The item was acknowledged, or given back, by an earlier call; ``how`` says which."""

    name: str
    id: str
    how: str

    def __str__(self) -> str:
        return f"item {self.id} of the work queue {self.name!r} was {self.how} already"


class JobNotRun(CoordlockError):
    """The base of the errors with which a call does not run a slot of a job, as is to be expected.

    Where several hosts start each slot, all but one of them get one of these.
    """


@dataclass(eq=False, repr=False)
class AlreadyDone(JobNotRun, RuntimeError):
    """The slot is not run again, or not any more.

    ``state`` says why: ``"done"``; ``"passed"``, when later slots have pushed it out of the job's
    history; ``"skipped"``, when it was missed and is not made up for; and, for jobs whose policy is
    ``"at-most-once"``, ``"started"`` and ``"failed"``. ``owner`` started it, as far as known.
    """

    name: str
    slot: str
    state: str
    owner: str

    def __str__(self) -> str:
        by = f" by {self.owner}" if self.owner else ""
        what = {
            "passed": "has passed: later slots have pushed it out of the job's history",
            "skipped": "was missed, and skipped",
            "started": f"was started{by}, and a slot is started at most once",
            "failed": f"has failed{by}, and a slot is started at most once",
        }.get(self.state, f"was done{by}")
        return f"job {self.name!r}: slot {self.slot} {what}"


@dataclass(eq=False, repr=False)
class AlreadyRunning(JobNotRun, RuntimeError):
    """The job is at work, with this slot or another one. ``holder`` describes who has its lock."""

    name: str
    slot: str
    holder: str

    def __str__(self) -> str:
        by = f" by {self.holder}" if self.holder else ""
        return f"job {self.name!r} is at work{by}: slot {self.slot} is not run"


@dataclass(eq=False, repr=False)
class FutureSlot(CoordlockError, ValueError):
    """The slot lies ``ahead`` seconds after the service's own time, and more than ``most``.

    Nothing was recorded. The clock of this host may be fast.
    """

    name: str
    slot: str
    ahead: float
    most: float

    def __str__(self) -> str:
        return (
            f"job {self.name!r}: slot {self.slot} is {self.ahead:.0f} s ahead of the service's "
            f"time, and {self.most:.0f} s are accepted: check the clock of this host"
        )


@dataclass(eq=False, repr=False)
class JobBacklog(CoordlockError, RuntimeError):
    """The slot was not run, because the job has as many records as it may have.

    Records are dropped in the order of their slots, and never past ``oldest``, which is unfinished.
    """

    name: str
    records: int
    oldest: str

    def __str__(self) -> str:
        return (
            f"job {self.name!r} keeps {self.records} slots, and takes no more: its oldest "
            f"unfinished one is {self.oldest}. Run that, or forget all with `coordlock jobs reset`"
        )


@dataclass(eq=False, repr=False)
class InvalidKey(CoordlockError, ValueError):
    """A key that cannot be read or written as a value."""

    key: str
    problem: str

    def __str__(self) -> str:
        return f"key {self.key!r} {self.problem}"


@dataclass(eq=False, repr=False)
class Unsupported(CoordlockError, NotImplementedError):
    """The backend cannot do this; the message says what to use instead."""

    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, repr=False)
class ClientClosed(CoordlockError, RuntimeError):
    """The client was closed; connect a new one."""

    def __str__(self) -> str:
        return "this client is closed; call coordlock.connect() for a new one"


@dataclass(eq=False, repr=False)
class ForkedClient(CoordlockError, RuntimeError):
    """The client belongs to the parent process; a fork never shares its session."""

    parent: int

    def __str__(self) -> str:
        return (
            f"this client belongs to process {self.parent}, which forked; "
            "connect in the child, or make the client with coordlock.Client() for all processes"
        )


@dataclass(eq=False, repr=False)
class BackendError(CoordlockError):
    """The coordination service refused a request, or could not be asked."""

    service: str
    reason: str

    def __str__(self) -> str:
        return f"{self.service}: {self.reason}"


class BackendUnavailable(BackendError, ConnectionError):
    """The service gave no answer. Whether the request took effect is unknown."""

    def __str__(self) -> str:
        return f"{self.service} is unavailable: {self.reason}"


@dataclass(eq=False, repr=False)
class WaitUnavailable(BackendUnavailable, WaitError, TimeoutError):
    """The wait ended because the service is silent: whether what it was for has come is unknown.

    A `BackendUnavailable` in the first place, so that frameworks which look for a handler class by
    class answer it as an outage. ``kind``, ``name``, ``waited`` and ``problem`` are as in
    `WaitTimeout`. ``position`` is None when the service never answered, and otherwise says, with
    ``holder``, what the queue was like before the service fell silent. ``held_here`` is as in
    `AcquireTimeout`.
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
        return f"{text}; before that, {self.position} contender(s) ahead, nearest {self.holder}"


class TooLarge(BackendError, ValueError):
    """The request exceeds a limit of the service, which did nothing of it."""


class AuthenticationFailed(BackendError, PermissionError):
    """The service refused the credentials, or they do not allow what was asked."""

    def __str__(self) -> str:
        return f"{self.service} refused access: {self.reason}"


class SessionLost(BackendError, WaitError, ConnectionError):
    """The client's session ended: all of its contenders have left their queues."""

    def __str__(self) -> str:
        return f"the {self.service} session was lost: {self.reason}"
