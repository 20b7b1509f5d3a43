"""One item at work: the grant of its claim."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Literal

from coordlock.backend.data import Delete, Expect, Operation
from coordlock.errors import (
    BackendUnavailable,
    ClientClosed,
    CoordlockError,
    Evicted,
    LockLost,
    Unsupported,
)
from coordlock.locks.base_grant import BaseGrant, GrantState
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.claim import Claim, Mode
from coordlock.model.events import ItemEnded
from coordlock.runtime.clock import sleep, within
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.log import Log, described
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise
from coordlock.runtime.recorder import RECORDER
from coordlock.settings import DEFAULT, Duration, Timeout, seconds_of, timeout_of
from coordlock.work.chores import log_dead
from coordlock.work.consumer import Claimed, Consumer
from coordlock.work.layout import ending, milliseconds
from coordlock.work.records import Ended
from coordlock.work.store import Outcome, Writing

__all__ = ["LONGEST_DELAY", "AsyncItem", "Item", "Retries", "delay_of"]

_Outcome = Literal["acknowledged", "failed", "given back", "lost"]

log = Log("coordlock")

#: The longest delay, in seconds: 366 days.
LONGEST_DELAY: Final = 366 * 86_400.0
#: How much is kept of why an item failed.
_LONGEST_REASON: Final = 500
#: Seconds between two attempts to end an item after its block.
_PAUSE_S: Final = 0.1


def delay_of(delay: Duration, what: str = "delay") -> float:
    """The seconds of ``delay``. Raises ValueError unless they are 0 to 366 days."""
    try:
        seconds = seconds_of(delay)
    except ValueError as error:
        raise ValueError(f"{what}: {delay!r} is not {error}") from None
    if not 0 <= seconds <= LONGEST_DELAY:  # nor is NaN
        raise ValueError(f"{what}: {delay!r} is not 0 to {LONGEST_DELAY:g} seconds")
    return seconds


@dataclass(frozen=True)
class Retries:
    """When an item that failed is tried again, and when no more.

    Attributes:
        delay: seconds to the second try.
        max_delay: up to which each delay is twice the one before, and drawn at random from its
            upper half, so that what failed together is not tried together; None for ``delay`` each
            time.
    """

    delay: float
    max_delay: float | None

    def after(self, failures: int, jitter: float) -> float:
        """Seconds to the next try after so many; ``jitter`` is 0 to 1."""
        if self.max_delay is None:
            return self.delay
        longest = min(self.max_delay, self.delay * 2.0 ** min(failures - 1, 60))
        return longest * (1 - jitter / 2)


class _BaseItem(BaseGrant):
    """What sync and async items share."""

    _instead = "pass its id and its token instead"
    _kind = "item of work queue"

    def __init__(self, consumer: Consumer, claimed: Claimed, retries: Retries) -> None:
        self._end_of_item = claimed.worker.end
        super().__init__(consumer.store.engine, claimed.worker.ticket)
        entry = claimed.entry
        #: The name of the work queue.
        self.name = consumer.store.layout.name
        #: The item's id, the same at each delivery.
        self.id: Final = entry.id
        #: What was put.
        self.data: Final = claimed.content.data
        #: How often the item was handed to a worker, this time included: 1 or more.
        self.deliveries: Final = entry.deliveries + 1
        #: How often it failed before: given back by `nack`, or its worker ended at work.
        self.failures: Final = entry.failures
        #: When it was put, in seconds since 1970, by the clock of its producer.
        self.put_at: Final = claimed.content.put_at
        self._consumer = consumer
        self._claimed = claimed
        self._retries = retries
        self._began: Final = self._engine.clock.now()
        self._is_recorded = False
        if RECORDER.listeners:
            self._end_of_item.add_done_callback(self._note_end)
        self._lock = threading.RLock()  # a signal handler may end it, too
        #: How it is being ended, or has ended; None while nobody has said.
        self._ending: str | None = None
        self._has_ended = False
        #: Whether an attempt to end it has no answer, so that it may have ended.
        self._is_unclear = False

    @property
    def _end(self) -> Promise[CoordlockError | None]:
        return self._end_of_item

    @property
    def claim(self) -> Claim:
        """`Mode.EX`: nobody else works on the item, and fences take its token for such."""
        return Mode.EX

    @property
    def sequencer(self) -> str:
        """Raises `Unsupported`: a sequencer names a lock. A server checks the token by a fence."""
        raise Unsupported(
            "an item has no sequencer, because a sequencer names a lock: send its id and its token"
        )

    @property
    def state(self) -> GrantState:
        """The state now. Cheap: it looks at the clock and does not ask the service."""
        return GrantState.RELEASED if self._has_ended else super().state

    def _ack(self) -> Steps[None]:
        """The work is done: remove the item for good.

        In one step with the look whether the claim still stands. A worker whose session was lost
        meanwhile, or that was evicted, gets `LockLost`, and another worker has the item, or will.
        Where an answer was lost before that, the error says that the outcome is unknown. Raises
        `BackendUnavailable` when no answer came within the client's ``request_timeout``: the item
        may be acknowledged, or may be yet, and to call it again is safe. Raises
        RuntimeError when it has ended.
        """
        item = self._consumer.store.layout.item(self._claimed.entry.number)
        yield from self._finish("acknowledged", [Delete(item)])

    def _nack(self, delay: Duration | None = None, reason: str = "") -> Steps[None]:
        """The work has failed: let the item be taken again, after ``delay`` seconds.

        By default after the queue's ``retry_delay``, or its backoff. Without delay it is among the
        next to be taken. An item that has failed ``max_failures`` times becomes dead instead, with
        ``reason``. Up to 366 days; the clock of this machine says when that is, and the consumers'
        clocks when it has come. Raises what `ack` raises, and ValueError for another delay.
        """
        seconds = self._retries.after(self.failures + 1, self._engine.timers.jitter(1.0))
        seconds = seconds if delay is None else delay_of(delay)
        due = milliseconds() + int(seconds * 1000) if seconds > 0 else 0
        why = reason[:_LONGEST_REASON]
        ended = Ended.of(
            self._claimed.entry, self._consumer.max_failures, due=due, failed=True, reason=why
        )
        yield from self._finish("given back", ended.keeping(self._consumer.store.layout))
        log_dead(self.name, ended)
        self._consumer.note_given_back()

    def _finish(self, how: str, operations: Sequence[Operation]) -> Steps[None]:
        """End the claim, and do ``operations`` in the same step."""
        try:
            if not self._has_ended:
                self.check()
            with self._lock:
                if self._has_ended or self._ending not in (None, how):
                    raise RuntimeError(
                        f"item {self.id} of the work queue {self.name!r} was {self._ending} already"
                    )
                self._ending = how
            yield from self._guarded(self._write(how, operations))
        except LockLost as lost:
            if self._has_ended:  # by another thread, in the same way
                return
            self._withdraw()  # no block may come that would do it
            if self._is_unclear:
                reason = f"{lost.reason}; whether item {self.id} was {self._ending} is unknown"
                raise self._lost_because(reason) from lost
            raise
        self._conclude()

    def _write(self, how: str, operations: Sequence[Operation]) -> Steps[None]:
        engine, store = self._engine, self._consumer.store
        claim, guards = f"{store.layout.claims}{self._claimed.entry}", self._ticket.contenders
        writing = Writing(store, [*ending(claim), *operations], guards)

        def steps() -> Steps[None]:
            made = yield from writing.steps()
            if made is not Outcome.MADE:
                # While this worker is in its queue, nobody else removes the claim. So where it has
                # gone, an earlier attempt has made the write, or another thread.
                made = yield from store.write([Expect(claim, 0)], guards)
            if made is not Outcome.MADE:
                raise Evicted(self.name)  # an operator is evicting it: see `taken_away`

        was_unclear, self._is_unclear = self._is_unclear, True
        try:
            yield from store.bounded(steps())
        except DeadlineReached as late:
            silent = engine.silent(late)
            reason = f"{silent.reason}; item {self.id} may be {how}, or may be yet"
            raise BackendUnavailable(silent.service, reason) from late.__cause__
        except Exception:
            self._is_unclear = was_unclear or writing.unanswered is not None
            raise

    def _note_end(self, end: Promise[CoordlockError | None]) -> None:
        if not (end.result() is None or isinstance(end.result(), ClientClosed)):
            self._record("lost")

    def _record(self, outcome: _Outcome) -> None:
        if RECORDER.listeners and not self._is_recorded:
            self._is_recorded = True
            engine = self._engine
            facts = engine.number, engine.backend.scheme, self.name, self.id, outcome
            took = engine.clock.now() - self._began
            RECORDER.record(ItemEnded(*facts, self.deliveries, took))

    def _conclude(self) -> None:
        with self._lock:
            has_ended, self._has_ended, self._released = self._has_ended, True, True
        if not has_ended:
            self._record("acknowledged" if self._ending == "acknowledged" else "failed")
            self._consumer.workers.put_back(self._claimed.worker)

    def _release(self, timeout: Timeout = DEFAULT) -> Steps[bool]:
        """Give the item back, to be taken by another at once; whether it was still held.

        It counts as a delivery, and not as a failure. This goes on in the background until it is
        certain, also where no answer came within ``timeout`` seconds (default: the client's
        ``request_timeout``; None: as long as it takes). An item that has ended stays as it is.
        """
        engine = self._engine
        if engine.inherited:
            engine.check()
        patience = engine.settings.request_timeout
        seconds = timeout_of("release", patience if timeout is DEFAULT else timeout)
        with self._lock:
            begins = self._ending is None
            self._ending = self._ending or "given back"
        was_held = self._loss() is None
        self._released = True
        if begins:
            back = self._consumer.give_back(self._claimed)
            self._has_ended = was_held
            if was_held:
                self._record("given back")
            if was_held and not THREAD.must_not_wait:
                yield within(engine.timers, back, seconds)
        elif not self._has_ended:
            self._withdraw()  # an earlier call had no answer: let others have it
        return was_held

    def _leave(self, body: BaseException | None) -> Steps[None]:
        """The block has ended: acknowledge the item, or give it back where the block has failed.

        Until that has an answer, or the item is lost: a short outage undoes no work. A service that
        refuses writes and takes heartbeats ends the attempts after a time-to-live.
        """
        if self._engine.inherited or self._has_ended:
            return
        try:
            if self._ending == "acknowledged" or (body is None and self._ending is None):
                yield from self._repeated(self._ack)
            elif self._ending is not None:
                pass  # whether it was given back is not known: see below
            elif isinstance(body, Exception):
                yield from self._repeated(partial(self._nack, reason=described(body)))
            else:  # the worker was stopped, which is not the item's fault
                yield from self._release()
        except LockLost as lost:
            self._chain(body, lost)
        except BackendUnavailable:
            if body is None:
                raise
        finally:
            self._released = True
            if not self._has_ended:
                self._withdraw()  # which makes its claim void: the item is taken again

    def _repeated(self, end: Callable[[], Steps[None]]) -> Steps[None]:
        has_failed = False
        clock = self._engine.clock
        gives_up_at = clock.now() + self._engine.settings.ttl
        while True:
            try:
                return (yield from end())
            except BackendUnavailable as error:
                if clock.now() >= gives_up_at and self._loss() is None:
                    raise
                if not has_failed:
                    log.warning("work queue %r: item %s: %s", self.name, self.id, error)
                has_failed = True
            with suppress(ClientClosed):  # then the item is lost, as `end` says
                yield sleep(self._engine.timers, _PAUSE_S)

    def __repr__(self) -> str:
        state = self._ending if self._has_ended else self.state.value
        return (
            f"<{type(self).__name__} {self.id} of {self.name!r} token={self._first_token} {state}>"
        )


class Item(_BaseItem, Grant):
    """An item of a work queue, taken: `data` is what was put. A context manager.

    At the end of its block the item is acknowledged, as by `ack`; where the block raises, it is
    given back, as by `nack`. It is lost as every grant is: with the session, at an eviction, after
    ``max_hold``. Then others take the item, and nothing that this worker does to it is accepted.
    """

    ack = blocking(_BaseItem._ack)
    nack = blocking(_BaseItem._nack)
    # An item's own, of which Grant's knows nothing.
    release = blocking(_BaseItem._release)  # type: ignore[arg-type]
    _left = blocking(_BaseItem._leave)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._left(body)


class AsyncItem(_BaseItem, AsyncGrant):
    """An item of a work queue, taken: `data` is what was put. An async context manager.

    The rest is as for `Item`.
    """

    ack = awaiting(_BaseItem._ack)
    nack = awaiting(_BaseItem._nack)
    # An item's own, of which Grant's knows nothing.
    release = awaiting(_BaseItem._release)  # type: ignore[arg-type]
    _left = awaiting(_BaseItem._leave)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._left(body)
