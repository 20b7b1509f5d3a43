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

The locks live in etcd, ZooKeeper, PostgreSQL, Redis, the files of one machine, or in memory for
tests. Importing this package imports no backend. The documentation tells what a lock cannot
promise.
"""

#: The public names by module. Nothing of coordlock is imported before it is used: a program that
#: starts may never take a lock. Editors and type checkers read ``__init__.pyi``, which
#: ``python -m tests.unit.test_api`` makes of this.
_NAMES = {
    "backend.config": "settings_from_env",
    "client": "AsyncClient Client connect connect_async",
    "errors": (
        "AcquireTimeout BackendError BackendUnavailable ConfigurationError "
        "CoordlockError DeadlockDetected JobNotRun LockLost NameConflict SessionLost StaleToken "
        "WaitCancelled WaitError WaitTimeout WorkQueueEmpty WorkQueueFull"
    ),
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
