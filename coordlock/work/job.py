"""One item under work: the grant of its claim."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final

from coordlock.backend import Delete, Expect, Operation, Put
from coordlock.errors import BackendUnavailable, JobEnded, LockLost, Unsupported
from coordlock.locks.base_grant import BaseGrant
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.claim import Claim, Mode
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.runtime.methods import awaiting, blocking
from coordlock.settings import Duration, seconds_of
from coordlock.work.consumer import Taken, burying
from coordlock.work.desk import Desk
from coordlock.work.layout import bucket_at, creating
from coordlock.work.records import Again
from coordlock.work.writing import Outcome, written

__all__ = ["LONGEST_DELAY", "AsyncJob", "Job", "delay_of"]

log = Log("coordlock")

#: The longest delay, in seconds: 366 days.
LONGEST_DELAY: Final = 366 * 86_400.0
#: How much is kept of why an item was given back.
_LONGEST_REASON: Final = 500


def delay_of(delay: Duration) -> float:
    """The seconds of ``delay``. Raises ValueError unless they are 0 to 366 days."""
    try:
        seconds = seconds_of(delay)
    except ValueError as error:
        raise ValueError(f"delay: {delay!r} is not {error}") from None
    if not 0 <= seconds <= LONGEST_DELAY:  # nor is NaN
        raise ValueError(f"delay: {delay!r} is not 0 to {LONGEST_DELAY:g} seconds")
    return seconds


class _BaseJob(BaseGrant, shown="Job"):
    """What sync and async jobs share."""

    _instead = "pass its id and its token on"

    def __init__(self, desk: Desk, taken: Taken, max_attempts: int, retry_delay: float) -> None:
        super().__init__(desk.engine, taken.ticket)
        #: The name of the work queue.
        self.name = desk.layout.name
        #: The item's id, the same at each attempt.
        self.id: Final = str(taken.attempt.id)
        #: What was put.
        self.data: Final = taken.item.data
        #: How often the item was taken, this time included: 1 or more.
        self.attempt: Final = taken.attempt.attempt
        #: When it was put, in seconds since 1970, by the clock of who did.
        self.put_at: Final = taken.item.put_at
        self._desk = desk
        self._taken = taken
        self._max_attempts = max_attempts
        self._retry_delay = retry_delay
        #: How it has ended; None while it has not.
        self._ended: str | None = None

    @property
    def claim(self) -> Claim:
        """`Mode.EX`: nobody else works on the item, and fences take the job's token for such."""
        return Mode.EX

    @property
    def sequencer(self) -> str:
        """None: raises `Unsupported`. A server finds out by the token, as by a fence."""
        raise Unsupported("a job has no sequencer, which names a lock: send its id and its token")

    def _done(self) -> Steps[None]:
        """The work is done: remove the item for good.

        In one step with the look whether the claim still stands: a worker whose session was lost
        meanwhile, or that was evicted, gets `LockLost`, and another one has the item, or will. Also
        where that came before the answer; the item may have been removed then. Raises
        `BackendUnavailable` when no answer came within the client's ``request_timeout``: it may be
        done, or may be yet, and to call it again is safe. Raises `JobEnded` when it has ended.
        """
        yield from self._finish("done", [Delete(self._desk.layout.item(self._taken.attempt.id))])

    def _nack(self, delay: Duration | None = None, reason: str = "") -> Steps[None]:
        """The work is not done: let the item be taken again, after ``delay`` seconds.

        By default after the queue's ``retry_delay``. Without delay it is the next to be taken. An
        item that was taken ``max_attempts`` times goes to the dead instead, with ``reason``. Up to
        366 days; the clock of this machine says when that is, and the consumers' clocks when it
        has come. Raises what `done` raises, and ValueError for another delay.
        """
        seconds = self._retry_delay if delay is None else delay_of(delay)
        if self.attempt >= self._max_attempts:
            shown = reason[:_LONGEST_REASON] or f"given back {self.attempt} times"
            yield from self._finish("given back", burying(self._desk, self._taken.attempt, shown))
        else:
            yield from self._finish("given back", self._returning(seconds))

    def _returning(self, delay: float) -> Sequence[Operation]:
        """What lets the item be taken again."""
        layout, attempt = self._desk.layout, self._taken.attempt
        bell = Put(layout.bell, b"")
        if delay <= 0:
            return *creating(layout.returned(attempt), Again(0, self.token).encode()), bell
        due = time.time() + delay
        record = Again(due, self.token).encode()
        return *layout.later.adding(bucket_at(due, attempt.id), attempt, record), bell

    def _finish(self, how: str, operations: Sequence[Operation]) -> Steps[None]:
        """End the claim, and do ``operations`` in the same step."""
        if self._ended is not None:
            raise JobEnded(self.name, self.id, self._ended)
        try:
            self.check()
            yield from self._ending(how, operations)
        except LockLost:
            self._abandon()  # no block may come that would do it
            raise
        self._ended = how
        self._released = True
        self._ticket.withdraw()

    def _ending(self, how: str, operations: Sequence[Operation]) -> Steps[None]:
        engine, claim = self._engine, self._desk.layout.claim(self._taken.attempt)
        yield engine.deadline(engine.settings.request_timeout)
        try:
            writing = self._written([Expect(claim, 1), Delete(claim), *operations])
            outcome = yield from self._guarded(writing)
            if outcome is Outcome.UNCLEAR:
                # While this contender stands, nobody else removes the claim: so the attempt did.
                outcome = yield from self._guarded(self._written([Expect(claim, 0)]))
        except DeadlineReached as late:
            silent = engine.silent(late)
            reason = f"{silent.reason}; item {self.id} may be {how}, or may be yet"
            raise BackendUnavailable(silent.service, reason) from late.__cause__
        if outcome is not Outcome.MADE:
            raise LockLost(self.name, self.token, "its claim was removed by hand")

    def _written(self, operations: Sequence[Operation]) -> Steps[Outcome]:
        desk = self._desk
        return written(desk.service, desk.engine.timers, operations, self._ticket.contenders)

    def _release(self, timeout: Duration | None = None) -> Steps[bool]:
        """Give the item back, to be taken by another at once; whether it was still held.

        The attempt counts. Whether the service answers or not, the item is given back: the claim
        ends with its contender, which is removed until that is certain.
        """
        if self._ended is None and self._ticket.lost is None and not self._ticket.is_leaving:
            with suppress(BackendUnavailable, LockLost):
                yield from self._finish("given back", self._returning(0))
        self._ended = self._ended or "given back"
        return (yield from super()._release(timeout))

    def _leave(self, body: BaseException | None) -> Steps[None]:
        """The body has ended: the item is done, or given back where the body has failed."""
        if self._engine.inherited or self._ended is not None:
            return
        try:
            if body is None:
                yield from self._done()
            elif isinstance(body, Exception):
                yield from self._nack(reason=f"{type(body).__name__}: {body}")
            else:  # the worker was stopped, which is not the item's fault
                yield from self._finish("given back", self._returning(0))
        except LockLost:
            self._chain(body)
        except BackendUnavailable as error:
            if body is None:
                raise
            log.warning("work queue %r: item %s: %s", self.name, self.id, error)
        finally:
            self._released = True
            self._abandon()  # a claim whose contender has gone is void, and the item is taken again

    def __repr__(self) -> str:
        state = self._ended or self.state.value
        return f"<{type(self).__name__} {self.id} of {self.name!r} attempt={self.attempt} {state}>"


class Job(_BaseJob, Grant):
    """An item of a work queue, taken: `data` is what was put. A context manager.

    At the end of its block the item is `done`; where the block raises, it is given back, as by
    `nack`. It is lost as every grant is: with the session, at an eviction, after ``max_hold``. Then
    others take the item, and nothing that this worker does to it is accepted.
    """

    done = blocking(_BaseJob._done)
    nack = blocking(_BaseJob._nack)
    # A job's own, of which Grant's knows nothing.
    release = blocking(_BaseJob._release)  # type: ignore[arg-type]
    _left = blocking(_BaseJob._leave)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._left(body)


class AsyncJob(_BaseJob, AsyncGrant):
    """An item of a work queue, taken: `data` is what was put. An async context manager.

    At the end of its block the item is `done`; where the block raises, it is given back, as by
    `nack`. It is lost as every grant is: with the session, at an eviction, after ``max_hold``. Then
    others take the item, and nothing that this worker does to it is accepted.
    """

    done = awaiting(_BaseJob._done)
    nack = awaiting(_BaseJob._nack)
    # A job's own, of which Grant's knows nothing.
    release = awaiting(_BaseJob._release)  # type: ignore[arg-type]
    _left = awaiting(_BaseJob._leave)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._left(body)
