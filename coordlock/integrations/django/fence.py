"""The fence in a transaction of the ORM.

The first statement inserts the resource's row unless it exists, and the second locks it until the
transaction ends. So all checks of one resource wait for each other, as with
`coordlock.fencing.sql`, whose table has the same name and columns. On SQLite the first statement
makes this transaction the only writer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import router, transaction

from coordlock import ConfigurationError
from coordlock.fencing import Fence, FencingToken, Marks, Presented

__all__ = ["DjangoFence"]


class DjangoFence(Fence):
    """Checks tokens within the open transaction of the database ``using``.

    The check is committed or rolled back with the caller's writes, and they are one step with it::

        with client.lock("alice") as grant, transaction.atomic(durable=True):
            DjangoFence().check("alice", grant)
            ...

    Check before the first read. Other checks of the same resource wait until the transaction ends.
    A refusal is no error of the database: the transaction can go on after `StaleToken`.

    ``manage.py migrate`` makes its table, ``coordlock_fence``, which must be in the same database
    as what it protects; ``using`` is the alias, and None the one that the routers choose. It works
    on PostgreSQL and SQLite, with names of resources of up to 255 characters.
    """

    def __init__(self, using: str | None = None) -> None:
        self._using = using

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """Remember ``token``; raise `StaleToken` when a newer one was seen: see `Fence.check`.

        Raises `ConfigurationError` outside of a transaction, and for other databases than
        PostgreSQL and SQLite.
        """
        presented = FencingToken.of(token, shared)
        rows = self._rows(resource)
        connection = transaction.get_connection(rows.db)
        if connection.vendor not in ("postgresql", "sqlite"):
            raise ConfigurationError(
                f"DjangoFence works on postgresql and sqlite, not on {connection.vendor}"
            )
        if not connection.in_atomic_block:
            raise ConfigurationError(
                f"no transaction of the database {rows.db!r} is open, so the check and the write "
                "would not be one step: check inside of locked_atomic() or transaction.atomic()"
            )
        rows.bulk_create([rows.model(resource=resource)], ignore_conflicts=True)
        row = rows.select_for_update().get()
        marks = Marks(row.exclusive_token, row.shared_token).raised(resource, presented)
        # Also where nothing changes: a transaction that reads an older snapshot must fail here.
        rows.update(exclusive_token=marks.exclusive, shared_token=marks.shared)

    def marks(self, resource: str) -> Marks:
        """The newest tokens seen, as this transaction sees them: see `Fence.marks`."""
        row = self._rows(resource).first()
        return Marks(row.exclusive_token, row.shared_token) if row else Marks()

    def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""
        self._rows(resource).delete()

    def prune(self, is_gone: Callable[[str, Marks], bool]) -> int:
        """Forget the resources of which ``is_gone(resource, marks)`` is true; how many.

        The conditions are those of `Fence.forget`. A resource that sees a newer token meanwhile
        stays.
        """
        pruned = 0
        for row in list(self._all()):
            if is_gone(row.resource, Marks(row.exclusive_token, row.shared_token)):
                pruned += (
                    self._all()
                    .filter(
                        resource=row.resource,
                        exclusive_token=row.exclusive_token,
                        shared_token=row.shared_token,
                    )
                    .delete()[0]
                )
        return pruned

    def _rows(self, resource: str) -> Any:
        from coordlock.fencing.token import check_resource

        return self._all().filter(resource=check_resource(resource))

    def _all(self) -> Any:
        from coordlock.integrations.django.models import FenceMark

        database = self._using or router.db_for_write(FenceMark)
        return FenceMark.objects.using(database).all()
