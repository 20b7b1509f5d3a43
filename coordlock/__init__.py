"""Distributed locks: first come, first served, with fencing tokens and a signal of their loss.

::

    import coordlock

    with coordlock.connect() as client:                     # configured by URL, file or variable
        with client.lock("nightly-migration", timeout=30) as grant:
            grant.token                                     # send it along with every write

`connect` and `connect_async` give a connected client; `Client` and `AsyncClient`, made at the top
of a module, connect at their first use. A client makes locks, whose `Lock.acquire` gives a `Grant`,
and what is built of them: see `coordlock.recipes`.

The names here are those that applications write. All errors are in `coordlock.errors`, and what
calls return, for annotations, in `coordlock.types`.

The locks live in etcd, ZooKeeper, Redis, the files of one machine, or in memory for tests.
Importing this package imports no backend. The documentation tells what a lock cannot promise.
"""

# Nothing of coordlock is imported before it is used: a program that starts may never take a lock.
# Type checkers see plain imports, and take this name for true; `typing` would double the start.
TYPE_CHECKING = not __name__  # which jedi does not take for false

if TYPE_CHECKING:
    # Here a new public name is entered: `python -m tests.unit.test_api` derives the rest.
    from coordlock import errors as errors, types as types
    from coordlock.backend.config import settings_from_env as settings_from_env
    from coordlock.client import (
        AsyncClient as AsyncClient,
        Client as Client,
        connect as connect,
        connect_async as connect_async,
    )
    from coordlock.errors import (
        AcquireTimeout as AcquireTimeout,
        BackendError as BackendError,
        BackendUnavailable as BackendUnavailable,
        ConfigurationError as ConfigurationError,
        CoordlockError as CoordlockError,
        DeadlockDetected as DeadlockDetected,
        JobNotRun as JobNotRun,
        LockLost as LockLost,
        NameConflict as NameConflict,
        SessionLost as SessionLost,
        StaleToken as StaleToken,
        WaitCancelled as WaitCancelled,
        WaitError as WaitError,
        WaitTimeout as WaitTimeout,
        WorkQueueEmpty as WorkQueueEmpty,
        WorkQueueFull as WorkQueueFull,
    )
    from coordlock.jobs.job import AsyncJob as AsyncJob, Job as Job
    from coordlock.jobs.run import AsyncJobRun as AsyncJobRun, JobRun as JobRun
    from coordlock.jobs.schedule import Cron as Cron, Every as Every
    from coordlock.locks.grant import (
        AsyncGrant as AsyncGrant,
        Grant as Grant,
        GrantState as GrantState,
    )
    from coordlock.locks.lock import AsyncLock as AsyncLock, Lock as Lock
    from coordlock.model.claim import Mode as Mode
    from coordlock.recipes.barrier import AsyncBarrier as AsyncBarrier, Barrier as Barrier
    from coordlock.recipes.counter import AsyncCounter as AsyncCounter, Counter as Counter
    from coordlock.recipes.double_barrier import (
        AsyncDoubleBarrier as AsyncDoubleBarrier,
        DoubleBarrier as DoubleBarrier,
    )
    from coordlock.recipes.election import AsyncElection as AsyncElection, Election as Election
    from coordlock.recipes.gate import AsyncGate as AsyncGate, Gate as Gate
    from coordlock.recipes.group import AsyncGroup as AsyncGroup, Group as Group
    from coordlock.recipes.latch import AsyncLatch as AsyncLatch, Latch as Latch
    from coordlock.recipes.term import AsyncTerm as AsyncTerm, Term as Term
    from coordlock.recipes.value import AsyncValue as AsyncValue, Value as Value
    from coordlock.recipes.values import AsyncValues as AsyncValues, Values as Values
    from coordlock.runtime.cancellation import Cancellation as Cancellation
    from coordlock.runtime.signals import release_on_signals as release_on_signals
    from coordlock.settings import DEFAULT as DEFAULT, Settings as Settings
    from coordlock.work.item import AsyncItem as AsyncItem, Item as Item
    from coordlock.work.queue import AsyncWorkQueue as AsyncWorkQueue, WorkQueue as WorkQueue

    #: The version of the installed distribution.
    __version__: str
    __all__: list[str]

else:
    #: The public names, by the modules that they come from: derived from the imports above.
    # fmt: off
    _NAMES = {
        "backend.config": "settings_from_env",
        "client": "AsyncClient Client connect connect_async",
        "errors": "AcquireTimeout BackendError BackendUnavailable ConfigurationError CoordlockError DeadlockDetected JobNotRun LockLost NameConflict SessionLost StaleToken WaitCancelled WaitError WaitTimeout WorkQueueEmpty WorkQueueFull",  # noqa: E501
        "jobs.job": "AsyncJob Job",
        "jobs.run": "AsyncJobRun JobRun",
        "jobs.schedule": "Cron Every",
        "locks.grant": "AsyncGrant Grant GrantState",
        "locks.lock": "AsyncLock Lock",
        "model.claim": "Mode",
        "recipes.barrier": "AsyncBarrier Barrier",
        "recipes.counter": "AsyncCounter Counter",
        "recipes.double_barrier": "AsyncDoubleBarrier DoubleBarrier",
        "recipes.election": "AsyncElection Election",
        "recipes.gate": "AsyncGate Gate",
        "recipes.group": "AsyncGroup Group",
        "recipes.latch": "AsyncLatch Latch",
        "recipes.term": "AsyncTerm Term",
        "recipes.value": "AsyncValue Value",
        "recipes.values": "AsyncValues Values",
        "runtime.cancellation": "Cancellation",
        "runtime.signals": "release_on_signals",
        "settings": "DEFAULT Settings",
        "work.item": "AsyncItem Item",
        "work.queue": "AsyncWorkQueue WorkQueue",
    }
    # fmt: on
    _HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

    __all__ = sorted(_HOMES, key=lambda name: (not name.isupper(), name))

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("coordlock")
        if name not in _HOMES and name not in (*_NAMES, "types"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Not by importlib, which has to be imported itself.
        module = __import__(f"{__name__}.{_HOMES.get(name, name)}", fromlist=["*"])
        value = globals()[name] = getattr(module, name) if name in _HOMES else module
        return value

    def __dir__() -> list[str]:
        return sorted([*__all__, "__all__", "__doc__", "__version__"])


del TYPE_CHECKING  # no name of this package
