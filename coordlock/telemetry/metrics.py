"""The metrics of coordlock as a table, what each event counts in them, and what gauges show.

Names and units follow OpenTelemetry's conventions. They are frozen: dashboards and alerts of users
depend on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

from coordlock.kernel.engine import Engine, engines
from coordlock.kernel.recording import mode_of
from coordlock.kernel.ticket import Ticket
from coordlock.kernel.tickets import is_plumbing
from coordlock.model.events import (
    AcquireEvent,
    AcquireFailed,
    AcquireStarted,
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
from coordlock.telemetry.groups import Group, capped, constant

__all__ = ["BUCKETS", "METRICS", "Change", "Measurements", "Metric"]

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

    @property
    def is_read(self) -> bool:
        """Whether it is read when it is scraped, and not counted at events."""
        return self.kind in ("updown", "gauge")


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
SESSION_STATE: Final = Metric(
    "coordlock.session.state",
    "updown",
    "{session}",
    ("backend", "state"),
    "Sessions of this process that are connected, in doubt and lost now.",
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
    "Stale tokens that fences have refused, seen by the fence or its client: near misses.",
)

#: All metrics of a process.
METRICS: Final = (
    *(ACQUIRE_DURATION, ACQUIRE_WAITING, ACQUIRE_CONTENDED),
    *(GRANT_ACTIVE, GRANT_DURATION, GRANT_LOSSES, HANDOFF_DURATION),
    *(HEARTBEAT_AGE, SESSION_TTL, SESSION_STATE, SESSION_CHANGES),
    *(RECONNECTIONS, REQUEST_DURATION),
    *(LEADER, MASTER, ELECTION_TRANSITIONS),
    *(JOB_RUNS, JOB_DURATION, QUEUE_DELIVERIES, QUEUE_DURATION),
    *(DEADLOCKS, FENCE_REFUSALS),
)


class Measurements:
    """What events count, and what gauges show. Names of locks only show as groups.

    Gauges are read of the clients themselves, and not counted up and down: neither Ctrl-C nor a
    fork leaves them wrong.

    Args:
        group: the group of a lock's name; by default one for all. At most 100 are told apart, and
            at most 100 names of elections, of jobs and of work queues.
    """

    def __init__(self, group: Group | None = None) -> None:
        self._group: Final = capped(group or constant)
        self._election, self._job, self._queue = capped(str), capped(str), capped(str)
        #: Of which locks there are series.
        self._known: Final[set[tuple[str, str, str, str]]] = set()
        #: The gauges that show 0 where nothing waits or is held.
        self._gauges: Final[dict[tuple[Metric, tuple[str, ...]], float]] = {}

    def of(self, event: Event) -> Iterator[Change]:
        """The changes of counters and histograms that ``event`` makes."""
        if isinstance(event, LockEvent):
            return self._of_lock(event)
        return self._of_rest(event)

    def gauges(self) -> Iterator[Change]:
        """The gauges of this process as they are now."""
        found: Counter[tuple[Metric, tuple[str, ...]]] = Counter()
        ages: dict[str, tuple[float, float]] = {}
        for engine in engines():
            backend, session = engine.backend.scheme, engine.sessions.latest
            for ticket in engine.tickets:
                found.update(self._of_ticket(engine, ticket))
            if engine.closed or session is None:
                continue
            age = max(0.0, engine.clock.now() - session.answered)
            ages[backend] = max(ages.get(backend, (0.0, 0.0)), (age, session.ttl))
            for state, is_so in (
                ("connected", session.ended is None and session.suspicion is None),
                ("in doubt", session.ended is None and session.suspicion is not None),
                ("lost", session.ended is not None),  # until the next one is open
            ):
                found[SESSION_STATE, (backend, state)] += is_so
        self._gauges.update(dict.fromkeys(found, 0.0))
        for (metric, attributes), value in {**self._gauges, **found}.items():
            yield metric, value, attributes
        for backend, (age, ttl) in ages.items():
            yield HEARTBEAT_AGE, age, (backend,)
            if ttl < float("inf"):
                yield SESSION_TTL, ttl, (backend,)

    def _of_ticket(
        self, engine: Engine, ticket: Ticket
    ) -> Iterator[tuple[Metric, tuple[str, ...]]]:
        """The gauges that count ``ticket``."""
        kind, backend = ticket.kind, engine.backend.scheme
        if ticket.is_leaving or ticket.end.done() or is_plumbing(kind):
            return
        if ticket.granted_at is not None:
            mode = mode_of([entry.claim for entry in ticket.entries])
            yield GRANT_ACTIVE, (backend, self._group(ticket.name), kind, mode)
            if kind == "election":
                yield from self._leads(backend, ticket.name)
            kind = "upgrade"
        if ticket.blocker is not None:
            yield ACQUIRE_WAITING, (backend, self._group(ticket.name), kind)

    def _of_lock(self, event: LockEvent) -> Iterator[Change]:
        group, backend = self._group(event.name), event.backend
        kind, mode = event.kind, event.mode
        match event:
            case AcquireStarted():
                yield from self._from_zero(event, group)
            case AcquireEvent():
                if event.contended:
                    yield ACQUIRE_CONTENDED, 1, (backend, group, kind)
                outcome = event.outcome if isinstance(event, AcquireFailed) else "granted"
                yield ACQUIRE_DURATION, event.duration, (backend, group, kind, mode, outcome)
                if isinstance(event, Granted):
                    if event.handoff is not None:
                        yield HANDOFF_DURATION, event.handoff, (backend, group)
                    if kind == "election":
                        yield ELECTION_TRANSITIONS, 1, (backend, self._election(event.name))
            case Released():
                yield GRANT_DURATION, event.held, (backend, group, kind, mode, "released")
            case Lost(reason=reason):
                end = "evicted" if reason == "evicted" else "lost"
                yield GRANT_LOSSES, 1, (backend, group, kind, reason)
                yield GRANT_DURATION, event.held, (backend, group, kind, mode, end)

    def _from_zero(self, event: LockEvent, group: str) -> Iterator[Change]:
        """Series that show 0 before the first event, so that an alert sees the first."""
        backend, kind, mode = event.backend, event.kind, event.mode
        if kind == "election":
            self._gauges.update(dict.fromkeys(self._leads(backend, event.name), 0.0))
        if (backend, group, kind, mode) not in self._known:
            self._known.add((backend, group, kind, mode))
            self._gauges[GRANT_ACTIVE, (backend, group, kind, mode)] = 0.0
            self._gauges[ACQUIRE_WAITING, (backend, group, kind)] = 0.0
            yield ACQUIRE_CONTENDED, 0, (backend, group, kind)
            yield DEADLOCKS, 0, (backend, group)
            for reason in get_args(LossReason):
                yield GRANT_LOSSES, 0, (backend, group, kind, reason)

    def _leads(self, backend: str, name: str) -> Iterator[tuple[Metric, tuple[str, ...]]]:
        election = self._election(name)
        yield LEADER, (backend, election)
        yield MASTER, (election,)

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
