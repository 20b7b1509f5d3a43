"""The calls of operators: what is in use under a root, and how it is freed or deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordlock.backend import ServiceInfo
from coordlock.errors import Evicted, LockLost
from coordlock.kernel.access import Access
from coordlock.kernel.deadlock_detector import deadlocks
from coordlock.kernel.engine import Engine
from coordlock.model.contender import Contender, are_same
from coordlock.model.names import check_name
from coordlock.model.queue_entry import QueueEntry
from coordlock.model.waits import Deadlock
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.guards import Resident

if TYPE_CHECKING:
    from coordlock.client.records import Kind, Record
    from coordlock.jobs.view import JobInfo

__all__ = ["Admin", "AsyncAdmin", "cleared"]

#: How often `cleared` reads the queue for contenders that came meanwhile.
_MAX_READS: Final = 20


class _Admin(Resident):
    """What sync and async operators share."""

    _instead = "pass the client's settings or a URL instead, and connect there"

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def _engine(self) -> Engine:
        return self._access.engine

    def _names(self) -> Steps[list[str]]:
        """The names that are in use under the root, sorted. Raises `BackendUnavailable`."""
        names = yield from self._engine.ask(self._engine.backend.queues)
        return sorted(names)

    def _contenders(self, name: str) -> Steps[tuple[QueueEntry, ...]]:
        """The queue of ``name`` in order, holders and waiters. Raises `BackendUnavailable`."""
        return (yield from self._engine.queue(check_name(name)))

    def _records(self, name: str | None = None) -> Steps[tuple[Record, ...]]:
        """All records, or those under ``name``, in use or not; sorted.

        They belong to counters, latches, gates, barriers and jobs that were changed, to requests to
        release locks, and to work queues that had an item, until `delete`.
        Raises `Unsupported` where the backend keeps no data, and `BackendUnavailable`.
        """
        from coordlock.client.records import records  # which loads all recipes

        return (yield from records(self._engine, None if name is None else check_name(name)))

    def _jobs(self) -> Steps[tuple[JobInfo, ...]]:
        """All jobs of which a slot was ever started, sorted by names.

        Raises `Unsupported` where the backend keeps no data, and `BackendUnavailable`.
        """
        from coordlock.jobs.view import jobs

        return (yield from self._engine.bounded(jobs(self._engine)))

    def _delete(self, name: str, kind: Kind) -> Steps[bool]:
        """Delete what `records` lists under ``name`` as ``kind``; whether it was there.

        Afterwards a counter is 0, a latch is closed and takes any count, a gate is open, a barrier
        begins anew, and a job has no slots. A change that another client began before is made
        before the deletion, or after it in the next record; if its answer was lost, that client may
        get `BackendUnavailable`, because it can't find out which. A work queue is only taken off
        the list, until the next item is put.

        Raises `NameConflict` for a gate that is shut, a job at work, a barrier and a request to
        release a lock whose queue is not empty, and a work queue that has items.
        Raises `BackendError` for a counter, latch, gate, barrier or job that another program or a
        newer release wrote, and `BackendUnavailable`: then it may have been deleted, or may be yet.
        """
        from coordlock.client.deletion import deleted

        return (yield from deleted(self._engine, check_name(name), kind))

    def _evict(self, contender: QueueEntry | Contender) -> Steps[bool]:
        """Remove any client's contender from its queue. Returns whether it was there.

        Its owner learns that the lock is lost, but may still be working: evict only what is stuck.
        Raises `BackendUnavailable`.
        """
        target = contender.contender if isinstance(contender, QueueEntry) else contender
        if not isinstance(target, Contender):
            raise TypeError(f"evict takes what contenders() gives, not {contender!r}")
        return (yield from self._engine.remove(lambda: self._engine.backend.evict(target)))

    def _evict_all(self, name: str) -> Steps[tuple[QueueEntry, ...]]:
        """Remove all contenders of ``name``, and return those that were there.

        It starts at the end of the queue, so that no waiter is granted meanwhile; holders are last.
        It also evicts contenders that arrive meanwhile; if they arrive faster than it can evict
        them, the newest stay. Raises `BackendUnavailable`.
        """
        return (yield from cleared(self._engine, check_name(name)))

    def _deadlocks(self) -> Steps[tuple[Deadlock, ...]]:
        """The deadlocks among all clients. Each client's own detection normally ends them.

        Clients publish what they hold and wait for once they have waited for the option
        ``deadlock_delay``. Clients with that option off are not seen. Raises `BackendUnavailable`.
        """
        return (yield from self._engine.bounded(deadlocks(self._engine)))

    def _request_release(
        self, name: str, reason: str = "", *, contender: QueueEntry | None = None
    ) -> Steps[tuple[QueueEntry, ...]]:
        """Ask the holders of ``name`` to release it; returns those asked, empty if it is free.

        With ``contender``, an entry that `contenders` returned, it asks only that one. It sets
        their `Grant.release_requested`, with ``reason``, up to 1000 characters; they may keep the
        lock. Raises `Unsupported` where the backend keeps no data, and `BackendUnavailable`.
        """
        from coordlock.records.release_requests import ask, check_reason

        check_reason(reason)
        self._engine.backend.require("data")
        members = yield from self._contenders(name)
        asked = tuple(
            member
            for member in members
            if (
                member.holding
                if contender is None
                else are_same(member.contender, contender.contender)
            )
        )
        if asked:
            requests = {member.contender.place: reason for member in asked}
            there = {member.contender.place for member in members}
            yield from ask(self._engine, name, requests, there)
        return asked

    def _verify_sequencer(self, sequencer: str) -> Steps[QueueEntry]:
        """Ask the service whether the grant with this `Grant.sequencer` is held; its queue entry.

        For a server that got the sequencer with a request from the holder. The answer, by
        consensus, was true at a moment during this call; later only a fence knows. Raises
        `LockLost` if the grant is no longer held, `InvalidToken`, and `BackendUnavailable`.
        """
        from coordlock.model.sequencer import parse_sequencer

        name, claim, token = parse_sequencer(sequencer)
        queue = yield from self._engine.queue(name)
        found = next((entry for entry in queue if entry.token == token), None)
        if found is None:
            raise LockLost(name, token, "no contender in its queue has this token any more")
        if not found.holding:
            raise LockLost(name, token, "its contender waits for others")
        if found.claim != claim:
            raise LockLost(name, token, f"its contender holds {found.claim}, not {claim}")
        # A member that has lost its majority may have answered the reading; the whole service
        # answers this. A contender that was admitted, and is still in its queue, holds the lock.
        try:
            yield from self._engine.ask(lambda: self._engine.backend.write((), [found.contender]))
        except Evicted:
            raise LockLost(name, token, "its contender has just left the queue") from None
        return found

    def _describe(self) -> Steps[ServiceInfo]:
        """The service, its version and warnings about it. Raises `BackendUnavailable`."""
        return (yield from self._engine.ask(self._engine.backend.describe))


class Admin(_Admin):
    """The calls of operators, under the root of a client: `Client.admin`."""

    names = blocking(_Admin._names)
    contenders = blocking(_Admin._contenders)
    records = blocking(_Admin._records)
    jobs = blocking(_Admin._jobs)
    delete = blocking(_Admin._delete)
    evict = blocking(_Admin._evict)
    evict_all = blocking(_Admin._evict_all)
    deadlocks = blocking(_Admin._deadlocks)
    describe = blocking(_Admin._describe)
    request_release = blocking(_Admin._request_release)
    verify_sequencer = blocking(_Admin._verify_sequencer)


class AsyncAdmin(_Admin):
    """The calls of operators, for asyncio: `AsyncClient.admin`."""

    names = awaiting(_Admin._names)
    contenders = awaiting(_Admin._contenders)
    records = awaiting(_Admin._records)
    jobs = awaiting(_Admin._jobs)
    delete = awaiting(_Admin._delete)
    evict = awaiting(_Admin._evict)
    evict_all = awaiting(_Admin._evict_all)
    deadlocks = awaiting(_Admin._deadlocks)
    describe = awaiting(_Admin._describe)
    request_release = awaiting(_Admin._request_release)
    verify_sequencer = awaiting(_Admin._verify_sequencer)


def cleared(engine: Engine, queue: str) -> Steps[tuple[QueueEntry, ...]]:
    """Evict all contenders of ``queue``; returns those that were there, in order.

    A contender waits only for earlier ones. So the last is removed first, and the next one once the
    service has acknowledged that. The holder stays until the queue shows no waiter any more: an
    eviction from the head would grant the lock to the next in line, which may start its work before
    it is evicted itself.

    Contenders that come meanwhile are evicted too, where a later look finds them. If they come
    faster than they can be evicted, the last look decides, and what came after it stays.
    """
    evicted: list[QueueEntry] = []
    for left in reversed(range(_MAX_READS)):
        seen = yield from engine.queue(queue)
        waiting = tuple(entry for entry in seen if not entry.holding)
        is_last = not waiting or not left
        for entry in reversed(seen if is_last else waiting):
            was_there = yield from engine.remove(partial(engine.backend.evict, entry.contender))
            evicted += [entry] * was_there
        if is_last:
            break
    return tuple(sorted(evicted, key=lambda entry: entry.contender.order))
