"""What acquiring returns: a lock that is held, for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from coordlock.errors import CoordlockError, Unsupported
from coordlock.locks.base_grant import BaseGrant, GrantState, raise_or_chain
from coordlock.locks.signals import AwaitingSignals, BlockingSignals
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.promise import Promise, all_of

if TYPE_CHECKING:
    from coordlock.backend import Backend, Listing, Operation, VersionedValue, Written
    from coordlock.model.contender import Contender
    from coordlock.records.transaction import AsyncTransaction, Transaction

__all__ = ["AsyncGrant", "Grant", "GrantState"]


class _GuardingGrant(BaseGrant):
    """What the service does for a grant alone: it looks for the contender in the same step."""

    def _verify(self) -> Steps[None]:
        """Ask the service whether the lock is held; raise `LockLost` if not.

        `check` asks nothing, but may learn late of an eviction; this costs a round trip. The
        service answers by consensus, and the answer was true at a moment during this call. Raises
        `BackendUnavailable` when no answer came within the client's ``request_timeout``,
        `AuthenticationFailed`, `ClientClosed`, and `Unsupported` where the service keeps no order.
        """
        engine, mine = self._engine, self._ticket.contenders
        engine.backend.require("ordered")

        def verify() -> Promise[Written]:
            self.check()
            return engine.backend.write((), mine)

        yield from self._guarded(engine.ask(verify))
        self.check()

    def _read(self, key: str) -> Steps[VersionedValue | None]:
        """What the service keeps under ``key``, an absolute path, or None.

        The value is of a moment at which the lock was held, and includes all earlier writes under
        the lock. Raises `LockLost`, `InvalidName`, `Unsupported`, `BackendUnavailable`,
        `AuthenticationFailed`, `ClientClosed`.
        """
        from coordlock.records.transaction import check_key

        service, (me, *others) = self._service(), self._ticket.contenders
        check_key(key, *self._not_writable())

        def read(guard: Contender) -> Promise[Listing]:
            self.check()
            return service.read(key, guard=guard)

        listing = yield from self._guarded(self._engine.ask(lambda: read(me)))
        if others:  # which were held at that moment, too, if they are now
            rest = self._engine.ask(lambda: all_of(map(read, others)))
            yield from self._guarded(rest)
        return listing.values.get(key)

    def _commit(self, operations: Sequence[Operation]) -> Steps[None]:
        """Make the writes of a transaction, once."""
        service, mine = self._service(), self._ticket.contenders
        self.check()
        sending = self._engine.send(lambda: service.write(operations, mine), "the transaction")
        yield from self._guarded(sending)

    def _ask_in(self, connection: Any, *, awaits: bool, removes: bool = False) -> Any:
        """The answer of the service in the program's transaction; with ``awaits``, to await."""
        self.check()
        contenders, seconds = self._ticket.contenders, self.remaining()
        return self._engine.backend.guard(
            connection, contenders, seconds, removes=removes, awaits=awaits
        )

    def _check_guard(self, answer: str) -> None:
        """Raise what the ``answer`` to that means."""
        if answer == "elsewhere":
            raise Unsupported(
                f"the connection is to another database than the one with the lock {self.name!r}: "
                "use a connection to that one, or a fence, such as coordlock.fencing.sql.SQLFence"
            )
        if answer == "snapshot":
            raise ValueError(
                "the transaction does not see the lock, which was granted after its beginning: "
                "acquire first, then begin, or use READ COMMITTED"
            )
        if answer != "held":
            raise self._lost_because("its contender has left the queue, or its session has ended")

    def _not_writable(self) -> tuple[str, list[str]]:
        """The root and the queues, where transactions must not write."""
        from coordlock.records.transaction import root_of

        return root_of(self._engine), [entry.queue for entry in self._ticket.entries]

    def _service(self) -> Backend:
        """The service, where it keeps data that a contender guards; raises `Unsupported`."""
        self._engine.backend.require("data")
        return self._engine.backend


class Grant(BlockingSignals, _GuardingGrant):
    """A lock that is held. A context manager that releases it; in a forked child it does nothing.

    Any thread of the process may use it: a lock belongs to its grant, not to a thread. Entering one
    that was released or lost raises `LockLost`. What other recipes give, such as `Term` and `Item`,
    is a `Grant`, too, so annotate with this what takes any of them.
    """

    release = blocking(BaseGrant._release)
    verify = blocking(_GuardingGrant._verify)
    read = blocking(_GuardingGrant._read)

    def guard(self, connection: Any) -> None:
        """Make the transaction of ``connection`` a part of this grant, on PostgreSQL.

        Once this returns, no other client gets the lock before that transaction has ended, even if
        this grant is lost meanwhile. So what the transaction commits was done under the lock. If
        the program does nothing in it until the grant's deadline, the server ends it.

        ``connection`` is one of psycopg, SQLAlchemy or Django, or a session of SQLAlchemy, to the
        database that has the locks. Raises `LockLost` if another client may have the lock already,
        `Unsupported` on other services and for a connection to another database, and ValueError for
        one without a transaction, or with one whose snapshot is older than the grant.
        """
        self._guard(connection)

    def release_with(self, connection: Any) -> None:
        """Release the lock by the transaction of ``connection``, on PostgreSQL: see `guard`.

        Other clients get the lock when it has committed or was rolled back, and not before.
        """
        self._guard(connection, removes=True)
        self.release()

    def _guard(self, connection: Any, *, removes: bool = False) -> None:
        answer = self._ask_in(connection, awaits=False, removes=removes)
        if answer == "snapshot":  # which does not show a loss either
            self.verify()
        self._check_guard(answer)

    def transaction(self) -> Transaction:
        """Writes to the service itself, which makes them only while this grant lives.

        As in::

            grant.transaction().put("/app/config", b"on").delete("/app/old").commit()

        This is the safest fence: the service checks the grant's own contender in the same step. It
        works for grants of every kind, also of semaphores. Raises `Unsupported` at once if the
        backend keeps no data; ``commit`` raises the other errors of `read`.
        """
        from coordlock.records.transaction import Transaction

        self._service()  # where the backend keeps no data, that is to be said before any key is
        return Transaction(*self._not_writable(), self._commit)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        has_lost = False
        try:
            has_lost = not (self._engine.inherited or self._released or self.release())
        except CoordlockError as error:
            raise_or_chain(error, body)
        finally:
            if not self._released:
                self._withdraw()  # a block is left only once
        if has_lost:
            self._chain(body)


class AsyncGrant(AwaitingSignals, _GuardingGrant):
    """A lock that is held. An async context manager that releases it.

    Entering one that was released or lost raises `LockLost`.
    """

    release = awaiting(BaseGrant._release)
    verify = awaiting(_GuardingGrant._verify)
    read = awaiting(_GuardingGrant._read)

    async def guard(self, connection: Any) -> None:
        """Make the transaction of ``connection`` a part of this grant: see `Grant.guard`.

        ``connection`` is one for asyncio, of psycopg or SQLAlchemy, or a session of the latter.
        """
        await self._guard(connection)

    async def release_with(self, connection: Any) -> None:
        """Release the lock by the transaction of ``connection``: see `Grant.release_with`."""
        await self._guard(connection, removes=True)
        await self.release()

    async def _guard(self, connection: Any, *, removes: bool = False) -> None:
        answer = await self._ask_in(connection, awaits=True, removes=removes)
        if answer == "snapshot":
            await self.verify()
        self._check_guard(answer)

    def transaction(self) -> AsyncTransaction:
        """Writes that the service makes only while this grant lives: see `Grant.transaction`."""
        from coordlock.records.transaction import AsyncTransaction

        self._service()
        return AsyncTransaction(*self._not_writable(), self._commit)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            has_lost = not (self._engine.inherited or self._released or await self.release())
        except CoordlockError as error:
            raise_or_chain(error, body)
        else:
            if has_lost:
                self._chain(body)
