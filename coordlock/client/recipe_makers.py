"""The recipes that clients make. Each is loaded when it is asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from coordlock.client.lock_makers import Maker
from coordlock.settings import DEFAULT, Duration, Timeout

if TYPE_CHECKING:
    from typing import Literal

    from coordlock.jobs.job import AsyncJob, Job
    from coordlock.jobs.schedule import Schedule
    from coordlock.recipes.barrier import AsyncBarrier, Barrier
    from coordlock.recipes.counter import AsyncCounter, Counter
    from coordlock.recipes.double_barrier import AsyncDoubleBarrier, DoubleBarrier
    from coordlock.recipes.election import AsyncElection, Election
    from coordlock.recipes.gate import AsyncGate, Gate
    from coordlock.recipes.group import AsyncGroup, Group
    from coordlock.recipes.latch import AsyncLatch, Latch
    from coordlock.recipes.value import AsyncValue, Value
    from coordlock.recipes.values import AsyncValues, Values
    from coordlock.records.transaction import AsyncTransaction, Transaction
    from coordlock.work.queue import AsyncWorkQueue, WorkQueue

__all__ = ["AsyncRecipes", "Recipes"]

ElectionT = TypeVar("ElectionT", "Election", "AsyncElection")
GroupT = TypeVar("GroupT", "Group", "AsyncGroup")
WorkQueueT = TypeVar("WorkQueueT", "WorkQueue", "AsyncWorkQueue")
JobT = TypeVar("JobT", "Job", "AsyncJob")
ValueT = TypeVar("ValueT", "Value", "AsyncValue")
ValuesT = TypeVar("ValuesT", "Values", "AsyncValues")
TransactionT = TypeVar("TransactionT", "Transaction", "AsyncTransaction")
CounterT = TypeVar("CounterT", "Counter", "AsyncCounter")
LatchT = TypeVar("LatchT", "Latch", "AsyncLatch")
GateT = TypeVar("GateT", "Gate", "AsyncGate")
BarrierT = TypeVar("BarrierT", "Barrier", "AsyncBarrier")
DoubleBarrierT = TypeVar("DoubleBarrierT", "DoubleBarrier", "AsyncDoubleBarrier")


class _Makers(
    Maker,
    Generic[
        ElectionT,
        GroupT,
        WorkQueueT,
        JobT,
        ValueT,
        ValuesT,
        TransactionT,
        CounterT,
        LatchT,
        GateT,
        BarrierT,
        DoubleBarrierT,
    ],
):
    """The methods that make recipes, of both clients. They send nothing."""

    def election(
        self,
        name: str,
        value: bytes | None = None,
        *,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
    ) -> ElectionT:
        """The election ``name``: of those that campaign, one leads. Nothing is sent yet.

        ``value``, up to 65,536 bytes, tells others who this candidate is, such as its address; by
        default host and process id. ``timeout`` in seconds is the default of ``campaign``. A term
        is lost after ``max_hold`` seconds, by default the client's.

        It is the exclusive lock of the same name, so give locks other names. Raises `InvalidName`,
        TypeError and ValueError for a wrong value, and `Unsupported` where the backend keeps no
        values with contenders.
        """
        from coordlock.recipes.election import AsyncElection, Election

        return self._kind(Election, AsyncElection)(self._access, name, value, timeout, max_hold)

    def group(self, name: str, *, label: str | None = None) -> GroupT:
        """The group ``name``, whose members each publish a value. Nothing is sent yet.

        ``label`` is what others see of its members beside host and pid. A lock of the same name
        has the same queue, so give them different names. Raises `InvalidName`, and `Unsupported`
        where the backend keeps no values with contenders.
        """
        from coordlock.recipes.group import AsyncGroup, Group

        return self._kind(Group, AsyncGroup)(self._access, name, label)

    def work_queue(
        self,
        name: str,
        *,
        max_depth: int | None = None,
        max_failures: int = 10,
        retry_delay: Duration = 0,
        max_retry_delay: Duration | None = None,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        label: str | None = None,
    ) -> WorkQueueT:
        """The work queue ``name``: producers put items, workers do them. Nothing is sent yet.

        These limits apply to this client. It puts nothing while ``max_depth`` items wait. An item
        that has failed ``max_failures`` times is dead: it is kept, and nobody takes it. A failed
        item is ready again after ``retry_delay`` seconds. With ``max_retry_delay``, each delay is
        twice the one before, up to that, and drawn at random from its upper half. ``timeout`` in
        seconds is the default of ``take``: None waits for ever, 0 looks once. A worker loses an
        item after ``max_hold`` seconds (0.1 s to 30 days, None for no limit), by default the
        client's. ``label`` is what others see of its workers beside host and pid.

        Locks and groups of the same name are independent of it. Raises `InvalidName`, ValueError,
        and `Unsupported` where the backend keeps no data.
        """
        from coordlock.work.queue import AsyncWorkQueue, WorkQueue

        return self._kind(WorkQueue, AsyncWorkQueue)(
            self._access,
            name,
            max_depth=max_depth,
            max_failures=max_failures,
            retry_delay=retry_delay,
            max_retry_delay=max_retry_delay,
            timeout=timeout,
            max_hold=max_hold,
            label=label,
        )

    def job(
        self,
        name: str,
        *,
        policy: Literal["at-most-once", "at-least-once"] = "at-most-once",
        overlap: Literal["skip", "queue"] = "skip",
        schedule: Schedule | None = None,
        catch_up: Literal["latest", "all"] = "latest",
        max_attempts: int = 10,
        retry_delay: Duration = 10.0,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        label: str | None = None,
    ) -> JobT:
        """The job ``name``: work that is done once for each slot. Nothing is sent yet.

        A slot identifies one run: the instant for which it is scheduled, or a number. With
        ``"at-most-once"`` a slot is never started a second time; with ``"at-least-once"`` it is
        started again until it is done, at most ``max_attempts`` times, and after a failure not
        before ``retry_delay`` seconds, which double each time, up to an hour. While the job is at
        work, other calls raise `AlreadyRunning` with the ``overlap`` ``"skip"``; with ``"queue"``
        they wait for up to ``timeout`` seconds (None for ever), also for ``retry_delay``. `Job.due`
        takes the slots from ``schedule``, an `Every` or a `Cron`: with the ``catch_up``
        ``"latest"`` the last one alone, with ``"all"`` all that were missed. A run that takes
        longer than ``max_hold`` seconds (0.1 s to 30 days, None for no limit) is lost, by default
        the client's; ``label`` is what others see of its runs.

        Locks and work queues of the same name are independent of it. Raises `InvalidName`,
        ValueError and TypeError, and `Unsupported` where the backend keeps no data or no order.
        """
        from coordlock.jobs.job import AsyncJob, Job

        return self._kind(Job, AsyncJob)(
            self._access,
            name,
            policy=policy,
            overlap=overlap,
            schedule=schedule,
            catch_up=catch_up,
            max_attempts=max_attempts,
            retry_delay=retry_delay,
            timeout=timeout,
            max_hold=max_hold,
            label=label,
        )

    def value(self, key: str) -> ValueT:
        """The value that is kept under ``key``, an absolute path. Nothing is sent yet.

        Grants read and write the same keys. Raises `InvalidName`, and `Unsupported` where the
        backend keeps no data.
        """
        from coordlock.recipes.value import AsyncValue, Value

        return self._kind(Value, AsyncValue)(self._access, key)

    def values(self, folder: str) -> ValuesT:
        """All values directly in a folder, an absolute path. Nothing is sent yet.

        Raises what `value` does.
        """
        from coordlock.recipes.values import AsyncValues, Values

        return self._kind(Values, AsyncValues)(self._access, folder)

    def transaction(self) -> TransactionT:
        """Writes of several keys that the service makes all at once, or none of them.

        As in::

            client.transaction().put("/app/host", b"db2").put("/app/port", b"5433").commit()

        No lock guards it: see `Grant.transaction` for one that does. Its ``commit`` raises
        `Unsupported` where the backend keeps no data.
        """
        from coordlock.recipes.value import send
        from coordlock.records.transaction import AsyncTransaction, Transaction, root_of

        root = root_of(self._access.engine)
        return self._kind(Transaction, AsyncTransaction)(root, (), partial(send, self._access))

    def counter(self, name: str) -> CounterT:
        """The counter ``name``, 0 at first. Nothing is sent yet.

        Raises `InvalidName`, and `Unsupported` where the backend keeps no data.
        """
        from coordlock.recipes.counter import AsyncCounter, Counter

        return self._kind(Counter, AsyncCounter)(self._access, name)

    def latch(self, name: str, count: int) -> LatchT:
        """The latch ``name``, which opens for good once it is counted down ``count`` times.

        Nothing is sent yet. Raises ValueError for a count that is not from 1 to 2**31 - 1, and what
        `counter` raises.
        """
        from coordlock.recipes.latch import AsyncLatch, Latch

        return self._kind(Latch, AsyncLatch)(self._access, name, count)

    def gate(self, name: str) -> GateT:
        """The gate ``name``, open at first. Nothing is sent yet. Raises what `counter` raises."""
        from coordlock.recipes.gate import AsyncGate, Gate

        return self._kind(Gate, AsyncGate)(self._access, name)

    def barrier(self, name: str, parties: int) -> BarrierT:
        """The barrier ``name``, at which ``parties`` wait for each other, again and again.

        ``parties`` is 1 to 100, the same number for all clients. Nothing is sent yet. Locks, groups
        and double barriers of the same name have the same queue, so give them different names.
        Raises ValueError for another number, `InvalidName`, and `Unsupported` where the backend
        keeps no data or no values with contenders.
        """
        from coordlock.recipes.barrier import AsyncBarrier, Barrier

        return self._kind(Barrier, AsyncBarrier)(self._access, name, parties)

    def double_barrier(
        self, name: str, parties: int, *, timeout: Timeout = DEFAULT
    ) -> DoubleBarrierT:
        """The double barrier ``name``, which ``parties`` enter together and leave together.

        ``timeout`` in seconds is the default of its ``enter`` and of its ``leave``, and is by
        default the client's. The rest is as for `barrier`.
        """
        from coordlock.recipes.double_barrier import AsyncDoubleBarrier, DoubleBarrier

        return self._kind(DoubleBarrier, AsyncDoubleBarrier)(self._access, name, parties, timeout)


class Recipes(
    _Makers[
        "Election",
        "Group",
        "WorkQueue",
        "Job",
        "Value",
        "Values",
        "Transaction",
        "Counter",
        "Latch",
        "Gate",
        "Barrier",
        "DoubleBarrier",
    ],
):
    """The recipes that `Client` makes."""


class AsyncRecipes(
    _Makers[
        "AsyncElection",
        "AsyncGroup",
        "AsyncWorkQueue",
        "AsyncJob",
        "AsyncValue",
        "AsyncValues",
        "AsyncTransaction",
        "AsyncCounter",
        "AsyncLatch",
        "AsyncGate",
        "AsyncBarrier",
        "AsyncDoubleBarrier",
    ],
):
    """The recipes that `AsyncClient` makes."""
