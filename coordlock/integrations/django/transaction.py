"""A transaction of the ORM inside of a lock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from django.db import transaction

import coordlock
from coordlock.errors import Unsupported
from coordlock.integrations.django.client import get_client
from coordlock.integrations.django.fence import DjangoFence
from coordlock.runtime.guards import Block, PlainFunction, block

__all__ = ["locked_atomic"]


_DECORATED: Final = PlainFunction(
    "locked_atomic decorates functions",
    "whose body would run without the lock and the transaction",
    "decorate a plain function, and call it by sync_to_async",
    "write `with locked_atomic(...)` inside of it",
)


def locked_atomic(
    lock: str | coordlock.Lock, *, using: str | None = None, fenced: bool = False
) -> Block[coordlock.Grant]:
    """Hold ``lock``, and run the block in a transaction that ends before the release.

    A context manager that gives the grant, and a decorator. The transaction is rolled back, and
    `LockLost` raised, where the lock is lost before the end of the block. If the database also has
    the locks, the transaction guards the grant (see `Grant.guard`), and lock and data end in one
    commit.

    Args:
        lock: a lock, or the name of one of `get_client`.
        using: the database, as for ``transaction.atomic``.
        fenced: check the token with `DjangoFence` before the block, under the lock's name. Then the
            commit of a holder that has lost the lock unnoticed can't overwrite its successor's.

    Raises RuntimeError, before it acquires, where a transaction is open already: that one would be
    committed after the release, and updates would be lost. Raises what acquiring the lock raises,
    `StaleToken` where ``fenced``, and TypeError for a lock of asyncio, and for coroutine functions
    and generators, whose body would run after the transaction.
    """
    return _block(lock, using, fenced)


def _locked_atomic(
    lock: str | coordlock.Lock, using: str | None, fenced: bool
) -> Iterator[coordlock.Grant]:
    wanted: object = lock
    if isinstance(wanted, coordlock.AsyncLock):
        raise TypeError(
            "transactions of Django are sync: pass a name, or a lock of get_client(), and call the "
            "function from an async view by sync_to_async"
        )
    _refuse_open_transaction(using)
    held = get_client().lock(lock) if isinstance(lock, str) else lock
    with held as grant, transaction.atomic(using=using, durable=True):
        is_guarded = _guard(grant, using)
        if fenced:
            DjangoFence(using).check(held.name, grant)
        yield grant
        if is_guarded:
            grant.release_with(transaction.get_connection(using))
        else:
            grant.check()  # the last moment at which the transaction can still be rolled back


_block: Final = block(_locked_atomic, _DECORATED)


def _guard(grant: coordlock.Grant, using: str | None) -> bool:
    """Guard ``grant`` by the open transaction; False if that is in another database."""
    connection = transaction.get_connection(using)
    # The transaction of a TestCase ends long after the block.
    if connection.vendor != "postgresql" or len(connection.atomic_blocks) > 1:
        return False
    try:
        grant.guard(connection)
    except Unsupported:
        return False
    return True


def _refuse_open_transaction(using: str | None) -> None:
    connection = transaction.get_connection(using)
    if connection.in_atomic_block:
        # That of a TestCase, which encloses every test, is none, as for atomic(durable=True).
        is_open = not connection.atomic_blocks[-1]._from_testcase
    else:
        is_open = not connection.get_autocommit()
    if is_open:
        raise RuntimeError(
            f"a transaction of the database {connection.alias!r} is open. It would be committed "
            "after the lock's release, and updates would be lost. ATOMIC_REQUESTS opens one for "
            "each view: write @transaction.non_atomic_requests above the view. Elsewhere, call "
            "locked_atomic() outside of atomic(), and leave autocommit on"
        )
