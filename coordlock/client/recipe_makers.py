"""What clients offer beside locks. Nothing is loaded before it is asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coordlock.kernel.access import Access
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.resident import Resident
from coordlock.settings import DEFAULT, Duration, Timeout

if TYPE_CHECKING:
    from coordlock.locks import transaction
    from coordlock.locks.transaction import AsyncTransaction, Transaction
    from coordlock.recipes import (
        barrier,
        counter,
        double_barrier,
        election,
        gate,
        group,
        latch,
        value,
        values,
    )
    from coordlock.recipes.barrier import AsyncBarrier, Barrier
    from coordlock.recipes.counter import AsyncCounter, Counter
    from coordlock.recipes.double_barrier import AsyncDoubleBarrier, DoubleBarrier
    from coordlock.recipes.election import AsyncElection, Election
    from coordlock.recipes.gate import AsyncGate, Gate
    from coordlock.recipes.group import AsyncGroup, Group
    from coordlock.recipes.latch import AsyncLatch, Latch
    from coordlock.recipes.value import AsyncValue, Value
    from coordlock.recipes.values import AsyncValues, Values
    from coordlock.runtime.cancellation import Cancellation
    from coordlock.work import queue as work_queues
    from coordlock.work.queue import AsyncWorkQueue, WorkQueue
else:
    barrier = Lazily("coordlock.recipes.barrier")
    counter = Lazily("coordlock.recipes.counter")
    double_barrier = Lazily("coordlock.recipes.double_barrier")
    election = Lazily("coordlock.recipes.election")
    gate = Lazily("coordlock.recipes.gate")
    group = Lazily("coordlock.recipes.group")
    work_queues = Lazily("coordlock.work.queue")
    latch = Lazily("coordlock.recipes.latch")
    transaction = Lazily("coordlock.locks.transaction")
    value = Lazily("coordlock.recipes.value")
    values = Lazily("coordlock.recipes.values")

__all__ = ["AsyncRecipes", "Recipes"]


class Recipes(Resident, shown="Client"):
    """What `Client` offers beside locks."""

    _access: Access

    def election(
        self,
        name: str,
        proposal: bytes | None = None,
        *,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> Election:
        """The election ``name``: of those that campaign, one leads. Nothing is sent yet.

        ``proposal``, up to 65,536 bytes, is what others know this candidate by, such as its
        address; host and process id by default. ``timeout`` in seconds is the default of
        ``campaign``, and ``max_hold`` for how long a term may last before it is lost, by default
        the client's. ``cancellation`` ends its campaigns from elsewhere.

        It is the exclusive lock of the same name, so give locks other names. Raises `InvalidName`,
        TypeError and ValueError for what is no proposal, and `Unsupported` where the backend keeps
        no values with contenders.
        """
        return election.Election(self._access, name, proposal, timeout, max_hold, cancellation)

    def group(self, name: str, *, label: str | None = None) -> Group:
        """The group ``name``: who is there, each member with a value. Nothing is sent yet.

        ``label`` is what others see of its members beside host and pid. A lock of the same name
        has the same queue, so give them different names. Raises `InvalidName`, and `Unsupported`
        where the backend keeps no values with contenders.
        """
        return group.Group(self._access, name, label)

    def work_queue(
        self,
        name: str,
        *,
        max_depth: int | None = None,
        max_attempts: int = 10,
        retry_delay: Duration = 0,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        label: str | None = None,
    ) -> WorkQueue:
        """The work queue ``name``: items that some put and others do. Nothing is sent yet.

        Each client says for itself: where ``max_depth`` items wait, none is put. An item that was
        taken ``max_attempts`` times is taken no more, but kept among the dead. One that was given
        back is taken again after ``retry_delay`` seconds. ``timeout`` in seconds is the default of
        its ``take``: None waits for ever, 0 looks once. Who works on an item for longer than
        ``max_hold`` seconds (0.1 s to 30 days, None for no limit) loses it, by default the
        client's. ``label`` is what others see of its workers beside host and pid.

        Locks and groups of the same name have nothing to do with it. Raises `InvalidName`,
        ValueError, and `Unsupported` where the backend keeps no data.
        """
        options = max_depth, max_attempts, retry_delay, timeout, max_hold, label
        return work_queues.WorkQueue(self._access, name, *options)

    def value(self, key: str) -> Value:
        """The value that is kept under ``key``, an absolute path. Nothing is sent yet.

        Grants read and write the same keys. Raises `InvalidKey`, and `Unsupported` where the
        backend keeps no data.
        """
        return value.Value(self._access, key)

    def values(self, folder: str) -> Values:
        """All values directly in a folder, an absolute path. Nothing is sent yet.

        Raises what `value` does.
        """
        return values.Values(self._access, folder)

    def transaction(self) -> Transaction:
        """Writes of several keys that the service makes all at once, or none of them.

        As in::

            client.transaction().put("/app/host", b"db2").put("/app/port", b"5433").commit()

        No lock guards it: see `Grant.transaction` for one that does. Its ``commit`` raises
        `Unsupported` where the backend keeps no data.
        """
        root = transaction.root_of(self._access.engine)
        return transaction.Transaction(root, (), partial(value.send, self._access))

    def counter(self, name: str) -> Counter:
        """The counter ``name``, 0 at first. Nothing is sent yet.

        Raises `InvalidName`, and `Unsupported` where the backend keeps no data.
        """
        return counter.Counter(self._access, name)

    def latch(self, name: str, count: int) -> Latch:
        """The latch ``name``, open for good once it was counted down ``count`` times.

        Nothing is sent yet. Raises ValueError for a count that is not from 1 to 2**31 - 1, and what
        `counter` raises.
        """
        return latch.Latch(self._access, name, count)

    def gate(self, name: str) -> Gate:
        """The gate ``name``, open at first. Nothing is sent yet. Raises what `counter` raises."""
        return gate.Gate(self._access, name)

    def barrier(self, name: str, parties: int) -> Barrier:
        """The barrier ``name``, at which ``parties`` wait for each other, again and again.

        From 1 to 100, the same number for all clients. Nothing is sent yet. Locks, groups and
        double barriers of the same name have the same queue, so give them different names. Raises
        ValueError for another number, `InvalidName`, and `Unsupported` where the backend keeps no
        data or no values with contenders.
        """
        return barrier.Barrier(self._access, name, parties)

    def double_barrier(
        self, name: str, parties: int, *, timeout: Duration | None = None
    ) -> DoubleBarrier:
        """The double barrier ``name``, which ``parties`` enter together and leave together.

        ``timeout`` in seconds is the default of its ``enter`` and of its ``leave``. The rest is as
        for `barrier`.
        """
        return double_barrier.DoubleBarrier(self._access, name, parties, timeout)


class AsyncRecipes(Resident, shown="AsyncClient"):
    """What `AsyncClient` offers beside locks."""

    _access: Access

    def election(
        self,
        name: str,
        proposal: bytes | None = None,
        *,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> AsyncElection:
        """The election ``name``: of those that campaign, one leads. See `Client.election`."""
        return election.AsyncElection(self._access, name, proposal, timeout, max_hold, cancellation)

    def group(self, name: str, *, label: str | None = None) -> AsyncGroup:
        """The group ``name``: who is there, each member with a value. See `Client.group`."""
        return group.AsyncGroup(self._access, name, label)

    def work_queue(
        self,
        name: str,
        *,
        max_depth: int | None = None,
        max_attempts: int = 10,
        retry_delay: Duration = 0,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        label: str | None = None,
    ) -> AsyncWorkQueue:
        """The work queue ``name``: items that some put, others do. See `Client.work_queue`."""
        options = max_depth, max_attempts, retry_delay, timeout, max_hold, label
        return work_queues.AsyncWorkQueue(self._access, name, *options)

    def value(self, key: str) -> AsyncValue:
        """The value that is kept under ``key``, an absolute path. See `Client.value`."""
        return value.AsyncValue(self._access, key)

    def values(self, folder: str) -> AsyncValues:
        """All values directly in a folder, an absolute path. See `Client.values`."""
        return values.AsyncValues(self._access, folder)

    def transaction(self) -> AsyncTransaction:
        """Writes of several keys that the service makes all at once. See `Client.transaction`."""
        root = transaction.root_of(self._access.engine)
        return transaction.AsyncTransaction(root, (), partial(value.send, self._access))

    def counter(self, name: str) -> AsyncCounter:
        """The counter ``name``, 0 at first. See `Client.counter`."""
        return counter.AsyncCounter(self._access, name)

    def latch(self, name: str, count: int) -> AsyncLatch:
        """The latch ``name``, open once it was counted down. See `Client.latch`."""
        return latch.AsyncLatch(self._access, name, count)

    def gate(self, name: str) -> AsyncGate:
        """The gate ``name``, open at first. See `Client.gate`."""
        return gate.AsyncGate(self._access, name)

    def barrier(self, name: str, parties: int) -> AsyncBarrier:
        """The barrier ``name``, at which ``parties`` wait for each other. See `Client.barrier`."""
        return barrier.AsyncBarrier(self._access, name, parties)

    def double_barrier(
        self, name: str, parties: int, *, timeout: Duration | None = None
    ) -> AsyncDoubleBarrier:
        """The double barrier ``name``. See `Client.double_barrier`."""
        return double_barrier.AsyncDoubleBarrier(self._access, name, parties, timeout)
