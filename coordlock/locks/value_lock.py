"""Locks that keep a small value: a holder that may write hands it on to the next one."""

from __future__ import annotations

from copy import copy
from typing import Final, TypeVar

from coordlock.errors import BackendUnavailable, Evicted, LockLost
from coordlock.kernel.access import Access
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.locks.base_grant import BaseGrant
from coordlock.locks.base_lock import AcquireOptions
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.kept_value import LONGEST, KeptValue
from coordlock.locks.lock import AwaitingLock, BlockingLock, NamedLock
from coordlock.model.claim import Mode
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.settings import Duration, lock_delay_of

__all__ = ["AsyncValueGrant", "AsyncValueLock", "ValueGrant", "ValueLock"]


class _ValueGrant(BaseGrant, shown="ValueGrant"):
    """What sync and async grants of locks that keep a value share."""

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        super().__init__(engine, ticket)
        self._kept = KeptValue(engine, ticket)

    @property
    def value(self) -> bytes | None:
        """The small value that belongs to the lock, up to 65,536 bytes.

        It is the value that the last holder in mode EX or PW had when it released, or None if there
        was no such holder, or if that one lost the lock or died first. A holder in mode EX or PW
        sets it, and the release writes it. If the write gets no answer in time, the lock is
        released and `BackendUnavailable` raised. Setting it raises ValueError in another mode, and
        `LockLost` once the lock is lost or released.
        """
        return self._kept.value

    @value.setter
    def value(self, value: bytes | None) -> None:
        if not self._kept.is_writable:
            raise ValueError(f"only holders in mode EX or PW can set the value of {self.name!r}")
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"value must be bytes or None, not {type(value).__name__}")
        if value is not None and len(value) > LONGEST:
            raise ValueError(
                f"the value has {len(value)} bytes, and the limit is {LONGEST}: keep larger data "
                "elsewhere, and its address here"
            )
        self.check()
        self._kept.value = value

    def _open(self, started: float, once: bool, lock_delay: float) -> Steps[None]:
        """Read the value and mark it as open: the last step of acquiring the lock."""
        try:
            yield from self._guarded(self._kept.begin(started, once, lock_delay))
        except LockLost:  # the caller never had the grant
            lost = self._ticket.lost
            raise (Evicted(self.name) if lost is None else copy(lost)) from None

    def _leave_queue(self, seconds: float | None) -> Steps[None]:
        """Write the value before the lock is released; release it if that fails."""
        has_failed = True
        try:
            yield self._engine.deadline(seconds)
            if self._ticket.lost is None:
                yield from self._guarded(self._kept.close())
            has_failed = False
        except LockLost:
            has_failed = False  # the release tells of the loss
        except DeadlineReached as late:
            silent = self._engine.silent(late)
            reason = f"{silent.reason}; the lock is released, and its value may not be written"
            raise BackendUnavailable(silent.service, reason) from late.__cause__
        finally:
            if has_failed:
                self._released = True
                self._ticket.withdraw()
        yield None
        if not self._ticket.is_leaving:
            yield from super()._leave_queue(seconds)


class ValueGrant(_ValueGrant, Grant):
    """A grant of a lock that keeps a value: `value`. The release writes it."""


class AsyncValueGrant(_ValueGrant, AsyncGrant):
    """A grant of a lock that keeps a value, for asyncio: `value`. The release writes it."""


G = TypeVar("G", bound=ValueGrant | AsyncValueGrant)


class _ValueLock(NamedLock[G], shown="ValueLock"):
    """What sync and async locks that keep a value share."""

    _acquired_alone = "keeps a value, which several locks at once cannot: acquire it alone"

    def __init__(
        self,
        access: Access,
        name: str,
        mode: Mode,
        options: AcquireOptions | None = None,
        lock_delay: Duration = 0.0,
    ) -> None:
        super().__init__(access, name, mode, options)
        access.engine.backend.require("data")
        #: For how many seconds the next holder waits after one that has not ended well.
        self.lock_delay: Final = lock_delay_of(lock_delay)

    def _acquire_with(self, options: AcquireOptions) -> Steps[G]:
        started = self._access.engine.clock.now()
        ticket = yield from self._acquisition(options)
        try:
            grant = self._make(ticket)
            yield from grant._open(started, options.timeout == 0, self.lock_delay)
            self._limit(ticket)
            return grant
        except BaseException:
            ticket.withdraw()
            raise


class ValueLock(_ValueLock[ValueGrant], BlockingLock[ValueGrant]):
    """A lock that keeps a small value: `ValueGrant.value`. The rest is as for `Lock`."""

    _grant_kind = ValueGrant

    contenders = blocking(NamedLock[ValueGrant]._contenders)


class AsyncValueLock(_ValueLock[AsyncValueGrant], AwaitingLock[AsyncValueGrant]):
    """A lock that keeps a small value, for asyncio. The rest is as for `AsyncLock`."""

    _grant_kind = AsyncValueGrant

    contenders = awaiting(NamedLock[AsyncValueGrant]._contenders)
