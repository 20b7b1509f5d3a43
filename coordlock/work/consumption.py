"""The loop of a consumer: item after item, as many at a time as it may have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, Generic, TypeVar

from coordlock.errors import (
    BackendUnavailable,
    Evicted,
    SessionLost,
    WaitCancelled,
    WorkQueueEmpty,
)
from coordlock.kernel.engine import Engine
from coordlock.runtime.clock import sleep
from coordlock.runtime.deadline import Cancellation, Cancelled
from coordlock.runtime.driver import Steps, awaited, awaiting, blocking, bounded
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Condition, Promise
from coordlock.work.item import AsyncItem, Item

__all__ = ["AsyncConsumption", "Consumption"]

log = Log("coordlock")

I = TypeVar("I", Item, AsyncItem)  # noqa: E741

#: Seconds to the next attempt while the service is away: the first pause, and the longest.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class _BaseConsumption(Generic[I]):
    """What sync and async loops share."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        take: Callable[[], Steps[I]],
        concurrency: int,
        cancellation: Cancellation | None,
    ) -> None:
        self._engine: Final = engine
        self._name: Final = name
        self._take: Callable[[], Steps[I]] = take
        self._concurrency: Final = concurrency
        self._cancellation: Final = cancellation
        self._open: list[I] = []
        self._changed: Final = Condition()

    def _next(self) -> Steps[I | None]:
        """The next item, once fewer than ``concurrency`` are at work; None where none follows."""
        try:
            while True:
                changed = self._changed.notified
                self._open = [one for one in self._open if self._is_at_work(one)]
                if len(self._open) < self._concurrency:
                    break
                self._refuse_to_wait_for_ever()
                yield from self._until_cancelled(changed)
            item = yield from self._taken()
        except (WaitCancelled, Cancelled, WorkQueueEmpty):
            return None
        self._open.append(item)
        item._end.add_done_callback(lambda _: self._changed.notify())
        return item

    def _is_at_work(self, item: I) -> bool:
        return not item._end.done()

    def _taken(self) -> Steps[I]:
        """The next item. The loop goes on as long as items are ready, and through outages."""
        timers, pause = self._engine.timers, _FIRST_PAUSE
        while True:
            try:
                return (yield from self._take())
            except WorkQueueEmpty as empty:
                if not empty.refused:
                    raise
            except (BackendUnavailable, SessionLost, Evicted) as error:
                if self._engine.sessions.latest is None:
                    raise  # it was never there: the configuration may be wrong
                if pause == _FIRST_PAUSE:
                    text = "work queue %r: %s; takes items again when the service answers"
                    log.warning(text, self._name, error)
            # At random, because all consumers have lost the service at the same time.
            slept = sleep(timers, pause / 2 + timers.jitter(pause / 2))
            yield from self._until_cancelled(slept)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _until_cancelled(self, promise: Promise[None]) -> Steps[None]:
        yield from bounded(awaited(promise), self._engine.until(None, self._cancellation))

    def _refuse_to_wait_for_ever(self) -> None:
        [*_, last] = self._open
        if self._concurrency == 1 and not last._is_entered:
            raise RuntimeError(
                f"item {last.id} of the work queue {last.name!r} is neither acknowledged nor given "
                "back: write `with item:` around what the loop does with it"
            )


class Consumption(_BaseConsumption[Item], Iterator[Item]):
    """What `WorkQueue.consume` returns."""

    _advance = blocking(_BaseConsumption[Item]._next)

    def __next__(self) -> Item:
        item = self._advance()
        if item is None:
            raise StopIteration
        return item


class AsyncConsumption(_BaseConsumption[AsyncItem], AsyncIterator[AsyncItem]):
    """What `AsyncWorkQueue.consume` returns."""

    _advance = awaiting(_BaseConsumption[AsyncItem]._next)

    async def __anext__(self) -> AsyncItem:
        item = await self._advance()
        if item is None:
            raise StopAsyncIteration
        return item
