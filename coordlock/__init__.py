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

# Nothing of coordlock is imported before it is used: a program that starts may never take a lock.
# Type checkers see plain imports, and take this name for true; `typing` would double the start.
TYPE_CHECKING = not __name__  # which jedi does not take for false

if TYPE_CHECKING:
    from coordlock.backend import ServiceInfo as ServiceInfo, Stored as Stored
    from coordlock.backend.config import settings_from_env as settings_from_env
    from coordlock.client import (
        AsyncClient as AsyncClient,
        Client as Client,
        Connecting as Connecting,
        connect as connect,
        connect_async as connect_async,
    )
    from coordlock.client.records import Record as Record
    from coordlock.errors import (
        WaitCancelled as WaitCancelled,
        AcquireTimeout as AcquireTimeout,
        WaitTimeout as WaitTimeout,
        WaitUnavailable as WaitUnavailable,
        AlreadyDone as AlreadyDone,
        AlreadyRunning as AlreadyRunning,
        AuthenticationFailed as AuthenticationFailed,
        BackendError as BackendError,
        BackendUnavailable as BackendUnavailable,
        BarrierTimeout as BarrierTimeout,
        ClientClosed as ClientClosed,
        ConfigurationError as ConfigurationError,
        ConversionCancelled as ConversionCancelled,
        ConversionDeadlock as ConversionDeadlock,
        ConversionTimeout as ConversionTimeout,
        CoordlockError as CoordlockError,
        DeadlockDetected as DeadlockDetected,
        Evicted as Evicted,
        ForkedClient as ForkedClient,
        FutureSlot as FutureSlot,
        InvalidKey as InvalidKey,
        InvalidName as InvalidName,
        InvalidSequencer as InvalidSequencer,
        InvalidToken as InvalidToken,
        ItemEnded as ItemEnded,
        JobBacklog as JobBacklog,
        JobNotRun as JobNotRun,
        LockLost as LockLost,
        MissingExtra as MissingExtra,
        WaitError as WaitError,
        NameConflict as NameConflict,
        SessionLost as SessionLost,
        StaleToken as StaleToken,
        TooLarge as TooLarge,
        Unfenceable as Unfenceable,
        Unsupported as Unsupported,
        VersionMismatch as VersionMismatch,
        WorkQueueContended as WorkQueueContended,
        WorkQueueEmpty as WorkQueueEmpty,
        WorkQueueFull as WorkQueueFull,
    )
    from coordlock.jobs.job import AsyncJob as AsyncJob, Job as Job
    from coordlock.jobs.run import AsyncJobRun as AsyncJobRun, JobRun as JobRun
    from coordlock.jobs.schedule import Cron as Cron, Every as Every
    from coordlock.jobs.view import JobInfo as JobInfo, SlotInfo as SlotInfo
    from coordlock.locks.convertible import (
        AsyncConvertibleGrant as AsyncConvertibleGrant,
        AsyncConvertibleLock as AsyncConvertibleLock,
        ConvertibleGrant as ConvertibleGrant,
        ConvertibleLock as ConvertibleLock,
    )
    from coordlock.locks.grant import (
        AsyncGrant as AsyncGrant,
        Grant as Grant,
        GrantState as GrantState,
    )
    from coordlock.locks.held import AsyncHeld as AsyncHeld, Held as Held
    from coordlock.locks.lock import AsyncLock as AsyncLock, Lock as Lock
    from coordlock.locks.queue_view import QueueEntry as QueueEntry
    from coordlock.locks.reentrant import (
        AsyncReentrantGrant as AsyncReentrantGrant,
        AsyncReentrantLock as AsyncReentrantLock,
        ReentrantGrant as ReentrantGrant,
        ReentrantLock as ReentrantLock,
    )
    from coordlock.locks.several import (
        AsyncMultiGrant as AsyncMultiGrant,
        AsyncMultiLock as AsyncMultiLock,
        GrantPart as GrantPart,
        MultiGrant as MultiGrant,
        MultiLock as MultiLock,
    )
    from coordlock.locks.signals import (
        ReleaseRequest as ReleaseRequest,
        AsyncReleaseRequest as AsyncReleaseRequest,
        AsyncLossSignal as AsyncLossSignal,
        LossSignal as LossSignal,
    )
    from coordlock.locks.transaction import (
        AsyncTransaction as AsyncTransaction,
        Transaction as Transaction,
    )
    from coordlock.locks.value_lock import (
        AsyncValueGrant as AsyncValueGrant,
        AsyncValueLock as AsyncValueLock,
        ValueGrant as ValueGrant,
        ValueLock as ValueLock,
    )
    from coordlock.model.claim import (
        Claim as Claim,
        Convertible as Convertible,
        Mode as Mode,
        Permit as Permit,
    )
    from coordlock.model.contender import Contender as Contender, Owner as Owner
    from coordlock.model.waits import Deadlock as Deadlock, DeadlockStep as DeadlockStep
    from coordlock.recipes.barrier import AsyncBarrier as AsyncBarrier, Barrier as Barrier
    from coordlock.recipes.counter import AsyncCounter as AsyncCounter, Counter as Counter
    from coordlock.recipes.double_barrier import (
        AsyncDoubleBarrier as AsyncDoubleBarrier,
        DoubleBarrier as DoubleBarrier,
    )
    from coordlock.recipes.election import (
        AsyncElection as AsyncElection,
        Candidate as Candidate,
        Election as Election,
    )
    from coordlock.recipes.gate import AsyncGate as AsyncGate, Gate as Gate
    from coordlock.recipes.group import (
        AsyncGroup as AsyncGroup,
        Group as Group,
        GroupView as GroupView,
        Member as Member,
    )
    from coordlock.recipes.latch import AsyncLatch as AsyncLatch, Latch as Latch
    from coordlock.recipes.membership import (
        AsyncMembership as AsyncMembership,
        AsyncPresence as AsyncPresence,
        Membership as Membership,
        Presence as Presence,
    )
    from coordlock.recipes.shared.observer import (
        AsyncObserver as AsyncObserver,
        Observer as Observer,
    )
    from coordlock.recipes.term import AsyncTerm as AsyncTerm, Term as Term
    from coordlock.recipes.value import AsyncValue as AsyncValue, Value as Value
    from coordlock.recipes.values import (
        AsyncValues as AsyncValues,
        Values as Values,
        ValuesView as ValuesView,
    )
    from coordlock.runtime.cancellation import Cancellation as Cancellation
    from coordlock.runtime.signals import release_on_signals as release_on_signals
    from coordlock.settings import DEFAULT as DEFAULT, Settings as Settings
    from coordlock.work.item import AsyncItem as AsyncItem, Item as Item
    from coordlock.work.queue import AsyncWorkQueue as AsyncWorkQueue, WorkQueue as WorkQueue
    from coordlock.work.view import ItemView as ItemView, WorkQueueStats as WorkQueueStats

    #: The version of the installed distribution.
    __version__: str
    __all__: list[str]

else:
    #: The public names, by the modules that they come from.
    _NAMES = {
        "backend": "ServiceInfo Stored",
        "backend.config": "settings_from_env",
        "client": "AsyncClient Client Connecting connect connect_async",
        "client.records": "Record",
        "errors": (
            "WaitCancelled AcquireTimeout WaitUnavailable AuthenticationFailed "
            "BackendError BackendUnavailable BarrierTimeout ClientClosed ConfigurationError "
            "ConversionCancelled ConversionDeadlock ConversionTimeout CoordlockError "
            "DeadlockDetected Evicted ForkedClient InvalidKey InvalidName InvalidSequencer "
            "InvalidToken ItemEnded LockLost MissingExtra WaitError NameConflict "
            "SessionLost StaleToken TooLarge Unfenceable Unsupported VersionMismatch "
            "WaitTimeout WorkQueueContended WorkQueueEmpty WorkQueueFull "
            "AlreadyDone AlreadyRunning FutureSlot JobBacklog JobNotRun"
        ),
        "jobs.job": "AsyncJob Job",
        "jobs.run": "AsyncJobRun JobRun",
        "jobs.schedule": "Cron Every",
        "jobs.view": "JobInfo SlotInfo",
        "locks.convertible": (
            "AsyncConvertibleGrant AsyncConvertibleLock ConvertibleGrant ConvertibleLock"
        ),
        "locks.grant": "AsyncGrant Grant GrantState",
        "locks.held": "AsyncHeld Held",
        "locks.lock": "AsyncLock Lock",
        "locks.queue_view": "QueueEntry",
        "locks.reentrant": "AsyncReentrantGrant AsyncReentrantLock ReentrantGrant ReentrantLock",
        "locks.several": "AsyncMultiGrant AsyncMultiLock GrantPart MultiGrant MultiLock",
        "locks.signals": "ReleaseRequest AsyncReleaseRequest AsyncLossSignal LossSignal",
        "locks.transaction": "AsyncTransaction Transaction",
        "locks.value_lock": "AsyncValueGrant AsyncValueLock ValueGrant ValueLock",
        "model.claim": "Claim Convertible Mode Permit",
        "model.contender": "Contender Owner",
        "model.waits": "Deadlock DeadlockStep",
        "recipes.barrier": "AsyncBarrier Barrier",
        "recipes.counter": "AsyncCounter Counter",
        "recipes.double_barrier": "AsyncDoubleBarrier DoubleBarrier",
        "recipes.election": "AsyncElection Candidate Election",
        "recipes.gate": "AsyncGate Gate",
        "recipes.group": "AsyncGroup Group GroupView Member",
        "recipes.latch": "AsyncLatch Latch",
        "recipes.membership": "AsyncMembership AsyncPresence Membership Presence",
        "recipes.shared.observer": "AsyncObserver Observer",
        "recipes.term": "AsyncTerm Term",
        "recipes.value": "AsyncValue Value",
        "recipes.values": "AsyncValues Values ValuesView",
        "runtime.cancellation": "Cancellation",
        "runtime.signals": "release_on_signals",
        "settings": "DEFAULT Settings",
        "work.item": "AsyncItem Item",
        "work.queue": "AsyncWorkQueue WorkQueue",
        "work.view": "ItemView WorkQueueStats",
    }
    _HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

    __all__ = sorted(_HOMES, key=lambda name: (not name.isupper(), name))

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("coordlock")
        if name not in _HOMES and name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Not by importlib, which has to be imported itself.
        module = __import__(f"{__name__}.{_HOMES.get(name, name)}", fromlist=["*"])
        value = globals()[name] = getattr(module, name) if name in _HOMES else module
        return value

    def __dir__() -> list[str]:
        return sorted([*__all__, "__all__", "__doc__", "__version__"])


del TYPE_CHECKING  # no name of this package
