"""The table that holds the newest tokens: one row for each resource that was ever checked."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    Text,
    func,
    select,
)
from sqlalchemy.schema import CreateTable

from coordlock.fencing.sql.dialect import named_dialect

__all__ = ["FENCE_TABLE", "create_fence_table", "fence_ddl", "fence_table"]

#: Of PostgreSQL's advisory locks; taken for as long as the table is being created.
_CREATORS: Final = int.from_bytes(b"coordlck", "big")


def fence_table(
    metadata: MetaData, name: str = "coordlock_fence", schema: str | None = None
) -> Table:
    """Add the fence's table to ``metadata``: for ``create_all``, and for Alembic to see it.

    Hand it to the fences then: ``SQLFence(connection, table)``. The names given to the constraints
    are parts of names where ``metadata`` has a naming convention.
    """
    # PostgreSQL sorts text as the operating system says, and an update of that can leave an index
    # which does not find its rows: the resource would be inserted anew, and the stale admitted.
    # "C" is the order of bytes and never changes. SQLite sorts so by itself.
    name_of_resource = Text().with_variant(Text(collation="C"), "postgresql")
    return Table(
        name,
        metadata,
        Column("resource", name_of_resource, primary_key=True),
        *(
            Column(
                column,
                BigInteger,
                CheckConstraint(f"{column} >= 0", name=f"{column}_not_negative"),
                nullable=False,
            )
            for column in ("exclusive_token", "shared_token")
        ),
        schema=schema,
    )


#: What the fences use when they are given no other: ``coordlock_fence``, in the default schema.
FENCE_TABLE: Final = fence_table(MetaData())


def create_fence_table(bind: Engine | Connection, table: Table = FENCE_TABLE) -> None:
    """Create ``table`` unless it exists; in the transaction of ``bind`` when that is a connection.

    Any number of processes may do so at the same time, and where the table exists it needs no right
    to create one. In asyncio: ``await connection.run_sync(create_fence_table)``. Raises
    SQLAlchemy's errors.
    """
    if isinstance(bind, Engine):
        with bind.begin() as connection:
            create_fence_table(connection, table)
        return
    if bind.dialect.has_table(bind, table.name, schema=bind.schema_for_object(table)):
        return
    if bind.dialect.name == "postgresql":
        # There IF NOT EXISTS does not see a table that is just being created, and fails.
        bind.execute(select(func.pg_advisory_xact_lock(_CREATORS)))
    bind.execute(CreateTable(table, if_not_exists=True))


def fence_ddl(dialect: str = "postgresql", table: Table = FENCE_TABLE) -> str:
    """The statement that creates ``table``, as text, for migrations that are written by hand.

    ``dialect`` is ``postgresql`` or ``sqlite``; raises `ConfigurationError` for others.
    """
    statement = str(CreateTable(table).compile(dialect=named_dialect(dialect)))
    return re.sub(r" +\n", "\n", statement.strip().expandtabs(4)) + ";\n"
