"""One run of a job: the grant of its lock, from the record of the start to that of the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from coordlock.backend import Operation
from coordlock.errors import (
    AlreadyDone,
    AlreadyFailed,
    BackendError,
    BackendUnavailable,
    CoordlockError,
    Evicted,
    JobNotRun,
    LockLost,
    NameConflict,
    Unsupported,
    VersionMismatch,
)
from coordlock.jobs.ledger import Ledger, Rules, SlotInfo, State
from coordlock.jobs.slots import Slot, kind_of, shown
from coordlock.jobs.view import record_of
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.locks.base_grant import BaseGrant, raise_or_chain
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.events import JobEnded
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps, awaiting, blocking, bounded, run_in_background
from coordlock.runtime.log import Log, described
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise
from coordlock.runtime.recorder import RECORDER

if TYPE_CHECKING:
    from coordlock.records.transaction import AsyncTransaction, Transaction

__all__ = ["AsyncJobRun", "JobRun", "check_kind", "refuse"]

log = Log("coordlock")

_OUTCOMES: Final[dict[State, Literal["done", "failed", "interrupted"]]] = {
    State.DONE: "done",
    State.FAILED: "failed",
    State.INTERRUPTED: "interrupted",
}


def check_kind(name: str, ledger: Ledger, slot: Slot) -> None:
    """Raise `NameConflict` unless the job has slots of that kind, or none yet."""
    if ledger.kind not in (None, kind_of(slot)):
        wanted, found = (f"a job whose slots are {kind}s" for kind in (kind_of(slot), ledger.kind))
        raise NameConflict(name, wanted, found, "")


def refuse(name: str, ledger: Ledger, slot: Slot, rules: Rules, *, is_locked: bool = True) -> None:
    """Raise why ``slot`` is not to be started, if it is not.

    Only the holder of the job's lock knows that a slot that was started is at work no longer. To
    others it is not refused: they find the lock busy, or learn by it how the slot has ended.
    """
    check_kind(name, ledger, slot)
    record = ledger.records.get(slot)
    owner = "" if record is None else record.owner
    match ledger.refusal(slot, rules):
        case "passed":
            raise JobNotRun(name, shown(slot))
        case State.DONE:
            raise AlreadyDone(name, shown(slot), owner)
        case State.FAILED | State.INTERRUPTED as state:
            raise AlreadyFailed(name, shown(slot), state, owner)
        case State.RUNNING if is_locked:
            raise AlreadyFailed(name, shown(slot), State.INTERRUPTED, owner, is_news=True)


def _record_end(engine: Engine, name: str, ended: SlotInfo | None) -> None:
    """Log and record that a run of the job ``name`` has ended as the record ``ended`` says."""
    if ended is None:
        return
    outcome, slot, error = _OUTCOMES[ended.state], shown(ended.slot), ended.error or ""
    finished = ended.finished or ended.started
    took = max(0.0, (finished - ended.started).total_seconds())
    took = 0.0 if outcome == "interrupted" else took
    facts: dict[str, object] = {"coordlock_slot": slot, "coordlock_outcome": outcome}
    say, why = (log.info, "") if outcome == "done" else (log.warning, f": {error}")
    text = "job %r: slot %s, started by %s, is %s after %.1f s%s"
    extra = {"coordlock_name": name, "coordlock_kind": "job", **facts}
    say(text, name, slot, ended.owner, outcome, took, why, extra=extra)
    if RECORDER.listeners:
        whose = engine.number, engine.backend.scheme
        RECORDER.record(JobEnded(*whose, name, slot, outcome, took, error))


class _BaseJobRun(BaseGrant):
    """What sync and async runs share."""

    _instead = "pass its slot and its token instead"

    def __init__(
        self,
        engine: Engine,
        ticket: Ticket,
        name: str,
        slot: Slot,
        rules: Rules,
        ahead: float,
        patience: float | None,
    ) -> None:
        super().__init__(engine, ticket)
        #: The job's name.
        self.name = name
        #: What the run is for: an instant in UTC, or an integer.
        self.slot: Final = slot
        #: Which start of the slot this is: 1, and more after others that came to no end.
        self.attempt = 0
        self._rules = rules
        #: How far the service's own time is ahead of the engine's clock, in seconds.
        self._ahead = ahead
        #: For how many seconds the start of a slot that has failed may be put off; None for any.
        self._patience = patience
        self._record = record_of(engine, name, ticket.contenders[0])
        self._ledger = Ledger()
        #: How the work has ended: what the release is to record, unless that is done.
        self._outcome: tuple[State, str | None] = State.FAILED, "it was released at work"
        #: What is written together with the end.
        self._also: tuple[Operation, ...] = ()
        self._is_recorded = False
        #: The attempt at recording the end that was begun last.
        self._settling: Promise[None] | None = None

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._engine.clock.now() + self._ahead, UTC)

    @property
    def sequencer(self) -> str:
        """Raises `Unsupported`: a sequencer names a lock. A server checks the token by a fence."""
        raise Unsupported(
            "a run has no sequencer, because a sequencer names a lock: send its slot and its token"
        )

    # Its start

    def _start(self) -> Steps[None]:
        """Record the start of the slot, if it is to be started: the last step of acquiring.

        It waits until a slot that has failed may be started again. Raises `JobNotRun` where it is
        not to be started, and what acquiring raises.
        """
        engine = self._engine
        try:
            while True:
                within = engine.deadline(engine.settings.request_timeout)
                delay = yield from bounded(self._guarded(self._record_start()), within)
                self.check()  # after a pause, another one may be at work
                if not delay:
                    return
                yield self._ticket.pause(delay)
        except LockLost:  # no caller ever had it
            lost = self._ticket.lost
            raise (Evicted(self.name, kind="job") if lost is None else copy(lost)) from None
        except DeadlineReached as late:
            silent = engine.silent(late)
            reason = (
                f"{silent.reason}; slot {shown(self.slot)} of job {self.name!r} is not begun here, "
                "but may be recorded as started"
            )
            raise BackendUnavailable(silent.service, reason) from late.__cause__

    def _record_start(self) -> Steps[float]:
        """Record it; or the seconds after which a slot that has failed may be started again."""
        owner = str(self._ticket.entries[0].owner)
        interrupted: AlreadyFailed | None = None
        while True:
            self._ledger = yield from self._record.read()
            if self._mine is not None:
                break  # an attempt without an answer was made: nobody else writes this token
            before, now = self._ledger.records.get(self.slot), self._now()
            try:
                refuse(self.name, self._ledger, self.slot, self._rules)
            except AlreadyFailed as refused:
                if interrupted is not None and refused.state == State.INTERRUPTED:
                    raise interrupted from None
                if before is None or before.state is not State.RUNNING:
                    raise
                interrupted = refused
                changed = before.ended(State.INTERRUPTED, now, "it came to no end")
                ledger = self._ledger.with_record(changed, now, self._rules)
            else:
                if (at := self._rules.retry_at(before)) is not None and at > now:
                    return self._put_off(at, now)
                ledger = self._ledger.started(self.slot, owner, self._first_token, now, self._rules)
            if (yield from self._record.write(ledger.encode())):
                if interrupted is not None:
                    _record_end(self._engine, self.name, ledger.records.get(self.slot))
                    raise interrupted
                self._log_skipped(self._ledger.next)
                self._ledger = ledger
                break
        assert self._mine is not None
        self.attempt = self._mine.attempts
        return 0.0

    def _log_skipped(self, first: datetime | None) -> None:
        """Log the slots of the schedule, from the ``first`` on, that no host has started.

        Once for all hosts: this start has moved the next one behind them.
        """
        if self._rules.schedule is None or self._rules.makes_up or first is None:
            return
        if isinstance(self.slot, datetime) and first < self.slot:
            missed, slot = shown(first), shown(self.slot)
            facts = {"coordlock_slot": missed, "coordlock_outcome": "skipped"}
            extra = {"coordlock_name": self.name, "coordlock_kind": "job", **facts}
            text = "job %r: no host has started the slots from %s until %s: they are skipped"
            log.warning(text, self.name, missed, slot, extra=extra)

    def _put_off(self, at: datetime, now: datetime) -> float:
        """The seconds until ``at``. Raises `AlreadyFailed` where they are too many."""
        delay = (at - now).total_seconds()
        if self._patience is not None and delay > self._patience:
            owner, when = self._ledger.records[self.slot].owner, shown(at.replace(microsecond=0))
            raise AlreadyFailed(self.name, shown(self.slot), State.FAILED, owner, when)
        return delay

    @property
    def _mine(self) -> SlotInfo | None:
        """The record of this start, in the ledger as it was read last."""
        record = self._ledger.records.get(self.slot)
        return record if record is not None and record.token == self._first_token else None

    # Its end

    def _settle(self, state: State, error: str | None, also: Sequence[Operation]) -> Steps[None]:
        """Record the end, and do ``also`` in the same transaction."""
        while True:
            mine = self._mine
            if mine is None:
                raise BackendError(
                    str(self._engine.settings),
                    f"the record of slot {shown(self.slot)} of job {self.name!r} was changed by "
                    "another program, and stays as it is",
                )
            if mine.state is not State.RUNNING:  # an attempt without an answer was made
                _record_end(self._engine, self.name, mine)
                break
            now = self._now()
            ended = self._ledger.with_record(mine.ended(state, now, error), now, self._rules)
            try:
                if (yield from self._record.write(ended.encode(), also=also)):
                    _record_end(self._engine, self.name, ended.records.get(self.slot))
                    break
                self._ledger = yield from self._record.read()
            except VersionMismatch:  # of a key in ``also``, which an earlier attempt may have moved
                self._ledger = yield from self._record.read()
                if self._mine == mine:
                    raise
        self._is_recorded = True

    def _finish_with(self, also: Sequence[Operation]) -> Steps[None]:
        """Record that the work is done, and do ``also`` in the same transaction."""
        self.check()
        if not (yield from self._guarded(self._recorded(State.DONE, None, also))):
            raise RuntimeError(f"the end of slot {shown(self.slot)} is recorded already")

    def _recorded(
        self, state: State, error: str | None, also: Sequence[Operation] = ()
    ) -> Steps[bool]:
        """Record the end, unless that is done; whether this call did.

        It tries for as long as the lock is held, and goes on where the caller gives up. An attempt
        that is still on its way comes first. Otherwise the end of the block could overtake a commit
        that was cancelled, and record the slot as done without the effect.
        """
        if self._settling is not None:
            with suppress(CoordlockError):  # its own caller was told
                yield self._ticket.unless_lost(self._settling)
        if self._is_recorded:
            return False
        self._settling = run_in_background(self._settle(state, error, also))
        yield self._ticket.unless_lost(self._settling)
        return True

    def _leave_queue(self, seconds: float | None) -> Steps[None]:
        """Record how the work has ended before the lock is released; release it if that fails."""
        try:
            if THREAD.must_not_wait:
                self._released = True
                settled = run_in_background(self._settle(*self._outcome, self._also))
                settled.add_done_callback(lambda _: self._ticket.withdraw())
                return
            if self._ticket.lost is None and not self._ticket.is_leaving:
                yield from self._guarded(self._recorded(*self._outcome, self._also))
        except LockLost:
            pass  # the release tells of the loss
        except BaseException:
            self._released = True
            self._ticket.withdraw()
            raise
        yield from super()._leave_queue(seconds)

    def _leave(self, body: BaseException | None) -> Steps[None]:
        """The work has ended, with ``body`` if it has raised that."""
        self._outcome = (State.DONE, None) if body is None else (State.FAILED, described(body))
        has_lost = False
        try:
            if not (self._engine.inherited or self._released):
                has_lost = not (yield from self._release())
        except CoordlockError as error:
            raise_or_chain(error, body)
        finally:
            self._withdraw()
        if has_lost:
            self._chain(body)

    def __repr__(self) -> str:
        slot, state = shown(self.slot), self.state.value
        return f"<{type(self).__name__} {slot} of {self.name!r} token={self._first_token} {state}>"


class JobRun(_BaseJobRun, Grant):
    """A run of a job, begun: a grant of the job's lock, with its token.

    A block of `Job.run` that ends without an error records the slot as done, in one step with the
    check that the lock is held. The service refuses the record of a run that was lost.
    """

    _left = blocking(_BaseJobRun._leave)

    def finish(self) -> Transaction:
        """A transaction that records the slot as done, together with what it writes.

        As in::

            run.finish().put("/app/report", data).commit()

        The effect and the record are one step of the service. So a slot has its effect at most
        once, however often it is started. If a commit gets no answer, the record shows whether it
        was made. ``commit`` raises what that of `Grant.transaction` raises.
        """
        from coordlock.records.transaction import Transaction

        return Transaction(*self._not_writable(), self._finish_with)


class AsyncJobRun(_BaseJobRun, AsyncGrant):
    """A run of a job, begun: a grant of the job's lock, with its token. See `JobRun`."""

    _left = awaiting(_BaseJobRun._leave)

    def finish(self) -> AsyncTransaction:
        """A transaction that records the slot as done, too: see `JobRun.finish`."""
        from coordlock.records.transaction import AsyncTransaction

        return AsyncTransaction(*self._not_writable(), self._finish_with)
