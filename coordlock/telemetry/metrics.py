"""The metrics of coordlock as a table, and what each event changes in them. Pure.

Names and units follow OpenTelemetry's conventions. They are frozen: dashboards and alerts of users
depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, get_args

from coordlock.kernel.engine import engines
from coordlock.model.events import (
    AcquireEvent,
    AcquireFailed,
    AcquireStarted,
    AcquireWaiting,
    DeadlockFound,
    Event,
    FenceRefused,
    Granted,
    HeartbeatAnswered,
    ItemEnded,
    JobEnded,
    LockEvent,
    LossReason,
    Lost,
    Released,
    SessionChanged,
)
from coordlock.runtime.process import PROCESS
from coordlock.telemetry.groups import Group, capped, constant

__all__ = ["BUCKETS", "METRICS", "Change", "Measurements", "Metric", "gauges"]

Kind = Literal["histogram", "counter", "updown", "gauge"]

#: Upper bounds of the histograms' buckets, in seconds.
BUCKETS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1),
    *(0.25, 1.0, 2.5, 10.0, 30.0, 100.0, 300.0),
)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric: its name and unit by OpenTelemetry's conventions, and its attributes."""

    name: str
    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    description: str


#: One change of a metric: which, by how much, or to what, and the values of its attributes.
Change = tuple[Metric, float, tuple[str, ...]]

ACQUIRE_DURATION: Final = Metric(
    "coordlock.acquire.duration",
    "histogram",
    "s",
    ("backend", "group", "kind", "mode", "outcome"),
    "How long acquires took, until the grant or until they ended without one.",
)
ACQUIRE_WAITING: Final = Metric(
    "coordlock.acquire.waiting",
    "updown",
    "{ticket}",
    ("backend", "group", "kind"),
    "Acquires of this process that wait now.",
)
ACQUIRE_CONTENDED: Final = Metric(
    "coordlock.acquire.contended",
    "counter",
    "{acquisition}",
    ("backend", "group", "kind"),
    "Acquires that found the lock held.",
)
GRANT_ACTIVE: Final = Metric(
    "coordlock.grant.active",
    "updown",
    "{grant}",
    ("backend", "group", "kind", "mode"),
    "Grants that this process holds now.",
)
GRANT_DURATION: Final = Metric(
    "coordlock.grant.duration",
    "histogram",
    "s",
    ("backend", "group", "kind", "mode", "end"),
    "How long grants were held, until the release or the loss.",
)
GRANT_LOSSES: Final = Metric(
    "coordlock.grant.losses",
    "counter",
    "{grant}",
    ("backend", "group", "kind", "reason"),
    "Grants that were lost while they were held.",
)
HANDOFF_DURATION: Final = Metric(
    "coordlock.handoff.duration",
    "histogram",
    "s",
    ("backend", "group"),
    "From when a waiter saw its predecessor leave to its grant.",
)
HEARTBEAT_AGE: Final = Metric(
    "coordlock.session.heartbeat.age",
    "gauge",
    "s",
    ("backend",),
    "How long ago the oldest last heartbeat was sent that the service has acknowledged.",
)
SESSION_TTL: Final = Metric(
    "coordlock.session.ttl",
    "gauge",
    "s",
    ("backend",),
    "After how long without a heartbeat the session ends.",
)
SESSION_CHANGES: Final = Metric(
    "coordlock.session.changes",
    "counter",
    "{change}",
    ("backend", "state"),
    "How often sessions were connected, in doubt, lost and closed.",
)
RECONNECTIONS: Final = Metric(
    "coordlock.backend.reconnections",
    "counter",
    "{reconnection}",
    ("backend",),
    "How often the service came back after it was away.",
)
REQUEST_DURATION: Final = Metric(
    "coordlock.backend.request.duration",
    "histogram",
    "s",
    ("backend", "operation", "error.type"),
    "How long the service took to answer a heartbeat.",
)
LEADER: Final = Metric(
    "coordlock.leader",
    "updown",
    "{leader}",
    ("backend", "election"),
    "1 while this process leads the election, else 0.",
)
MASTER: Final = Metric(
    "leader_election_master_status",
    "updown",
    "",
    ("name",),
    "1 while this process leads the election, else 0: as Kubernetes' clients name it.",
)
ELECTION_TRANSITIONS: Final = Metric(
    "coordlock.election.transitions",
    "counter",
    "{transition}",
    ("backend", "election"),
    "How often this process was elected.",
)
JOB_RUNS: Final = Metric(
    "coordlock.job.runs",
    "counter",
    "{run}",
    ("backend", "job", "outcome"),
    "Runs of jobs that have ended.",
)
JOB_DURATION: Final = Metric(
    "coordlock.job.duration",
    "histogram",
    "s",
    ("backend", "job", "outcome"),
    "How long runs of jobs took.",
)
QUEUE_DELIVERIES: Final = Metric(
    "coordlock.queue.deliveries",
    "counter",
    "{delivery}",
    ("backend", "queue", "outcome"),
    "Items of work queues at which this process has ended its work.",
)
QUEUE_DURATION: Final = Metric(
    "coordlock.queue.delivery.duration",
    "histogram",
    "s",
    ("backend", "queue", "outcome"),
    "How long the work at items took.",
)
DEADLOCKS: Final = Metric(
    "coordlock.deadlocks",
    "counter",
    "{deadlock}",
    ("backend", "group"),
    "Waits that were ended because of a deadlock.",
)
FENCE_REFUSALS: Final = Metric(
    "coordlock.fence.refusals",
    "counter",
    "{refusal}",
    (),
    "Stale tokens that fences have refused: near misses.",
)

#: All metrics of a process.
METRICS: Final = (
    *(ACQUIRE_DURATION, ACQUIRE_WAITING, ACQUIRE_CONTENDED),
    *(GRANT_ACTIVE, GRANT_DURATION, GRANT_LOSSES, HANDOFF_DURATION),
    *(HEARTBEAT_AGE, SESSION_TTL, SESSION_CHANGES, RECONNECTIONS, REQUEST_DURATION),
    *(LEADER, MASTER, ELECTION_TRANSITIONS),
    *(JOB_RUNS, JOB_DURATION, QUEUE_DELIVERIES, QUEUE_DURATION),
    *(DEADLOCKS, FENCE_REFUSALS),
)


class Measurements:
    """What events change. Names of locks only show as groups; elections, jobs and queues are named.

    A gauge goes down by what it has gone up, whatever happens meanwhile: what waits and what is
    held is kept by the number of its acquire. In the child of a fork, nothing of the parent's is.

    Args:
        group: the group of a lock's name; by default one for all. At most 100 are told apart, and
            at most 100 names of elections, of jobs and of work queues.
    """

    def __init__(self, group: Group | None = None) -> None:
        self._group: Final = capped(group or constant)
        self._election, self._job, self._queue = capped(str), capped(str), capped(str)
        #: The changes that the end of each acquire that waits, and of each grant, takes back.
        self._waiting: Final[dict[int, Change]] = {}
        self._held: Final[dict[int, list[Change]]] = {}
        #: Of which locks there are series.
        self._known: Final[set[tuple[str, str, str]]] = set()
        self._pid = PROCESS.id

    def of(self, event: Event) -> list[Change]:
        """The changes that ``event`` makes."""
        found: list[Change] = []
        if self._pid != PROCESS.id:
            self._pid = PROCESS.id
            found += self.rest()
        if isinstance(event, LockEvent):
            found += self._of_lock(event)
        else:
            found += self._of_rest(event)
        return found

    def rest(self) -> list[Change]:
        """The changes that let all gauges be as if nothing waited or were held."""
        changes = [*self._waiting.values(), *chain.from_iterable(self._held.values())]
        self._waiting.clear()
        self._held.clear()
        return [(metric, -value, attributes) for metric, value, attributes in changes]

    def _of_lock(self, event: LockEvent) -> Iterator[Change]:
        group = self._group(event.name)
        match event:
            case AcquireStarted():
                yield from self._from_zero(event, group)
            case AcquireWaiting():
                waiting = ACQUIRE_WAITING, 1, (event.backend, group, event.kind)
                self._waiting[event.acquire] = waiting
                yield waiting
            case AcquireEvent():
                yield from self._of_end(event, group)
            case Released() | Lost():
                yield from self._of_grants_end(event, group)

    def _of_end(self, event: AcquireEvent, group: str) -> Iterator[Change]:
        """The changes that the end of an acquire makes, with a grant or without."""
        backend, kind, mode = event.backend, event.kind, event.mode
        waiting = self._waiting.pop(event.acquire, None)
        if waiting is not None:
            yield ACQUIRE_WAITING, -1, waiting[2]
        if event.contended:
            yield ACQUIRE_CONTENDED, 1, (backend, group, kind)
        outcome = event.outcome if isinstance(event, AcquireFailed) else "granted"
        yield ACQUIRE_DURATION, event.duration, (backend, group, kind, mode, outcome)
        if isinstance(event, Granted):
            held: list[Change] = [(GRANT_ACTIVE, 1, (backend, group, kind, mode))]
            if event.handoff is not None:
                yield HANDOFF_DURATION, event.handoff, (backend, group)
            if kind == "election":
                yield ELECTION_TRANSITIONS, 1, (backend, self._election(event.name))
                held += self._leads(event, 1)
            self._held[event.acquire] = held
            yield from held

    def _of_grants_end(self, event: Released | Lost, group: str) -> Iterator[Change]:
        backend, kind, mode = event.backend, event.kind, event.mode
        for metric, value, attributes in self._held.pop(event.acquire, ()):
            yield metric, -value, attributes
        end = "released"
        if isinstance(event, Lost):
            end = "evicted" if event.reason == "evicted" else "lost"
            yield GRANT_LOSSES, 1, (backend, group, kind, event.reason)
        yield GRANT_DURATION, event.held, (backend, group, kind, mode, end)

    def _from_zero(self, event: LockEvent, group: str) -> Iterator[Change]:
        """Series that show 0 before the first event, so that an alert sees the first."""
        backend, kind = event.backend, event.kind
        if kind == "election":
            yield from self._leads(event, 0)
        if (backend, group, kind) not in self._known:
            self._known.add((backend, group, kind))
            yield ACQUIRE_CONTENDED, 0, (backend, group, kind)
            yield DEADLOCKS, 0, (backend, group)
            for reason in get_args(LossReason):
                yield GRANT_LOSSES, 0, (backend, group, kind, reason)

    def _leads(self, event: LockEvent, change: int) -> Iterator[Change]:
        election = self._election(event.name)
        yield LEADER, change, (event.backend, election)
        yield MASTER, change, (election,)

    def _of_rest(self, event: Event) -> Iterator[Change]:
        backend = event.backend
        match event:
            case HeartbeatAnswered(duration=duration, error=error):
                yield REQUEST_DURATION, duration, (backend, "heartbeat", error)
            case SessionChanged(state=state, away=away):
                yield SESSION_CHANGES, 1, (backend, state)
                if away:
                    yield RECONNECTIONS, 1, (backend,)
            case JobEnded(outcome=outcome, duration=duration):
                job = self._job(event.job)
                yield JOB_RUNS, 1, (backend, job, outcome)
                if outcome != "interrupted":
                    yield JOB_DURATION, duration, (backend, job, outcome)
            case ItemEnded(outcome=outcome, duration=duration):
                queue = self._queue(event.queue)
                yield QUEUE_DELIVERIES, 0, (backend, queue, "lost")  # so that an alert sees it
                yield QUEUE_DELIVERIES, 1, (backend, queue, outcome)
                yield QUEUE_DURATION, duration, (backend, queue, outcome)
            case DeadlockFound(name=name):
                yield DEADLOCKS, 1, (backend, self._group(name))
            case FenceRefused():
                yield FENCE_REFUSALS, 1, ()


def gauges() -> Iterator[Change]:
    """The gauges of this process as they are now: of the client whose heartbeat is the oldest."""
    oldest: dict[str, tuple[float, float]] = {}
    for engine in engines():
        session = engine.sessions.latest
        if not engine.closed and session is not None:  # also one that was lost, until the next
            age = max(0.0, engine.clock.now() - session.answered)
            oldest[engine.backend.scheme] = max(
                oldest.get(engine.backend.scheme, (0.0, 0.0)), (age, session.ttl)
            )
    for backend, (age, ttl) in oldest.items():
        yield HEARTBEAT_AGE, age, (backend,)
        if ttl < float("inf"):
            yield SESSION_TTL, ttl, (backend,)
