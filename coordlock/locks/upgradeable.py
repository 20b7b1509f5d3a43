"""Locks for one holder that shares them with readers, and may become the writer in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from coordlock.errors import Unsupported
from coordlock.kernel.access import Access
from coordlock.locks.base_grant import BaseGrant
from coordlock.locks.base_lock import AcquireOptions
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.lock import AwaitingLock, BlockingLock, NamedLock
from coordlock.model.claim import Convertible, Mode
from coordlock.runtime.deadline import Cancellation
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.settings import DEFAULT, Timeout, timeout_of

if TYPE_CHECKING:
    from coordlock.kernel.conversion import Conversions

__all__ = [
    "AsyncUpgradeableGrant",
    "AsyncUpgradeableLock",
    "UpgradeableGrant",
    "UpgradeableLock",
]


class _UpgradeableGrant(BaseGrant):
    """What sync and async grants of upgradeable locks share."""

    #: None where it was never upgraded.
    _conversions: Conversions | None = None

    @property
    def claim(self) -> Mode:
        """The mode that is held now: PR, or EX while it is upgraded."""
        return Mode.PR if self._conversions is None else self._conversions.mode

    @property
    def token(self) -> int:
        """The fencing token, 1 to 2**63 - 1: greater than that of all grants it waited for.

        Raises `Unsupported` while the grant is upgraded.
        """
        if self.claim is Mode.EX:
            problem = (
                "was upgraded, and readers had the lock with newer tokens before that: a fence "
                "would refuse it. Use grant.transaction(), or acquire a write lock at once"
            )
            raise Unsupported(f"the grant of {self.name!r} {problem}")
        return self._first_token

    def _upgrade(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Hold the lock exclusively from now on, without giving up the place in its queue.

        It waits for the readers that hold the lock and for waiters ahead of this grant; later ones
        wait for it. Meanwhile nobody else may write.

        ``timeout`` (seconds, or such as ``"30s"``) bounds the call, by default the client's: None
        waits forever, 0 tries once. Raises `WaitTimeout`, `DeadlockDetected`, and
        `WaitCancelled` when ``cancellation`` is cancelled, or when it would have to wait
        after a signal handled by `release_on_signals`: after these the grant shares the lock as
        before. Raises `LockLost` once it is lost or released, `WaitUnavailable`,
        `AuthenticationFailed`, `ClientClosed`.
        """
        self.check()
        default = self._engine.settings.timeout
        seconds = timeout_of("upgrade", default if timeout is DEFAULT else timeout)
        yield from self._converted(Mode.EX, seconds, cancellation)

    def _downgrade(self) -> Steps[None]:
        """Share the lock with readers again; waits for nobody.

        Readers at the head of the queue are granted. Raises `LockLost` once it is lost or released,
        and `BackendUnavailable` when no answer came within the client's ``request_timeout``: then
        this process already shares the lock, and the service learns of it later.
        """
        self.check()
        yield from self._converted(Mode.PR, self._engine.settings.request_timeout)

    def _converted(
        self, mode: Mode, seconds: float | None, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        if mode is not self.claim:
            yield from self._guarded(self._converting().convert(mode, seconds, cancellation))
        self.check()

    def _converting(self) -> Conversions:
        from coordlock.kernel.conversion import Conversions

        with self._engine.lock:
            if self._conversions is None:
                self._conversions = Conversions(self._engine, self._ticket, self.check)
            return self._conversions


class UpgradeableGrant(_UpgradeableGrant, Grant):
    """A grant that can become exclusive while the lock is held, and shared again."""

    upgrade = blocking(_UpgradeableGrant._upgrade)
    downgrade = blocking(_UpgradeableGrant._downgrade)


class AsyncUpgradeableGrant(_UpgradeableGrant, AsyncGrant):
    """A grant that can become exclusive while the lock is held, and shared again, for asyncio."""

    upgrade = awaiting(_UpgradeableGrant._upgrade)
    downgrade = awaiting(_UpgradeableGrant._downgrade)


G = TypeVar("G", bound=UpgradeableGrant | AsyncUpgradeableGrant)


class _UpgradeableLock(NamedLock[G]):
    """What sync and async upgradeable locks share."""

    _acquired_alone = (
        "is upgradeable, and several locks at once are not: acquire it alone, or give its name "
        "with the strongest mode that is needed"
    )

    def __init__(self, access: Access, name: str, options: AcquireOptions | None = None) -> None:
        super().__init__(access, name, Convertible(Mode.PR, update=True), options)
        access.engine.backend.require("publishing")


class UpgradeableLock(_UpgradeableLock[UpgradeableGrant], BlockingLock[UpgradeableGrant]):
    """A lock for one holder that shares it with readers, and may become the writer.

    See `UpgradeableGrant.upgrade`. The rest is as for `Lock`.
    """

    _grant_kind = UpgradeableGrant

    contenders = blocking(NamedLock[UpgradeableGrant]._contenders)


class AsyncUpgradeableLock(
    _UpgradeableLock[AsyncUpgradeableGrant], AwaitingLock[AsyncUpgradeableGrant]
):
    """A lock for one holder that shares it with readers, and may become the writer, for asyncio.

    The rest is as for `AsyncLock`.
    """

    _grant_kind = AsyncUpgradeableGrant

    contenders = awaiting(NamedLock[AsyncUpgradeableGrant]._contenders)
