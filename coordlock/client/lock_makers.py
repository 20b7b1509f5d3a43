"""The locks that clients make. All kinds but plain locks are imported at their first use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from coordlock.kernel.access import Access
from coordlock.locks.lock import AcquireOptions, AsyncLock, Lock
from coordlock.model.claim import Mode, Permit
from coordlock.runtime.guards import Resident
from coordlock.settings import DEFAULT, Timeout

if TYPE_CHECKING:
    from typing import Never

    from coordlock.locks.keyed_lock import AsyncKeyedLock, KeyedLock, OnBusy
    from coordlock.locks.reentrant import AsyncReentrantLock, ReentrantLock
    from coordlock.locks.several import AsyncMultiLock, MultiLock
    from coordlock.locks.upgradeable import AsyncUpgradeableLock, UpgradeableLock

__all__ = ["AsyncLocks", "Locks", "Maker"]

T = TypeVar("T")
LockT = TypeVar("LockT", Lock, AsyncLock)
ReentrantLockT = TypeVar("ReentrantLockT", "ReentrantLock", "AsyncReentrantLock")
UpgradeableLockT = TypeVar("UpgradeableLockT", "UpgradeableLock", "AsyncUpgradeableLock")
MultiLockT = TypeVar("MultiLockT", "MultiLock", "AsyncMultiLock")
KeyedLockT = TypeVar("KeyedLockT", "KeyedLock[Never]", "AsyncKeyedLock[Never]")
SkippingLockT = TypeVar("SkippingLockT", "KeyedLock[None]", "AsyncKeyedLock[None]")


class Maker(Resident):
    """What makes the objects of a client, for threads or for asyncio."""

    _access: Access

    def _kind(self, sync: type, asynchronous: type) -> Callable[..., T]:
        """The one of the two that is for this client."""
        raise NotImplementedError


class _Makers(
    Maker,
    Generic[LockT, ReentrantLockT, UpgradeableLockT, MultiLockT, KeyedLockT, SkippingLockT],
):
    """The methods that make locks, of both clients. They send nothing."""

    def _options(self, *given: Any) -> AcquireOptions:
        return AcquireOptions.of(self._access.settings, *given)

    def lock(
        self,
        name: str,
        *,
        mode: Mode = Mode.EX,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> LockT:
        """The lock ``name``, exclusive or in another of the six modes; nothing is sent yet.

        ``timeout`` in seconds is the default of its ``acquire``: None waits forever, 0 tries once.
        ``label`` is what queues show beside host and pid. A grant is lost after ``max_hold``
        seconds (0.1 s to 30 days, None for no limit). Both default to the client's options.

        Raises `InvalidName` for an empty name or one of more than 255 bytes in UTF-8.
        """
        options = self._options(timeout, label, max_hold)
        return self._kind(Lock, AsyncLock)(self._access, name, _mode(mode), options)

    @overload
    def lock_by(
        self,
        key: Callable[..., str],
        *,
        on_busy: Literal["raise"] = "raise",
        mode: Mode = Mode.EX,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> KeyedLockT: ...

    @overload
    def lock_by(
        self,
        key: Callable[..., str],
        *,
        on_busy: Literal["skip"],
        mode: Mode = Mode.EX,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> SkippingLockT: ...

    def lock_by(
        self,
        key: Callable[..., str],
        *,
        on_busy: OnBusy = "raise",
        mode: Mode = Mode.EX,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> KeyedLockT | SkippingLockT:
        """A decorator that holds a lock during each call, whose name ``key`` gives.

        The parameters of ``key`` are some of the decorated function's, by name::

            @client.lock_by(lambda order: f"customer/{order.customer}", timeout=30)
            def bill(order, amount): ...

        ``on_busy`` says what a call does whose lock is not granted within ``timeout``: ``"raise"``
        `AcquireTimeout`, or ``"skip"`` it and return None. Without ``timeout``, ``"skip"`` tries
        once. The rest is as for `lock`.
        """
        from coordlock.locks.keyed_lock import AsyncKeyedLock, KeyedLock

        if timeout is DEFAULT and on_busy != "raise":
            timeout = 0
        options = self._options(timeout, label, max_hold)
        make = partial(
            self._kind(Lock, AsyncLock), self._access, claim=_mode(mode), options=options
        )
        return self._kind(KeyedLock, AsyncKeyedLock)(make, key, on_busy)

    def read_lock(
        self,
        name: str,
        *,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> LockT:
        """The lock ``name``, shared with other readers: mode PR."""
        return self.lock(name, mode=Mode.PR, timeout=timeout, label=label, max_hold=max_hold)

    def write_lock(
        self,
        name: str,
        *,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> LockT:
        """The lock ``name``, exclusive: mode EX."""
        return self.lock(name, mode=Mode.EX, timeout=timeout, label=label, max_hold=max_hold)

    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> LockT:
        """One of ``permits`` (1 to 10,000) of the semaphore ``name``.

        All clients must ask for the same number; otherwise acquiring raises `NameConflict`.
        """
        options = self._options(timeout, label, max_hold)
        return self._kind(Lock, AsyncLock)(self._access, name, Permit(permits), options)

    def reentrant_lock(
        self,
        name: str,
        *,
        mode: Mode = Mode.EX,
        owner: Hashable | None = None,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> ReentrantLockT:
        """The lock ``name``, which its owner may acquire again, in the same mode or a weaker one.

        The owner is the thread or task that holds it, or any caller that passes the same ``owner``.
        Its grants share a token, and the last release frees the lock. Tasks and threads that the
        owner starts do not inherit it, nor does another request on the same pool thread: they wait,
        and an owner that awaits one inside its block waits for itself. So give both an ``owner``.
        Acquiring it again after a loss raises `LockLost` until all its grants are released. The
        rest is as for `lock`.
        """
        from coordlock.locks.reentrant import AsyncReentrantLock, ReentrantLock

        options = self._options(timeout, label, max_hold)
        kind = self._kind(ReentrantLock, AsyncReentrantLock)
        return kind(self._access, name, _mode(mode), options, owner)

    def upgradeable_lock(
        self,
        name: str,
        *,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> UpgradeableLockT:
        """The lock ``name``, for one holder that shares it with readers and may later write.

        `UpgradeableGrant.upgrade` waits for the readers to leave and makes it exclusive, without
        letting another writer in before, so what was read is still true.
        `UpgradeableGrant.downgrade` shares it again. It excludes writers and other upgradeable
        locks from the start, so two of them never wait for each other. Programs with an older
        release, or with kazoo's or Curator's recipes, take it for an exclusive one. The rest is as
        for `lock`. Raises `Unsupported` where the backend keeps no values with contenders.
        """
        from coordlock.locks.upgradeable import AsyncUpgradeableLock, UpgradeableLock

        options = self._options(timeout, label, max_hold)
        return self._kind(UpgradeableLock, AsyncUpgradeableLock)(self._access, name, options)

    def multi_lock(
        self,
        locks: Iterable[str | LockT | MultiLockT],
        *,
        mode: Mode = Mode.EX,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> MultiLockT:
        """All of ``locks`` at once: names, taken in ``mode``, and locks made by this client.

        They are acquired in one step, all or none, so multi-locks never deadlock, whatever the
        order of their names. Of a lock object it uses the name and the mode or permit. A name given
        in several modes is acquired in the weakest mode that contains them all. The rest is as for
        `lock`.

        Raises ValueError for no names, for a semaphore given twice, for a name given as a lock and
        as a semaphore, and for a lock of another kind; `InvalidName`; `Unsupported` if the backend
        cannot. An acquire raises `BackendError` for more names than the service takes in one step.
        """
        from coordlock.locks.several import AsyncMultiLock, MultiLock, claims_of

        claims = claims_of(self._access, locks, _mode(mode))
        options = self._options(timeout, label, max_hold)
        return self._kind(MultiLock, AsyncMultiLock)(self._access, claims, options)

    def tree_lock(
        self,
        path: str,
        *,
        mode: Mode = Mode.EX,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> MultiLockT:
        """The subtree at ``path``, such as ``"eu/orders/42"``, in one of the six modes.

        Use EX to write the subtree and PR to read it. It excludes conflicting locks above and below
        it, and nothing in other branches. The same step locks the nodes above in mode CR or CW,
        which marks that something below is held. The rest is as for `lock`, which locks only the
        node.

        Raises `InvalidName` for a path that is empty, has ``//``, ``.`` or ``..`` in it, or begins
        or ends with a slash.
        """
        from coordlock.locks.several import AsyncMultiLock, MultiLock, claims_of_path

        claims = claims_of_path(path, _mode(mode))
        options = self._options(timeout, label, max_hold)
        return self._kind(MultiLock, AsyncMultiLock)(self._access, claims, options, path)


def _mode(mode: Mode) -> Mode:
    if not isinstance(mode, Mode):
        raise ValueError(f"mode must be one of {', '.join(map(repr, Mode))}, not {mode!r}")
    return mode


class Locks(
    _Makers[
        Lock,
        "ReentrantLock",
        "UpgradeableLock",
        "MultiLock",
        "KeyedLock[Never]",
        "KeyedLock[None]",
    ],
):
    """The locks that `Client` makes."""


class AsyncLocks(
    _Makers[
        AsyncLock,
        "AsyncReentrantLock",
        "AsyncUpgradeableLock",
        "AsyncMultiLock",
        "AsyncKeyedLock[Never]",
        "AsyncKeyedLock[None]",
    ],
):
    """The locks that `AsyncClient` makes."""
