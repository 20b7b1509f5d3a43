"""Work queues: items that some put and others do, each at least once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar, Final, Generic, TypeVar, cast

from coordlock.errors import (
    BackendUnavailable,
    WaitCancelled,
    WaitUnavailable,
    WorkQueueEmpty,
)
from coordlock.kernel.access import Access
from coordlock.kernel.engine import Engine
from coordlock.locks.publishing import check_value
from coordlock.model.names import check_name
from coordlock.runtime.deadline import Cancellation, Cancelled, DeadlineReached, checked
from coordlock.runtime.driver import Steps, awaiting, blocking, bounded
from coordlock.runtime.guards import Resident
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
from coordlock.work.consumer import Consumer, Wanted
from coordlock.work.item import AsyncItem, Item, Retries, delay_of
from coordlock.work.layout import number_of
from coordlock.work.producer import Parcel, Producer
from coordlock.work.running import AsyncRunning, Running, next_item
from coordlock.work.store import Store
from coordlock.work.view import ItemView, WorkQueueStats

__all__ = ["AsyncWorkQueue", "WorkQueue"]

I = TypeVar("I", Item, AsyncItem)  # noqa: E741
T = TypeVar("T")


class _Shared:
    """What all objects for one queue, with equal options, share in one client.

    See `Engine.share_while_used`.
    """

    def __init__(self, engine: Engine, name: str, max_failures: int, label: str | None) -> None:
        self.store: Final = Store(engine, name)
        self.producer: Final = Producer(self.store)
        self.consumer: Final = Consumer(self.store, max_failures, label)


class _BaseWorkQueue(Resident, Generic[I]):
    """What sync and async work queues share."""

    _item_kind: ClassVar[type[Item | AsyncItem]]
    _instead = "pass its name instead, and make another object with a client there"

    def __init__(
        self,
        access: Access,
        name: str,
        *,
        max_depth: int | None = None,
        max_failures: int = 10,
        retry_delay: Duration = 0,
        max_retry_delay: Duration | None = None,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        label: str | None = None,
    ) -> None:
        settings = access.settings
        self.name: Final = check_name(name)
        #: How many items may wait when another one is put; None for no limit.
        self.max_depth: Final = None if max_depth is None else _positive("max_depth", max_depth)
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
        self._max_failures: Final = _positive("max_failures", max_failures)
        longest = None if max_retry_delay is None else delay_of(max_retry_delay, "max_retry_delay")
        self._retries: Final = Retries(delay_of(retry_delay, "retry_delay"), longest)
        self._access: Final = access
        #: That of the process that used it last: kept here, so that the client keeps it, too.
        self._shared = self._share()

    def _share(self) -> _Shared:
        engine = self._access.engine
        facts: tuple[str, int, str | None] = self.name, self._max_failures, self.label
        self._shared = engine.share_while_used(("work", *facts), lambda: _Shared(engine, *facts))
        return self._shared

    def _put(self, data: bytes, delay: Duration = 0) -> Steps[str]:
        """Put an item with ``data``, up to 65,536 bytes, at the end of the queue; its id.

        It is there from then on, whatever becomes of this client, until a worker has acknowledged
        it. With a ``delay``, up to 366 days, it may be taken so many seconds from now, before new
        items: this machine's clock says when that is, and the consumers' clocks when it has come.
        Where an answer is lost, the client finds out whether the item was put.

        Raises `WorkQueueFull` where ``max_depth`` items wait; those with a delay neither count nor
        are refused. Raises `BackendUnavailable` when no answer came within the client's
        ``request_timeout``: then it says whether the item may have been put, or may be yet. Raises
        TypeError and ValueError for other data, `NameConflict` where another release keeps the
        queue in another way, `AuthenticationFailed` and `ClientClosed`.
        """
        [id] = yield from self._put_many([data], delay)
        return id

    def _put_many(self, data: Iterable[bytes], delay: Duration = 0) -> Steps[list[str]]:
        """Put an item for each of ``data``, in order; their ids.

        It takes as few requests as the service allows: each puts up to 60 items and 900,000 bytes.
        A request puts all of its items or none. Raises what `put` raises; then a note on the error
        says how many of the items were put.
        """
        if isinstance(data, bytes | bytearray | memoryview):
            raise TypeError("put_many takes several items: pass a list of bytes, or call put")
        seconds = delay_of(delay)
        parcels = [Parcel(check_value(one, "data"), seconds, self.max_depth) for one in data]
        return (yield from self._share().producer.put(parcels))

    def _take(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[I]:
        """Take an item, or wait for one; the grant of it.

        A consumer that is alone first takes items that were given back, whose worker has ended, or
        whose delay is over. Then it takes the others in the order in which they were put. Among
        several consumers, an item may be taken some hundreds before its turn. ``timeout`` (seconds,
        or such as ``"30s"``) is the queue's by default: None waits for ever, 0 looks once. Clients
        that wait get items in no order. In one client, the call that came first gets the next item.

        Raises `WorkQueueEmpty` where no item was ready, or other consumers were faster each time;
        `WaitUnavailable` where the service gave no answer in time; `WaitCancelled` when
        ``cancellation`` comes, or a signal after `release_on_signals`; and what `put` raises.
        """
        seconds = self.timeout if isinstance(timeout, Default) else timeout_of("take", timeout)
        wanted, item = yield from self._next(seconds, cancellation)
        if item is not None:
            return item
        raise WorkQueueEmpty(self.name, seconds or 0.0, wanted.refused or 0)

    def _try_take(self) -> Steps[I | None]:
        """An item that is ready now, or None. Raises what `take` raises."""
        return (yield from self._next(0))[1]

    def _next(
        self, seconds: float | None, cancellation: Cancellation | None = None
    ) -> Steps[tuple[Wanted, I | None]]:
        """An item within so many seconds, or None; 0 looks once."""
        consumer = self._share().consumer
        engine = consumer.store.engine
        began = engine.clock.now()
        yield from engine.first_session()
        deadline = engine.until(
            engine.settings.request_timeout if seconds == 0 else seconds, cancellation
        )
        wanted = Wanted(once=seconds == 0)

        try:
            try:
                claimed = yield from bounded(consumer.take(wanted), deadline)
                if claimed is None:
                    return wanted, None
                ticket = claimed.worker.ticket
                ticket.waited = engine.clock.now() - began
                if self.max_hold is not None:
                    engine.tickets.limit(ticket, self.max_hold)
                return wanted, cast("I", self._item_kind(consumer, claimed, self._retries))
            except BaseException:
                consumer.abandon(wanted)
                raise
        except WaitUnavailable as error:
            raise self._unavailable(error, seconds) from error.__cause__
        except Cancelled as cancelled:
            reason = str(cancelled)
            raise WaitCancelled(self.name, reason, kind="work queue") from cancelled.__cause__
        except DeadlineReached as late:
            if wanted.refused is not None:
                return wanted, None
            raise self._unavailable(engine.silent(late), seconds) from late.__cause__

    def _unavailable(self, silent: BackendUnavailable, seconds: float | None) -> WaitUnavailable:
        facts = silent.service, silent.reason, self.name, seconds or 0.0
        return WaitUnavailable(*facts, kind="work queue", problem="gave no item")

    def _consumed(self, last: I | None, timeout: Timeout) -> Steps[I | None]:
        """The item after ``last``, which must have ended; None where none follows."""
        if not (last is None or last._released or last._end.done()):
            raise RuntimeError(
                f"item {last.id} of the work queue {last.name!r} is neither acknowledged nor given "
                "back: write `with item:` around what the loop does with it"
            )
        engine = self._share().store.engine
        return (yield from next_item(engine, self.name, partial(self._take, timeout), None))

    def _running(
        self,
        concurrency: int,
        grace: Duration,
        timeout: Timeout,
        cancellation: Cancellation | None,
    ) -> tuple[Engine, str, Callable[[Cancellation], Steps[I]], int, float, Cancellation | None]:
        """What a run is made of."""
        number, seconds = _positive("concurrency", concurrency), delay_of(grace, "grace")
        take = lambda stop: self._take(timeout, cancellation=stop)  # noqa: E731
        return self._access.engine, self.name, take, number, seconds, checked(cancellation)

    def _depth(self) -> Steps[int]:
        """How many items may be taken now: neither delayed nor taken ones.

        It reads the names of all that wait or are delayed. Raises `BackendUnavailable`.
        """
        return (yield from self._asked(Store.ready))

    def _stats(self) -> Steps[WorkQueueStats]:
        """How many items wait, are taken, are delayed, and are dead.

        It reads the names of all of them, and no item. Raises `BackendUnavailable`.
        """
        return (yield from self._asked(view.stats))

    def _items(self, limit: int = 100) -> Steps[tuple[ItemView, ...]]:
        """The first ``limit`` items: those at work, those that wait, in order, then delayed ones.

        Each is as it was at a moment of this call. Raises `BackendUnavailable`.
        """
        return (yield from self._asked(view.live_items, _positive("limit", limit)))

    def _dead(self, limit: int = 100) -> Steps[tuple[ItemView, ...]]:
        """The first ``limit`` of the items that have failed too often.

        Nobody takes them any more: see `retry`. Raises `BackendUnavailable`.
        """
        return (yield from self._asked(view.dead_items, _positive("limit", limit)))

    def _retry(self, id: str) -> Steps[None]:
        """Let a dead item be taken again, before new items, as if it had never been taken.

        Raises LookupError where no dead item has this ``id``, ValueError for what is no id, and
        `BackendUnavailable`: then it may be so, or may be yet.
        """
        yield from self._asked(view.ready_again, number_of(id))

    def _evict(self, id: str) -> Steps[bool]:
        """Take the item ``id`` away from the worker that has it; whether one had it. For operators.

        The worker is told that its item is lost, but may still be at work: nothing that it does to
        the item is accepted. Others take it. Raises ValueError for what is no id, and
        `BackendUnavailable`.
        """
        worker = yield from self._asked(view.taken_away, number_of(id))
        if worker is None:
            return False
        engine = self._access.engine
        yield from engine.remove(lambda: engine.backend.evict(worker))
        return True

    def _remove(self, id: str) -> Steps[bool]:
        """Remove the item ``id`` for good, unless a worker has it; whether it was there.

        For operators. Raises ValueError for what is no id, and `BackendUnavailable`.
        """
        return (yield from self._asked(view.removed, number_of(id))) > 0

    def _purge(self) -> Steps[int]:
        """Remove all items that wait, are delayed, or dead; how many. Those at work stay.

        For operators. Raises `BackendUnavailable`; then some of them may be gone.
        """
        return (yield from self._asked(view.removed))

    def _asked(self, look: Callable[..., Steps[T]], *given: object) -> Steps[T]:
        """What ``look`` finds here. Raises `NameConflict` where another release keeps the queue."""
        store = self._share().store

        def steps() -> Steps[T]:
            yield from store.check()
            return (yield from look(store, *given))

        return (yield from store.engine.bounded(steps()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {self._access.settings}>"


def _positive(what: str, number: object) -> int:
    """``number``, an integer of 1 or more. Raises ValueError for another."""
    if type(number) is not int or number < 1:
        raise ValueError(f"{what} must be an integer of 1 or more, not {number!r}")
    return number


class WorkQueue(_BaseWorkQueue[Item]):
    """Items that some put and others do, each at least once. Made by `Client`; cheap, reusable.

    As in::

        queue = client.work_queue("mails")
        queue.put(b"to: ann")

        queue.run(lambda item: send(item.data), concurrency=8)

    Threads share it.
    """

    _item_kind = Item

    def run(
        self,
        handler: Callable[[Item], object],
        *,
        concurrency: int = 1,
        grace: Duration = 30.0,
        timeout: Timeout = None,
        cancellation: Cancellation | None = None,
    ) -> int:
        """Call ``handler(item)`` for item after item; how many were acknowledged.

        Up to ``concurrency`` at a time, each in a thread. When the handler returns, the item is
        acknowledged. When it raises, the item has failed, as by `Item.nack`, and the log says why.
        While the service is away, it waits. A handler whose item is lost meanwhile should end soon:
        see ``item.lost`` and ``item.check()``.

        It ends when ``cancellation`` is cancelled; where it got no item for ``timeout`` seconds, by
        default never; after a signal that `release_on_signals` handles; and on SIGTERM, which ends
        all runs of a program that has one in its main thread and does not handle SIGTERM itself.
        Then it takes no more items, and the handlers have ``grace`` seconds to end. It gives
        back what they have not finished, and counts no failure.

        Raises what `take` raises, but for outages and losses; TypeError for a coroutine function;
        and what else than an `Exception` a handler raises.
        """
        return Running(*self._running(concurrency, grace, timeout, cancellation)).run(handler)

    def consume(self, *, timeout: Timeout = None) -> Iterator[Item]:
        """Take item after item: an iterator of items, each of which is to be entered by ``with``.

        For loops of your own: `run` does the rest, too. While the service is away, it waits. It
        ends after a signal that `release_on_signals` handles, and where no item was ready for
        ``timeout`` seconds, by default never. An exception of the block gives the item back and
        ends a loop that does not catch it. Raises what `take` raises, but for outages and losses,
        and RuntimeError where the last item has not ended.
        """
        item = None
        while (item := self._next_after(item, timeout)) is not None:
            yield item

    _next_after = blocking(_BaseWorkQueue[Item]._consumed)
    put = blocking(_BaseWorkQueue[Item]._put)
    put_many = blocking(_BaseWorkQueue[Item]._put_many)
    take = blocking(_BaseWorkQueue[Item]._take)
    try_take = blocking(_BaseWorkQueue[Item]._try_take)
    depth = blocking(_BaseWorkQueue[Item]._depth)
    stats = blocking(_BaseWorkQueue[Item]._stats)
    items = blocking(_BaseWorkQueue[Item]._items)
    dead = blocking(_BaseWorkQueue[Item]._dead)
    retry = blocking(_BaseWorkQueue[Item]._retry)
    evict = blocking(_BaseWorkQueue[Item]._evict)
    remove = blocking(_BaseWorkQueue[Item]._remove)
    purge = blocking(_BaseWorkQueue[Item]._purge)


class AsyncWorkQueue(_BaseWorkQueue[AsyncItem]):
    """Items that some put and others do, each at least once. Made by `AsyncClient`.

    As in::

        queue = client.work_queue("mails")
        await queue.put(b"to: ann")

        async def handle(item: coordlock.AsyncItem) -> None:
            await send(item.data)

        await queue.run(handle, concurrency=100)
    """

    _item_kind = AsyncItem

    async def run(
        self,
        handler: Callable[[AsyncItem], Awaitable[object]],
        *,
        concurrency: int = 1,
        grace: Duration = 30.0,
        timeout: Timeout = None,
        cancellation: Cancellation | None = None,
    ) -> int:
        """Await ``handler(item)`` for item after item, each in a task: see `WorkQueue.run`.

        A handler is cancelled when its item is lost, when its ``grace`` is over, and at once when
        this call is cancelled.
        """
        running = AsyncRunning(*self._running(concurrency, grace, timeout, cancellation))
        return await running.run(handler)

    async def consume(self, *, timeout: Timeout = None) -> AsyncIterator[AsyncItem]:
        """Take item after item: see `WorkQueue.consume`."""
        item = None
        while (item := await self._next_after(item, timeout)) is not None:
            yield item

    _next_after = awaiting(_BaseWorkQueue[AsyncItem]._consumed)
    put = awaiting(_BaseWorkQueue[AsyncItem]._put)
    put_many = awaiting(_BaseWorkQueue[AsyncItem]._put_many)
    take = awaiting(_BaseWorkQueue[AsyncItem]._take)
    try_take = awaiting(_BaseWorkQueue[AsyncItem]._try_take)
    depth = awaiting(_BaseWorkQueue[AsyncItem]._depth)
    stats = awaiting(_BaseWorkQueue[AsyncItem]._stats)
    items = awaiting(_BaseWorkQueue[AsyncItem]._items)
    dead = awaiting(_BaseWorkQueue[AsyncItem]._dead)
    retry = awaiting(_BaseWorkQueue[AsyncItem]._retry)
    evict = awaiting(_BaseWorkQueue[AsyncItem]._evict)
    remove = awaiting(_BaseWorkQueue[AsyncItem]._remove)
    purge = awaiting(_BaseWorkQueue[AsyncItem]._purge)
