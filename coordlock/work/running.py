"""Loops of consumers, which last through outages. `WorkQueue.run` is one by threads or tasks."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from coordlock.errors import (
    BackendUnavailable,
    ClientClosed,
    Evicted,
    LockLost,
    SessionLost,
    WaitCancelled,
    WorkQueueEmpty,
)
from coordlock.kernel.engine import Engine
from coordlock.runtime.clock import sleep
from coordlock.runtime.deadline import Cancellation, Cancelled, DeadlineReached
from coordlock.runtime.driver import Steps, awaited, awaiting, blocking, bounded
from coordlock.runtime.guards import PlainFunction
from coordlock.runtime.log import Log, described
from coordlock.runtime.promise import Condition, Promise
from coordlock.work.item import AsyncItem, Item

if TYPE_CHECKING:
    import asyncio  # programs that block never load it

__all__ = ["AsyncRunning", "Running", "next_item"]

log = Log("coordlock")

I = TypeVar("I", Item, AsyncItem)  # noqa: E741

_HANDLER: Final = PlainFunction(
    "run calls a handler",
    "whose body would not run before its item is acknowledged",
    "use a work queue of coordlock.connect_async()",
    "do the work in a plain function",
)


#: Seconds to the next attempt while the service is away: the first pause, and the longest.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


def next_item(
    engine: Engine, name: str, take: Callable[[], Steps[I]], stop: Cancellation | None
) -> Steps[I | None]:
    """What ``take`` takes of the queue ``name``; None where nothing came in time, or at a ``stop``.

    It goes on as long as items are ready, and through outages.
    """
    timers, pause = engine.timers, _FIRST_PAUSE
    try:
        while True:
            try:
                return (yield from take())
            except WorkQueueEmpty as empty:
                if not empty.refused:
                    return None
            except (BackendUnavailable, SessionLost, Evicted) as error:
                if engine.sessions.latest is None:
                    raise  # it was never there: the configuration may be wrong
                if pause == _FIRST_PAUSE:
                    text = "work queue %r: %s; takes items again when the service answers"
                    log.warning(text, name, error)
            # At random, because all consumers have lost the service at the same time.
            slept = sleep(timers, pause / 2 + timers.jitter(pause / 2))
            yield from _until_stopped(engine, slept, stop)
            pause = min(2 * pause, _LONGEST_PAUSE)
    except (WaitCancelled, Cancelled):
        return None
    except ClientClosed:
        if stop is None or not stop.cancelled:
            raise
        return None  # its program has told it to stop, and closed the client at once


def _until_stopped(
    engine: Engine, promise: Promise[None], stop: Cancellation | None
) -> Steps[None]:
    yield from bounded(awaited(promise), engine.until(None, stop))


class _BaseRunning(Generic[I]):
    """What threads and tasks share."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        take: Callable[[Cancellation], Steps[I]],
        concurrency: int,
        grace: float,
        cancellation: Cancellation | None,
    ) -> None:
        """``take`` takes an item, until it is cancelled."""
        self._engine: Final = engine
        self._name: Final = name
        self._take: Callable[[Cancellation], Steps[I]] = take
        self._concurrency: Final = concurrency
        self._grace: Final = grace
        #: The caller's, which may end other calls, too.
        self._cancelled: Final = cancellation
        #: Ends this run.
        self._stop: Final = Cancellation()
        #: Notified when a handler has ended.
        self._changed: Final = Condition()
        #: The items whose handlers have not ended, with their tasks, or None.
        self._working: Final[dict[I, Any]] = {}
        #: How many items were acknowledged.
        self._done = 0
        #: What ends all: the handler can't be called, or a thread's is to end the program.
        self._problem: BaseException | None = None

    def _next(self) -> Steps[I | None]:
        """The next item, once fewer than ``concurrency`` are at work; None where none follows."""
        stop = self._stop
        try:
            while True:
                changed = self._changed.notified
                if len(self._working) < self._concurrency:
                    break
                yield from _until_stopped(self._engine, changed, stop)
        except Cancelled:
            return None
        return (yield from next_item(self._engine, self._name, lambda: self._take(stop), stop))

    def _drain(self, seconds: float | None) -> Steps[None]:
        """Wait until all handlers have ended, for ``seconds``; None: until it is to stop."""
        try:
            until = self._engine.until(seconds, self._stop if seconds is None else None)
            yield from bounded(self._all_ended(), until)
        except DeadlineReached:
            pass

    def _all_ended(self) -> Steps[None]:
        while True:
            changed = self._changed.notified
            if not self._working:
                return
            yield changed

    def _ended(self, item: I, error: BaseException | None) -> None:
        """A handler has ended, with ``error`` if it, or the end of its item, has raised that."""
        if isinstance(error, LockLost):
            log.warning("work queue %r: %s", self._name, error)
        elif isinstance(error, Exception):
            which = f"item {item.id}, delivery {item.deliveries}"
            text = "work queue %r: %s: %s"
            log.warning(text, self._name, which, described(error), exc_info=True)  # noqa: LOG014 - in `except`
        self._done += item._ending == "acknowledged" and item._has_ended
        self._working.pop(item, None)
        self._changed.notify()

    def _fail(self, problem: BaseException) -> None:
        """End all with ``problem``."""
        self._problem = self._problem or problem
        self._stop.cancel("a handler has ended the loop")

    def _result(self) -> int:
        if self._problem is not None:
            raise self._problem
        return self._done

    def _given_back(self, item: I) -> None:
        text = "work queue %r: item %s goes back: its handler has not ended within %g s"
        log.warning(text, self._name, item.id, self._grace)


class Running(_BaseRunning[Item]):
    """Calls a handler in threads, one for each item at work."""

    _advance = blocking(_BaseRunning[Item]._next)
    _drained = blocking(_BaseRunning[Item]._drain)

    def run(self, handler: Callable[[Item], object], count: int | None = None) -> int:
        """Go on until there is nothing more to do; how many items were acknowledged.

        Takes ``count`` items at most; None for no limit.
        """
        _HANDLER.check(handler)
        with _stopped(self._stop, self._cancelled):
            try:
                numbers = itertools.count() if count is None else range(count)
                for _ in numbers:
                    if (item := self._advance()) is None:
                        break
                    self._begin(item, handler)
                self._drained(None)
            finally:
                self._finish()
        return self._result()

    def _begin(self, item: Item, handler: Callable[[Item], object]) -> None:
        block = contextlib.ExitStack()
        try:
            block.enter_context(item)  # here, so that Ctrl-C finds it at work
        except LockLost as lost:
            log.warning("work queue %r: %s", self._name, lost)
            return
        self._working[item] = None
        # A daemon, because a handler that never ends must not keep the program from ending.
        name = f"coordlock-item-{item.id}"
        thread = threading.Thread(
            target=self._work, args=(item, block, handler), name=name, daemon=True
        )
        try:
            thread.start()
        except BaseException:
            if thread.ident is None:  # otherwise it works on, and has its grace
                del self._working[item]
                item.release()
            raise

    def _work(
        self, item: Item, block: contextlib.ExitStack, handler: Callable[[Item], object]
    ) -> None:
        try:
            with block:
                try:
                    result = handler(item)
                except BaseException as error:
                    if not isinstance(error, Exception):
                        self._fail(error)  # before the item goes back, lest it be taken again
                    raise
                try:
                    _HANDLER.finished(handler, result)
                except TypeError as wrong:
                    self._fail(wrong)
                    item.release()  # no fault of the item's
        except BaseException as error:
            self._ended(item, error)
        else:
            self._ended(item, None)

    def _finish(self) -> None:
        """Give the handlers that are at work their time, and what they don't finish back."""
        try:
            if self._working:
                self._drained(self._grace)
        finally:
            for item in list(self._working):
                self._given_back(item)
                item.release()


class AsyncRunning(_BaseRunning[AsyncItem]):
    """Awaits a handler in tasks, one for each item at work."""

    _advance = awaiting(_BaseRunning[AsyncItem]._next)
    _drained = awaiting(_BaseRunning[AsyncItem]._drain)

    #: Whether the tasks that are left are cancelled, because their grace is over.
    _is_over = False

    async def run(self, handler: Callable[[AsyncItem], Awaitable[object]]) -> int:
        """Go on until there is nothing more to do; how many items were acknowledged."""
        import asyncio

        if not callable(handler):
            raise TypeError(f"run calls a handler, not {handler!r}")
        tasks: set[asyncio.Task[None]] = set()
        try:
            with _stopped(self._stop, self._cancelled):
                while (item := await self._advance()) is not None:
                    self._working[item] = task = asyncio.create_task(self._work(item, handler))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                await self._drained(None)
                await self._drained(self._grace)
            for item in list(self._working):
                self._given_back(item)
        finally:
            self._is_over = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._result()

    async def _work(
        self, item: AsyncItem, handler: Callable[[AsyncItem], Awaitable[object]]
    ) -> None:
        import asyncio

        try:
            async with item, item.cancel_on_loss():
                await self._handled(item, handler)
        except BaseException as error:
            self._ended(item, error)
            if isinstance(error, asyncio.CancelledError | GeneratorExit):
                raise
        else:
            self._ended(item, None)

    async def _handled(
        self, item: AsyncItem, handler: Callable[[AsyncItem], Awaitable[object]]
    ) -> None:
        import asyncio

        result: object = handler(item)
        if not inspect.isawaitable(result):
            self._fail(TypeError(f"{handler!r} is not a coroutine function: write `async def`"))
            await item.release()  # no fault of the item's
            return
        task = asyncio.current_task()
        assert task is not None
        try:
            await result
        except asyncio.CancelledError as error:
            if task.cancelling():
                raise
            # Something that the handler awaits was cancelled. Without blame, it would come back
            # at once, for ever.
            raise RuntimeError(
                "the handler raised CancelledError, but was not cancelled"
            ) from error
        except BaseException as error:
            if not isinstance(error, Exception | GeneratorExit):
                self._fail(error)  # before the item goes back, lest it be taken again
            raise
        if self._is_over:  # a handler that swallows its cancellation has not done its work
            raise asyncio.CancelledError


#: The runs of this process, by what stops them, and whether they are in the main thread.
_RUNS: Final[dict[Cancellation, bool]] = {}


@contextlib.contextmanager
def _stopped(stop: Cancellation, by: Cancellation | None) -> Iterator[None]:
    """Let ``by`` cancel ``stop``; and SIGTERM, in a program that leaves that to the system.

    SIGTERM may come twice, to the program and to its process group: the second one must not cost
    the grace.
    """
    is_main = threading.current_thread() is threading.main_thread()
    with contextlib.ExitStack() as undo:
        if by is not None:

            def wake(_: object) -> None:
                if by.reason is not None:
                    stop.cancel(by.reason)

            undo.callback(by._wakers.discard, wake)
            by._wakers.add(wake)
            wake(None)  # it may have come before
        undo.callback(_forget, stop)
        _RUNS[stop] = is_main
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _stop_runs)
        yield


def _forget(stop: Cancellation) -> None:
    """That run has ended. The last one in the main thread gives SIGTERM back to the system."""
    was_main = _RUNS.pop(stop, False)
    if was_main and not any(_RUNS.values()) and signal.getsignal(signal.SIGTERM) is _stop_runs:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop_runs(number: int, _: object) -> None:
    if not _RUNS:  # this is a child of the program
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    for stop in list(_RUNS):
        stop.cancel("the process received SIGTERM")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RUNS.clear)
