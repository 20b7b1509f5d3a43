"""The recipes that clients make. Each is loaded when it is asked for.

Each method is written twice, for each client: generic methods would show editors type variables.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coordlock.kernel.access import Access
from coordlock.runtime.resident import Resident
from coordlock.settings import DEFAULT, Duration, Timeout

if TYPE_CHECKING:
    from coordlock.locks.transaction import AsyncTransaction, Transaction
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
    from coordlock.work.queue import AsyncWorkQueue, WorkQueue

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
        from coordlock.recipes.election import Election

        return Election(self._access, name, proposal, timeout, max_hold, cancellation)

    def group(self, name: str, *, label: str | None = None) -> Group:
        """The group ``name``: who is there, each member with a value. Nothing is sent yet.

        ``label`` is what others see of its members beside host and pid. A lock of the same name
        has the same queue, so give them different names. Raises `InvalidName`, and `Unsupported`
        where the backend keeps no values with contenders.
        """
        from coordlock.recipes.group import Group

        return Group(self._access, name, label)

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
        from coordlock.work.queue import WorkQueue

        options = max_depth, max_attempts, retry_delay, timeout, max_hold, label
        return WorkQueue(self._access, name, *options)

    def value(self, key: str) -> Value:
        """The value that is kept under ``key``, an absolute path. Nothing is sent yet.

        Grants read and write the same keys. Raises `InvalidKey`, and `Unsupported` where the
        backend keeps no data.
        """
        from coordlock.recipes.value import Value

        return Value(self._access, key)

    def values(self, folder: str) -> Values:
        """All values directly in a folder, an absolute path. Nothing is sent yet.

        Raises what `value` does.
        """
        from coordlock.recipes.values import Values

        return Values(self._access, folder)

    def transaction(self) -> Transaction:
        """Writes of several keys that the service makes all at once, or none of them.

        As in::

            client.transaction().put("/app/host", b"db2").put("/app/port", b"5433").commit()

        No lock guards it: see `Grant.transaction` for one that does. Its ``commit`` raises
        `Unsupported` where the backend keeps no data.
        """
        from coordlock.locks.transaction import Transaction, root_of
        from coordlock.recipes.value import send

        root = root_of(self._access.engine)
        return Transaction(root, (), partial(send, self._access))

    def counter(self, name: str) -> Counter:
        """The counter ``name``, 0 at first. Nothing is sent yet.

        Raises `InvalidName`, and `Unsupported` where the backend keeps no data.
        """
        from coordlock.recipes.counter import Counter

        return Counter(self._access, name)

    def latch(self, name: str, count: int) -> Latch:
        """The latch ``name``, open for good once it was counted down ``count`` times.

        Nothing is sent yet. Raises ValueError for a count that is not from 1 to 2**31 - 1, and what
        `counter` raises.
        """
        from coordlock.recipes.latch import Latch

        return Latch(self._access, name, count)

    def gate(self, name: str) -> Gate:
        """The gate ``name``, open at first. Nothing is sent yet. Raises what `counter` raises."""
        from coordlock.recipes.gate import Gate

        return Gate(self._access, name)

    def barrier(self, name: str, parties: int) -> Barrier:
        """The barrier ``name``, at which ``parties`` wait for each other, again and again.

        From 1 to 100, the same number for all clients. Nothing is sent yet. Locks, groups and
        double barriers of the same name have the same queue, so give them different names. Raises
        ValueError for another number, `InvalidName`, and `Unsupported` where the backend keeps no
        data or no values with contenders.
        """
        from coordlock.recipes.barrier import Barrier

        return Barrier(self._access, name, parties)

    def double_barrier(
        self, name: str, parties: int, *, timeout: Duration | None = None
    ) -> DoubleBarrier:
        """The double barrier ``name``, which ``parties`` enter together and leave together.

        ``timeout`` in seconds is the default of its ``enter`` and of its ``leave``. The rest is as
        for `barrier`.
        """
        from coordlock.recipes.double_barrier import DoubleBarrier

        return DoubleBarrier(self._access, name, parties, timeout)


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
        from coordlock.recipes.election import AsyncElection

        return AsyncElection(self._access, name, proposal, timeout, max_hold, cancellation)

    def group(self, name: str, *, label: str | None = None) -> AsyncGroup:
        """The group ``name``: who is there, each member with a value. See `Client.group`."""
        from coordlock.recipes.group import AsyncGroup

        return AsyncGroup(self._access, name, label)

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
        from coordlock.work.queue import AsyncWorkQueue

        options = max_depth, max_attempts, retry_delay, timeout, max_hold, label
        return AsyncWorkQueue(self._access, name, *options)

    def value(self, key: str) -> AsyncValue:
        """The value that is kept under ``key``, an absolute path. See `Client.value`."""
        from coordlock.recipes.value import AsyncValue

        return AsyncValue(self._access, key)

    def values(self, folder: str) -> AsyncValues:
        """All values directly in a folder, an absolute path. See `Client.values`."""
        from coordlock.recipes.values import AsyncValues

        return AsyncValues(self._access, folder)

    def transaction(self) -> AsyncTransaction:
        """Writes of several keys that the service makes all at once. See `Client.transaction`."""
        from coordlock.locks.transaction import AsyncTransaction, root_of
        from coordlock.recipes.value import send

        root = root_of(self._access.engine)
        return AsyncTransaction(root, (), partial(send, self._access))

    def counter(self, name: str) -> AsyncCounter:
        """The counter ``name``, 0 at first. See `Client.counter`."""
        from coordlock.recipes.counter import AsyncCounter

        return AsyncCounter(self._access, name)

    def latch(self, name: str, count: int) -> AsyncLatch:
        """The latch ``name``, open once it was counted down. See `Client.latch`."""
        from coordlock.recipes.latch import AsyncLatch

        return AsyncLatch(self._access, name, count)

    def gate(self, name: str) -> AsyncGate:
        """The gate ``name``, open at first. See `Client.gate`."""
        from coordlock.recipes.gate import AsyncGate

        return AsyncGate(self._access, name)

    def barrier(self, name: str, parties: int) -> AsyncBarrier:
        """The barrier ``name``, at which ``parties`` wait for each other. See `Client.barrier`."""
        from coordlock.recipes.barrier import AsyncBarrier

        return AsyncBarrier(self._access, name, parties)

    def double_barrier(
        self, name: str, parties: int, *, timeout: Duration | None = None
    ) -> AsyncDoubleBarrier:
        """The double barrier ``name``. See `Client.double_barrier`."""
        from coordlock.recipes.double_barrier import AsyncDoubleBarrier

        return AsyncDoubleBarrier(self._access, name, parties, timeout)
