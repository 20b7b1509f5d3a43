"""Locks that a session of SQLAlchemy holds until its commit or rollback.

::

    with sessions() as session:
        hold(session, client.lock("account/alice", timeout=30))
        session.get_one(Account, "alice").balance += 1
        session.commit()

With an `AsyncSession` and a lock of an `AsyncClient`: ``await hold_async(session, lock)``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
)
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, event
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.util import await_only

from coordlock import LockLost
from coordlock.integrations.checked import Checked

__all__ = ["hold", "hold_async"]

#: Where a session keeps what it holds, in its ``info``.
_HELD: Final = "coordlock"


G = TypeVar("G", bound=Checked)


def hold(session: Session | scoped_session[Any], lock: AbstractContextManager[G]) -> G:
    """Acquire ``lock``, of any kind, and release it after the session's transaction; the grant.

    The commit raises `LockLost` where the lock was lost before, and then commits nothing; or was
    lost during the commit. The release needs no block: don't enter the grant with ``with``.

    What the session has loaded earlier is expired, because it may be old.

    Raises `InvalidRequestError` if the session's transaction has read or changed anything before;
    and for a session on a connection whose transaction the caller has begun, because that one is
    committed after the release. Where a savepoint is enough, such as in tests, make the session
    with ``join_transaction_mode="create_savepoint"``. Raises what ``acquire`` raises.
    """
    session = session() if isinstance(session, scoped_session) else session
    if isinstance(session, AsyncSession) or not hasattr(lock, "__enter__"):
        raise TypeError("for asyncio, write: await hold_async(session, lock)")
    _refuse(session, lock)
    stack = ExitStack()
    grant = stack.enter_context(lock)
    try:
        _until_the_end(session, grant, stack.close)
    except BaseException:
        stack.close()  # the session is closed for good, or Ctrl-C: no transaction's end releases it
        raise
    return grant


async def hold_async(
    session: AsyncSession | async_scoped_session[Any], lock: AbstractAsyncContextManager[G]
) -> G:
    """`hold` for asyncio.

    After an ``await``, an object that was loaded before can be read again only once it was selected
    or refreshed.
    """
    session = session() if isinstance(session, async_scoped_session) else session
    if not isinstance(session, AsyncSession) or not hasattr(lock, "__aenter__"):
        raise TypeError("hold_async takes an AsyncSession and a lock of an AsyncClient")
    _refuse(session.sync_session, lock)
    stack = AsyncExitStack()
    grant = await stack.enter_async_context(lock)
    try:
        _until_the_end(session.sync_session, grant, lambda: await_only(stack.aclose()))
    except BaseException:
        await stack.aclose()
        raise
    return grant


class _Held:
    """What a session holds until its transaction ends."""

    def __init__(self) -> None:
        self.grants: list[Checked] = []
        self.releases: list[Callable[[], None]] = []
        self.is_committed = False


def _refuse(session: Session, lock: object) -> None:
    transaction = session.get_transaction()
    if transaction is not None and (
        transaction._connections  # there is no public way to ask
        or session.in_nested_transaction()
        or session.dirty
        or session.deleted
    ):
        raise InvalidRequestError(
            f"{lock!r} comes too late: the session's transaction has begun, so what it has read "
            "may be old. Write hold(session, lock) before the session's first query, or after "
            "commit() or rollback()"
        )
    if (
        isinstance(session.bind, Connection)
        and session.join_transaction_mode in ("conditional_savepoint", "rollback_only")
        and session.bind.in_transaction()
    ):
        raise InvalidRequestError(
            f"{lock!r} would be released before the commit: the session is on a connection whose "
            "transaction has begun, and is committed by whoever began it. Hold the lock around "
            "that transaction: with lock, connection.begin(): ... In tests, make the session with "
            'join_transaction_mode="create_savepoint"'
        )


def _until_the_end(session: Session, grant: Checked, release: Callable[[], None]) -> None:
    if not event.contains(session, "before_commit", _check):
        event.listen(session, "before_commit", _check)
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_transaction_end", _ended)
    held: _Held = session.info.setdefault(_HELD, _Held())
    held.grants.append(grant)
    held.releases.append(release)
    session.expire_all()
    if not session.in_transaction():
        session.begin()


def _check(session: Session) -> None:
    if (held := session.info.get(_HELD)) is not None:
        for grant in held.grants:
            grant.check()


def _committed(session: Session) -> None:
    if (held := session.info.get(_HELD)) is not None:
        held.is_committed = not session.in_nested_transaction()


def _ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is not None:
        return
    held: _Held | None = session.info.pop(_HELD, None)
    if held is None:
        return
    lost: list[LockLost] = []

    def leave(release: Callable[[], None]) -> None:
        try:
            release()
        except LockLost as error:
            lost.append(error)

    with ExitStack() as stack:  # releases the others, too, where one release fails
        for release in held.releases:
            stack.callback(leave, release)
    if lost and held.is_committed:
        raise lost[-1]
