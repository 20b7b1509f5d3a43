"""Work queues: items that are put by some and done by others, each at least once."""

from __future__ import annotations

from typing import ClassVar, Final, Generic, TypeVar, cast

from coordlock.backend import Delete, Expect
from coordlock.errors import (
    AcquireCancelled,
    AcquireTimeout,
    AcquireUnavailable,
    BackendUnavailable,
    Evicted,
    VersionMismatch,
    WorkQueueEmpty,
)
from coordlock.kernel.access import Access
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.model.names import check_name
from coordlock.recipes.shared.publishing_grant import check_value
from coordlock.runtime.cancellation import ENDING
from coordlock.runtime.deadline import Cancelled, Deadline, DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.runtime.resident import Resident
from coordlock.settings import (
    DEFAULT,
    Default,
    Duration,
    Timeout,
    label_of,
    max_hold_of,
    timeout_of,
)
from coordlock.work import view
from coordlock.work.consumer import Known, Search, Taken
from coordlock.work.desk import Desk
from coordlock.work.job import AsyncJob, Job, delay_of
from coordlock.work.layout import Attempt, ItemId, bucket_of
from coordlock.work.producer import Parcel, Producer
from coordlock.work.records import Item, attempts, parsed_id
from coordlock.work.view import WorkItem, WorkQueueStats

__all__ = ["MAX_ATTEMPTS", "AsyncWorkQueue", "WorkQueue"]

#: How often an item is taken before it counts as dead, unless a queue is told otherwise.
MAX_ATTEMPTS: Final = 10

J = TypeVar("J", Job, AsyncJob)


class _Share:
    """What all objects for one queue share in one client: see `Engine.share`."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.desk: Final = Desk(engine, name)
        self.producer: Final = Producer(self.desk)
        self.known: Final = Known()


class _BaseWorkQueue(Resident, Generic[J], shown="WorkQueue"):
    """What sync and async work queues share."""

    _job_kind: ClassVar[type[Job | AsyncJob]]
    _instead = "pass its name on, and make it anew with a client there"

    def __init__(
        self,
        access: Access,
        name: str,
        max_depth: int | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        retry_delay: Duration = 0,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        label: str | None = None,
    ) -> None:
        settings = access.settings
        self.name: Final = check_name(name)
        #: How many items may wait when another one is put; None for no limit.
        self.max_depth: Final = None if max_depth is None else _positive("max_depth", max_depth)
        #: How often an item is taken before it counts as dead.
        self.max_attempts: Final = _positive("max_attempts", max_attempts)
        #: After how many seconds an item is taken again that was not done.
        self.retry_delay: Final = delay_of(retry_delay)
        #: For how many seconds `take` waits; None for ever.
        self.timeout: Final = timeout_of(
            "take", settings.timeout if isinstance(timeout, Default) else timeout
        )
        #: For how many seconds an item may be worked on before others take it; None for no limit.
        self.max_hold: Final = (
            settings.max_hold if isinstance(max_hold, Default) else max_hold_of(max_hold)
        )
        #: What queues show of its workers beside host and pid, in place of the client's.
        self.label: Final = label_of(label)
        self._access: Final = access
        #: That of the process that used it last: kept here, so that the client keeps it, too.
        self._shared = self._share()

    def _share(self) -> _Share:
        engine = self._access.engine
        name = self.name
        self._shared = engine.share_while_used(("work", name), lambda: _Share(engine, name))
        return self._shared

    def _put(self, data: bytes, delay: Duration = 0) -> Steps[str]:
        """Put an item with ``data``, up to 65,536 bytes, at the end of the queue; its id.

        It is there from then on, whatever becomes of this client, until a worker has done it. With
        a ``delay``, up to 366 days, it may be taken so many seconds from now, before what waits at
        the queue's head then: this machine's clock says when that is, and the consumers' clocks
        when it has come. After an answer that was lost, it is found out whether it was put.

        Raises `WorkQueueFull` where ``max_depth`` items wait; those with a delay neither count nor
        are refused. Raises `BackendUnavailable` when no answer came within the client's
        ``request_timeout``: then it says so where the item may have been put, or may be yet. Raises
        TypeError and ValueError for other data, `QueueMismatch` where another release keeps the
        queue in another way, `AuthenticationFailed`, `ClientClosed` and `ForkedClient`.
        """
        parcel = Parcel(check_value(data, "data"), delay_of(delay), self.max_depth)
        return str((yield from self._share().producer.put(parcel)))

    def _take(self, timeout: Timeout = DEFAULT) -> Steps[J]:
        """Take the next item, or wait for one; the job that is its grant.

        Items are taken in the order in which they were put. Those that were given back, or whose
        worker has ended, come first. ``timeout`` (seconds, or such as ``"30s"``) is the queue's by
        default: None waits for ever, 0 looks once. Of consumers that wait, one is woken for an
        item, in the order in which they came.

        Raises `WorkQueueEmpty`; `BackendUnavailable`, where the service is silent when the time is
        up; `AcquireCancelled` by a signal after `release_on_signals`; `SessionLost` and `Evicted`
        when the place among those who wait was lost; and what `put` raises.
        """
        seconds = self.timeout if isinstance(timeout, Default) else timeout_of("take", timeout)
        job = yield from self._next(seconds)
        if job is None:
            raise WorkQueueEmpty(self.name, seconds or 0.0)
        return job

    def _try_take(self) -> Steps[J | None]:
        """The next item's job, or None where none is to be had now. Raises what `take` raises."""
        return (yield from self._next(0))

    def _next(self, seconds: float | None) -> Steps[J | None]:
        share = self._share()
        engine = share.desk.engine
        engine.check()
        if not engine.was_open:
            yield from engine.session()
        deadline = engine.deadline(seconds or engine.settings.request_timeout)
        if seconds is None:
            deadline = None
        if ENDING.waits is not None:
            deadline = Deadline.at_latest(deadline, engine.clock, (ENDING.waits,))
        search = Search(share.desk, share.known, self.max_attempts, self.label, deadline)
        taken = yield from self._found(share.desk, search, seconds, deadline)
        return None if taken is None else self._job(share.desk, taken)

    def _found(
        self, desk: Desk, search: Search, seconds: float | None, deadline: Deadline | None
    ) -> Steps[Taken | None]:
        """What ``search`` finds within so many seconds, in turn with others."""
        engine = desk.engine
        taken: Taken | None = None
        turn: Ticket | None = None
        try:
            yield deadline
            taken = yield from search.at_once()
            queue = {desk.layout.takers: Mode.EX}
            while taken is None:
                if seconds != 0:
                    search.begin_worker()
                    left = None if seconds is None or deadline is None else deadline.left()
                    turn = yield from acquisition(engine, queue, left, label=self.label)
                taken = yield from search.steps(turn)
                if turn is None:
                    break
            return taken
        except AcquireUnavailable as error:
            raise BackendUnavailable(error.service, error.reason) from error.__cause__
        except AcquireTimeout:
            return None
        except AcquireCancelled as error:
            raise AcquireCancelled(self.name, error.reason) from error.__cause__
        except Evicted:
            raise Evicted(self.name) from None
        except Cancelled as cancelled:
            raise AcquireCancelled(self.name, str(cancelled)) from cancelled.__cause__
        except DeadlineReached as late:
            doubted = turn is not None and turn.session.suspicion is not None
            if seconds == 0 or late.__cause__ is not None or doubted:
                raise engine.silent(late) from late.__cause__
            return None
        finally:
            if turn is not None:
                turn.withdraw()  # the next one waits for it, this caller need not
            if taken is None:
                search.drop_worker()

    def _job(self, desk: Desk, taken: Taken) -> J:
        try:
            if self.max_hold is not None:
                desk.engine.limit(taken.ticket, self.max_hold)
            job = self._job_kind(desk, taken, self.max_attempts, self.retry_delay)
        except BaseException:
            taken.ticket.withdraw()  # Ctrl-C: the caller never gets the job
            raise
        return cast("J", job)

    def _depth(self) -> Steps[int]:
        """How many items may be taken now: neither delayed nor taken ones. Cheap.

        Raises `BackendUnavailable`.
        """
        share = self._share()
        return (yield from share.desk.engine.bounded(view.waiting(share.desk)))

    def _stats(self) -> Steps[WorkQueueStats]:
        """How many items wait, are taken, are delayed, and are dead.

        It reads the names of all that are delayed or dead. Raises `BackendUnavailable`.
        """
        share = self._share()
        return (yield from share.desk.engine.bounded(view.stats(share.desk)))

    def _items(self, limit: int = 100) -> Steps[tuple[WorkItem, ...]]:
        """The first ``limit`` items: those at work, those that wait, in order, then delayed ones.

        Each is as it was at a moment of this call. Raises `BackendUnavailable`.
        """
        desk, number = self._share().desk, _positive("limit", limit)
        return (yield from desk.engine.bounded(view.live_items(desk, number)))

    def _dead(self, limit: int = 100) -> Steps[tuple[WorkItem, ...]]:
        """The first ``limit`` of the items that were taken ``max_attempts`` times and not done.

        Nobody takes them any more: see `retry`. Raises `BackendUnavailable`.
        """
        desk, number = self._share().desk, _positive("limit", limit)
        return (yield from desk.engine.bounded(view.dead_items(desk, number)))

    def _retry(self, id: str) -> Steps[str]:
        """Put the data of a dead item at the end of the queue, as a new item; its id.

        The dead one is removed in the same step, so it is never put twice. ``max_depth`` does not
        count. Raises LookupError where no dead item has this ``id``, ValueError for what is no id,
        and what `put` raises.
        """
        share, item = self._share(), parsed_id(id)
        attempt, data = yield from share.desk.engine.bounded(_buried(share.desk, item))
        shelf = share.desk.layout.dead
        key = shelf.key(bucket_of(item), attempt)
        also = Expect(key, 1), Delete(key), Delete(share.desk.layout.item(item))
        try:
            return str((yield from share.producer.put(Parcel(data, also=also))))
        except VersionMismatch:
            raise _not_dead(share.desk, item) from None

    def _evict(self, id: str) -> Steps[bool]:
        """Take the item ``id`` away from the worker that has it; whether one had it. For operators.

        The worker is told that its job is lost, but may still be at work: nothing that it does to
        the item is accepted. Others take it. Raises ValueError for what is no id, and
        `BackendUnavailable`.
        """
        desk, item = self._share().desk, parsed_id(id)
        worker = yield from desk.engine.bounded(view.worker_of(desk, item))
        if worker is None:
            return False
        return (yield from desk.engine.remove(lambda: desk.engine.backend.evict(worker)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {self._access.settings}>"


def _buried(desk: Desk, id: ItemId) -> Steps[tuple[Attempt, bytes]]:
    """The last attempt at a dead item, and its data. Raises LookupError."""
    folder, key = desk.layout.dead.folder(bucket_of(id)), desk.layout.item(id)
    listing = yield from desk.read(folder)
    attempt = next((one for one in attempts(listing) if one.id == id), None)
    stored = (yield from desk.read(key)).values.get(key)
    if attempt is None or stored is None:
        raise _not_dead(desk, id)
    return attempt, Item.decode(key, stored).data


def _not_dead(desk: Desk, id: ItemId) -> LookupError:
    return LookupError(f"no dead item {id} in the work queue {desk.layout.name!r}")


def _positive(what: str, number: object) -> int:
    if type(number) is not int or number < 1:
        raise ValueError(f"{what} must be an integer of 1 or more, not {number!r}")
    return number


class WorkQueue(_BaseWorkQueue[Job]):
    """Items that some put and others do, each at least once. Made by `Client`; cheap, reusable.

    As in::

        queue = client.work_queue("mails")
        queue.put(b"to: ann")

        while True:
            with queue.take() as job:
                send(job.data)

    Threads share it.
    """

    _job_kind = Job

    put = blocking(_BaseWorkQueue[Job]._put)
    take = blocking(_BaseWorkQueue[Job]._take)
    try_take = blocking(_BaseWorkQueue[Job]._try_take)
    depth = blocking(_BaseWorkQueue[Job]._depth)
    stats = blocking(_BaseWorkQueue[Job]._stats)
    items = blocking(_BaseWorkQueue[Job]._items)
    dead = blocking(_BaseWorkQueue[Job]._dead)
    retry = blocking(_BaseWorkQueue[Job]._retry)
    evict = blocking(_BaseWorkQueue[Job]._evict)


class AsyncWorkQueue(_BaseWorkQueue[AsyncJob]):
    """Items that some put and others do, each at least once. Made by `AsyncClient`.

    As in::

        queue = client.work_queue("mails")
        await queue.put(b"to: ann")

        while True:
            async with await queue.take() as job:
                await send(job.data)
    """

    _job_kind = AsyncJob

    put = awaiting(_BaseWorkQueue[AsyncJob]._put)
    take = awaiting(_BaseWorkQueue[AsyncJob]._take)
    try_take = awaiting(_BaseWorkQueue[AsyncJob]._try_take)
    depth = awaiting(_BaseWorkQueue[AsyncJob]._depth)
    stats = awaiting(_BaseWorkQueue[AsyncJob]._stats)
    items = awaiting(_BaseWorkQueue[AsyncJob]._items)
    dead = awaiting(_BaseWorkQueue[AsyncJob]._dead)
    retry = awaiting(_BaseWorkQueue[AsyncJob]._retry)
    evict = awaiting(_BaseWorkQueue[AsyncJob]._evict)
