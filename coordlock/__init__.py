"""Distributed locks: first come, first served, with fencing tokens and a signal of their loss.

::

    import coordlock

    with coordlock.connect() as client:                     # configured by URL, file or variable
        with client.lock("nightly-migration", timeout=30) as grant:
            grant.token                                     # send it along with every write

`connect` and `connect_async` give a connected client; `Client` and `AsyncClient`, made at the top
of a module, connect at their first use. A client makes locks, whose `Lock.acquire` gives a `Grant`,
and what is built of them: see `coordlock.recipes`.

The locks live in etcd, in ZooKeeper, in the files of one machine, or in memory for tests. Importing
this package imports no backend. The documentation tells what a lock cannot promise.
"""

from coordlock.runtime.lazily import names_of as _names_of

# Nothing of coordlock is imported before it is used: a program that starts may never take a lock.
# Type checkers see plain imports, and take this name for true.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from coordlock.backend import ServiceInfo, Stored
    from coordlock.backend.config import from_env
    from coordlock.client import AsyncClient, Client, Connecting, connect, connect_async
    from coordlock.client.kept import Kept
    from coordlock.errors import (
        AcquireCancelled,
        AcquireTimeout,
        AcquireUnavailable,
        AuthenticationFailed,
        BackendError,
        BackendUnavailable,
        BarrierTimeout,
        ClientClosed,
        ConfigurationError,
        ConversionCancelled,
        ConversionDeadlock,
        ConversionTimeout,
        CoordlockError,
        DeadlockDetected,
        Evicted,
        ForkedClient,
        InvalidKey,
        InvalidName,
        InvalidSequencer,
        InvalidToken,
        JobEnded,
        LockLost,
        MissingExtra,
        NotAcquired,
        QueueMismatch,
        SessionLost,
        StaleToken,
        TooLarge,
        Unfenceable,
        Unsupported,
        VersionMismatch,
        WorkQueueEmpty,
        WorkQueueFull,
    )
    from coordlock.locks.convertible import (
        AsyncConvertibleGrant,
        AsyncConvertibleLock,
        ConvertibleGrant,
        ConvertibleLock,
    )
    from coordlock.locks.grant import AsyncGrant, Grant, GrantState
    from coordlock.locks.held import AsyncHeld, Held
    from coordlock.locks.lock import AsyncLock, Lock
    from coordlock.locks.queue_view import QueueMember
    from coordlock.locks.reentrant import (
        AsyncReentrantGrant,
        AsyncReentrantLock,
        ReentrantGrant,
        ReentrantLock,
    )
    from coordlock.locks.several import (
        AsyncMultiGrant,
        AsyncMultiLock,
        GrantPart,
        MultiGrant,
        MultiLock,
    )
    from coordlock.locks.signals import (
        AskedSignal,
        AsyncAskedSignal,
        AsyncLossSignal,
        LossSignal,
    )
    from coordlock.locks.transaction import AsyncTransaction, Transaction
    from coordlock.locks.value_lock import AsyncValueGrant, AsyncValueLock, ValueGrant, ValueLock
    from coordlock.model.claim import Claim, Convertible, Mode, Permit
    from coordlock.model.contender import Contender, Owner
    from coordlock.model.waits import Deadlock, DeadlockStep
    from coordlock.recipes.barrier import AsyncBarrier, Barrier
    from coordlock.recipes.counter import AsyncCounter, Counter
    from coordlock.recipes.double_barrier import AsyncDoubleBarrier, DoubleBarrier
    from coordlock.recipes.election import AsyncElection, Candidate, Election
    from coordlock.recipes.gate import AsyncGate, Gate
    from coordlock.recipes.group import AsyncGroup, Group, GroupView, Member
    from coordlock.recipes.latch import AsyncLatch, Latch
    from coordlock.recipes.membership import AsyncMembership, AsyncPresence, Membership, Presence
    from coordlock.recipes.shared.observer import AsyncObserver, Observer
    from coordlock.recipes.term import AsyncTerm, Term
    from coordlock.recipes.value import AsyncValue, Value
    from coordlock.recipes.values import AsyncValues, Values, ValuesView
    from coordlock.runtime.cancellation import Cancellation
    from coordlock.runtime.signals import release_on_signals
    from coordlock.settings import DEFAULT, Settings
    from coordlock.work.job import AsyncJob, Job
    from coordlock.work.queue import AsyncWorkQueue, WorkQueue
    from coordlock.work.view import WorkItem, WorkQueueStats

    #: The version of the installed distribution.
    __version__: str

else:
    _find = _names_of(
        __name__,
        {
            "backend": "ServiceInfo Stored",
            "client": "AsyncClient Client Connecting connect connect_async",
            "backend.config": "from_env",
            "errors": (
                "AcquireCancelled AcquireTimeout AcquireUnavailable AuthenticationFailed "
                "BackendError BackendUnavailable BarrierTimeout ClientClosed ConfigurationError "
                "ConversionCancelled ConversionDeadlock ConversionTimeout CoordlockError "
                "DeadlockDetected Evicted ForkedClient InvalidKey InvalidName InvalidSequencer "
                "InvalidToken JobEnded LockLost MissingExtra NotAcquired QueueMismatch SessionLost "
                "StaleToken TooLarge Unfenceable Unsupported VersionMismatch WorkQueueEmpty "
                "WorkQueueFull"
            ),
            "locks.grant": "AsyncGrant Grant GrantState",
            "locks.held": "AsyncHeld Held",
            "locks.lock": "AsyncLock Lock",
            "locks.convertible": (
                "AsyncConvertibleGrant AsyncConvertibleLock ConvertibleGrant ConvertibleLock"
            ),
            "locks.reentrant": (
                "AsyncReentrantGrant AsyncReentrantLock ReentrantGrant ReentrantLock"
            ),
            "locks.several": "AsyncMultiGrant AsyncMultiLock GrantPart MultiGrant MultiLock",
            "locks.signals": "AskedSignal AsyncAskedSignal AsyncLossSignal LossSignal",
            "locks.value_lock": "AsyncValueGrant AsyncValueLock ValueGrant ValueLock",
            "model.claim": "Claim Convertible Mode Permit",
            "model.contender": "Contender Owner",
            "model.waits": "Deadlock DeadlockStep",
            "locks.queue_view": "QueueMember",
            "recipes.barrier": "AsyncBarrier Barrier",
            "recipes.counter": "AsyncCounter Counter",
            "recipes.double_barrier": "AsyncDoubleBarrier DoubleBarrier",
            "recipes.election": "AsyncElection Candidate Election",
            "recipes.gate": "AsyncGate Gate",
            "recipes.group": "AsyncGroup Group GroupView Member",
            "client.kept": "Kept",
            "recipes.latch": "AsyncLatch Latch",
            "recipes.membership": "AsyncMembership AsyncPresence Membership Presence",
            "recipes.shared.observer": "AsyncObserver Observer",
            "recipes.term": "AsyncTerm Term",
            "work.job": "AsyncJob Job",
            "work.queue": "AsyncWorkQueue WorkQueue",
            "work.view": "WorkItem WorkQueueStats",
            "recipes.value": "AsyncValue Value",
            "recipes.values": "AsyncValues Values ValuesView",
            "runtime.cancellation": "Cancellation",
            "settings": "DEFAULT Settings",
            "runtime.signals": "release_on_signals",
            "locks.transaction": "AsyncTransaction Transaction",
        },
    )

    def __getattr__(name: str) -> object:
        if name != "__version__":
            return _find(name)
        from importlib.metadata import version

        return version("coordlock")

    def __dir__() -> list[str]:
        return sorted([*__all__, "__all__", "__doc__", "__version__"])


del TYPE_CHECKING  # no name of this package

__all__ = [
    "DEFAULT",
    "AcquireCancelled",
    "AcquireTimeout",
    "AcquireUnavailable",
    "AskedSignal",
    "AsyncAskedSignal",
    "AsyncBarrier",
    "AsyncClient",
    "AsyncConvertibleGrant",
    "AsyncConvertibleLock",
    "AsyncCounter",
    "AsyncDoubleBarrier",
    "AsyncElection",
    "AsyncGate",
    "AsyncGrant",
    "AsyncGroup",
    "AsyncHeld",
    "AsyncJob",
    "AsyncLatch",
    "AsyncLock",
    "AsyncLossSignal",
    "AsyncMembership",
    "AsyncMultiGrant",
    "AsyncMultiLock",
    "AsyncObserver",
    "AsyncPresence",
    "AsyncReentrantGrant",
    "AsyncReentrantLock",
    "AsyncTerm",
    "AsyncTransaction",
    "AsyncValue",
    "AsyncValueGrant",
    "AsyncValueLock",
    "AsyncValues",
    "AsyncWorkQueue",
    "AuthenticationFailed",
    "BackendError",
    "BackendUnavailable",
    "Barrier",
    "BarrierTimeout",
    "Cancellation",
    "Candidate",
    "Claim",
    "Client",
    "ClientClosed",
    "ConfigurationError",
    "Connecting",
    "Contender",
    "ConversionCancelled",
    "ConversionDeadlock",
    "ConversionTimeout",
    "Convertible",
    "ConvertibleGrant",
    "ConvertibleLock",
    "CoordlockError",
    "Counter",
    "Deadlock",
    "DeadlockDetected",
    "DeadlockStep",
    "DoubleBarrier",
    "Election",
    "Evicted",
    "ForkedClient",
    "Gate",
    "Grant",
    "GrantPart",
    "GrantState",
    "Group",
    "GroupView",
    "Held",
    "InvalidKey",
    "InvalidName",
    "InvalidSequencer",
    "InvalidToken",
    "Job",
    "JobEnded",
    "Kept",
    "Latch",
    "Lock",
    "LockLost",
    "LossSignal",
    "Member",
    "Membership",
    "MissingExtra",
    "Mode",
    "MultiGrant",
    "MultiLock",
    "NotAcquired",
    "Observer",
    "Owner",
    "Permit",
    "Presence",
    "QueueMember",
    "QueueMismatch",
    "ReentrantGrant",
    "ReentrantLock",
    "ServiceInfo",
    "SessionLost",
    "Settings",
    "StaleToken",
    "Stored",
    "Term",
    "TooLarge",
    "Transaction",
    "Unfenceable",
    "Unsupported",
    "Value",
    "ValueGrant",
    "ValueLock",
    "Values",
    "ValuesView",
    "VersionMismatch",
    "WorkItem",
    "WorkQueue",
    "WorkQueueEmpty",
    "WorkQueueFull",
    "WorkQueueStats",
    "connect",
    "connect_async",
    "from_env",
    "release_on_signals",
]
