"""What `Job.run` returns: a context manager that begins a run, and records how it ends."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

from coordlock.errors import LockLost
from coordlock.jobs.run import AsyncJobRun, JobRun
from coordlock.jobs.slots import shown
from coordlock.runtime.driver import Steps, run, run_async
from coordlock.runtime.guards import Resident

__all__ = ["AsyncStart", "Start"]

R = TypeVar("R", JobRun, AsyncJobRun)


class _BaseStart(Resident, Generic[R]):
    """What sync and async starts share. Entered once."""

    _instead = "pass the job's name and the slot instead"

    def __init__(self, job: Any, slot: Any) -> None:
        self._job = job
        self._slot = slot
        self._run: R | None = None
        self._has_begun = False

    def _begin(self) -> Steps[R]:
        was_begun, self._has_begun = self._has_begun, True  # before it waits
        if was_begun:
            raise RuntimeError("this start was entered before: call run(slot) for another one")
        self._run = yield from self._job._begin(self._slot)
        return self._run

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of slot {shown(self._slot)}, {self._job!r}>"


class Start(_BaseStart[JobRun]):
    """Begins a run as it is entered, and records its end as it is left."""

    def __enter__(self) -> JobRun:
        begun = run(self._begin())
        try:
            begun._is_entered = True
            begun._hold_while(self)  # which only the block of `with job.run(slot)` keeps
            return begun
        except BaseException:
            begun._withdraw()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._run is not None
        self._run._left(body)


class AsyncStart(_BaseStart[AsyncJobRun]):
    """Begins a run as it is entered, and records its end as it is left.

    The body is cancelled when the lock is lost. The lock is held until the body has ended.
    """

    _cancelling: AbstractAsyncContextManager[AsyncJobRun]

    async def __aenter__(self) -> AsyncJobRun:
        begun = await run_async(self._begin())
        begun._is_entered = True
        self._cancelling = begun.cancel_on_loss()
        try:
            return await self._cancelling.__aenter__()
        except BaseException:
            begun._withdraw()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._run is not None
        try:
            await self._cancelling.__aexit__(kind, body, traceback)
        except LockLost as lost:  # in place of the cancellation
            body = lost
            raise
        finally:
            await self._run._left(body)
