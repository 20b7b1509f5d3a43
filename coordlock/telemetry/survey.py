"""What is in the service, as metrics: for one process that exports it, `coordlock exporter`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from coordlock.client import Client
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.jobs.ledger import State
from coordlock.jobs.view import JobInfo
from coordlock.kernel.engine import Engine
from coordlock.model.admission import holders
from coordlock.model.contender import Snapshot
from coordlock.model.names import is_internal
from coordlock.runtime.driver import Steps, run
from coordlock.runtime.log import Log
from coordlock.telemetry.groups import Group, capped, constant
from coordlock.telemetry.metrics import Change, Metric
from coordlock.work.view import live_items

__all__ = ["PATIENCE_S", "SERVICE_METRICS", "Survey"]

log = Log("coordlock")

#: How many queues are read at once.
_AT_ONCE: Final = 100
#: Seconds after which a reading leaves out the queues that it has not read. With the client's
#: ``request_timeout`` of `coordlock exporter` it stays below the 10 s that Prometheus waits.
PATIENCE_S: Final = 6.0

UP: Final = Metric(
    "coordlock.service.up", "gauge", "", ("backend",), "1 while the service answers, else 0."
)
ERRORS: Final = Metric(
    "coordlock.service.errors",
    "gauge",
    "",
    ("backend", "part"),
    "1 if this part of the service cannot be read, as without a right; the log says why.",
)
READ_DURATION: Final = Metric(
    "coordlock.service.read.duration",
    "gauge",
    "s",
    ("backend",),
    "How long it took to read what the other metrics of the service show.",
)
OMITTED: Final = Metric(
    "coordlock.service.omitted",
    "gauge",
    "{name}",
    ("backend",),
    "Names in use that the last reading left out, as it took too long: other metrics lack them.",
)
NAMES: Final = Metric(
    "coordlock.service.names",
    "gauge",
    "{name}",
    ("backend", "group"),
    "Names of locks, elections and groups that are in use.",
)
HOLDERS: Final = Metric(
    "coordlock.service.holders",
    "gauge",
    "{grant}",
    ("backend", "group"),
    "Grants that are held, in all processes.",
)
WAITERS: Final = Metric(
    "coordlock.service.waiters",
    "gauge",
    "{ticket}",
    ("backend", "group"),
    "Acquires that wait, in all processes, without the candidates of the elections to show.",
)
OLDEST_WAITER: Final = Metric(
    "coordlock.service.oldest_waiter",
    "gauge",
    "s",
    ("backend", "group"),
    "For how long the oldest waiter has waited; 0 where nobody waits.",
)
LEADERS: Final = Metric(
    "coordlock.service.leaders",
    "gauge",
    "{leader}",
    ("backend", "election"),
    "1 while the election has a leader, else 0.",
)
JOB_SUCCESS: Final = Metric(
    "coordlock.job.last_success",
    "gauge",
    "s",
    ("backend", "job"),
    "When a slot of the job was done last, in seconds since 1970; 0 for never.",
)
JOB_FAILED: Final = Metric(
    "coordlock.job.failed",
    "gauge",
    "",
    ("backend", "job"),
    "1 if the last slot that came to an end has failed or was interrupted, else 0.",
)
JOB_NEXT: Final = Metric(
    "coordlock.job.next",
    "gauge",
    "s",
    ("backend", "job"),
    "When the next slot of the job's schedule is due, in seconds since 1970.",
)
DEPTH: Final = Metric(
    "coordlock.queue.depth",
    "gauge",
    "{item}",
    ("backend", "queue", "state"),
    "Items of the work queue that are waiting, taken, delayed and dead.",
)
OLDEST_ITEM: Final = Metric(
    "coordlock.queue.oldest",
    "gauge",
    "s",
    ("backend", "queue"),
    "How long ago the first item that waits was put; 0 where none waits.",
)
DEADLOCKS: Final = Metric(
    "coordlock.service.deadlocks",
    "gauge",
    "{deadlock}",
    ("backend",),
    "Deadlocks among clients that nobody has ended yet.",
)

#: All metrics of a service.
SERVICE_METRICS: Final = (
    *(
        UP,
        ERRORS,
        READ_DURATION,
        OMITTED,
        NAMES,
        HOLDERS,
        WAITERS,
        OLDEST_WAITER,
        LEADERS,
        DEADLOCKS,
    ),
    *(JOB_SUCCESS, JOB_FAILED, JOB_NEXT, DEPTH, OLDEST_ITEM),
)


class Survey:
    """Reads what is in the service of ``client``.

    Args:
        locks: the names that are shown by themselves; all others show by their groups.
        elections: the elections that are to have a leader.
        queues: the work queues to show.
        group: the group of a name; by default one for all. At most 100 are told apart.
    """

    def __init__(
        self,
        client: Client,
        locks: Sequence[str] = (),
        elections: Sequence[str] = (),
        queues: Sequence[str] = (),
        group: Group = constant,
    ) -> None:
        self.client: Final = client
        self.locks: Final = locks
        self.elections: Final = elections
        self.queues: Final = queues
        self._group: Final = capped(group)
        #: What could not be read the last time; the log has a line about each.
        self._failing: Final[set[str]] = set()

    def read(self) -> list[Change]:
        """What is there now. A service that does not answer gives 0 for ``coordlock.service.up``.

        Takes up to `PATIENCE_S` and the client's ``request_timeout``; what it left out by then, it
        counts.
        """
        backend, began = self.client.settings.scheme, time.monotonic()
        found: list[Change] = []
        parts: dict[str, Callable[[], Iterator[Change]]] = {
            "deadlocks": self._deadlocks,
            "jobs": self._jobs,
            "work queues": self._work,
            "names": partial(self._queues, began + PATIENCE_S),
        }
        for part, read in parts.items():
            try:
                found += read()
            except BackendUnavailable:
                return [(UP, 0, (backend,))]  # the session has a line in the log about it
            except CoordlockError as error:
                if part not in self._failing:
                    log.warning("%s cannot be read: %s", part, error)
                self._failing.add(part)
                failed = 1
            else:
                self._failing.discard(part)
                failed = 0
            found.append((ERRORS, failed, (backend, part)))
        took = time.monotonic() - began
        return [(UP, 1, (backend,)), (READ_DURATION, took, (backend,)), *found]

    def _deadlocks(self) -> Iterator[Change]:
        count = len(self.client.admin.deadlocks())
        yield DEADLOCKS, count, (self.client.settings.scheme,)

    def _queues(self, until: float) -> Iterator[Change]:
        engine, backend = self.client._engine, self.client.settings.scheme
        named, group = {*self.locks, *self.elections}, self._group
        names = [name for name in self.client.admin.names() if not is_internal(name)]
        names.sort(key=lambda name: name not in named)
        #: By group: names, holders, waiters, and since when the oldest waiter waits.
        counts: dict[str, list[float]] = {}
        now, led = time.time(), set[str]()
        for name in self.locks:
            counts[name] = [0, 0, 0, math.inf]
        snapshots = run(_snapshots(engine, names, until))
        yield OMITTED, len(names) - len(snapshots), (backend,)
        for snapshot in snapshots:
            name, holding = snapshot.queue, holders(snapshot)
            waiting = [
                contender
                for contender in snapshot.contenders
                if contender.id not in holding and name not in self.elections
            ]
            owners = (contender.owner for contender in waiting)
            since = (owner.since for owner in owners if owner is not None and owner.since)
            count = counts.setdefault(name if name in named else group(name), [0, 0, 0, math.inf])
            count[0] += 1
            count[1] += len(holding)
            count[2] += len(waiting)
            count[3] = min(count[3], *since, math.inf)
            if holding:
                led.add(name)
        for shown_as, (queues, held, waits, oldest) in counts.items():
            whose = backend, shown_as
            yield NAMES, queues, whose
            yield HOLDERS, held, whose
            yield WAITERS, waits, whose
            yield OLDEST_WAITER, max(0.0, now - oldest) if waits and oldest < now else 0.0, whose
        for election in self.elections:
            yield LEADERS, election in led, (backend, election)

    def _jobs(self) -> Iterator[Change]:
        backend = self.client.settings.scheme
        if not self.client._engine.backend.capabilities.data:
            return
        for job in self.client.admin.jobs():
            yield from _job(backend, job)

    def _work(self) -> Iterator[Change]:
        backend = self.client.settings.scheme
        for name in self.queues:  # raises `Unsupported` where the backend keeps no data
            queue = self.client.work_queue(name)
            stats = queue.stats()
            for state in ("waiting", "taken", "delayed", "dead"):
                yield DEPTH, getattr(stats, state), (backend, name, state)
            first = run(queue._asked(live_items, 1, False))
            put_at = [item.put_at for item in first if item.state == "waiting"]
            age = max(0.0, time.time() - put_at[0]) if put_at else 0.0
            yield OLDEST_ITEM, age, (backend, name)


def _job(backend: str, job: JobInfo) -> Iterator[Change]:
    whose = backend, job.name
    ended = [slot for slot in job.slots if slot.finished or slot.state is State.INTERRUPTED]
    done = [slot.finished for slot in ended if slot.state is State.DONE and slot.finished]
    failed = job.problem is not None or (bool(ended) and ended[-1].state is not State.DONE)
    yield JOB_SUCCESS, max(done).timestamp() if done else 0, whose
    yield JOB_FAILED, failed, whose
    if job.next is not None:
        yield JOB_NEXT, job.next.timestamp(), whose


def _snapshots(engine: Engine, names: Sequence[str], until: float) -> Steps[list[Snapshot]]:
    """The queues of ``names``, each as it was at a moment of its own; those read by ``until``."""
    found: list[Snapshot] = []
    for first in range(0, len(names), _AT_ONCE):
        if time.monotonic() >= until:
            break
        some = names[first : first + _AT_ONCE]
        found += yield from engine.ask(partial(engine.backend.snapshots, some))
    return found
