"""One migration of a database at a time, for the ``env.py`` of Alembic.

::

    # at the end of env.py
    with one_at_a_time():
        if context.is_offline_mode():
            run_migrations_offline()
        else:
            run_migrations_online()
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alembic import context
from sqlalchemy import Engine, event

import coordlock
from coordlock.runtime.guards import block

__all__ = ["one_at_a_time"]


@block
def one_at_a_time(
    target: Any = None, *, name: str = "alembic", timeout: float | str | None = None
) -> Iterator[coordlock.Grant | None]:
    """Hold a lock while ``env.py`` runs, outside of its connection; gives the grant.

    ``target`` is what `coordlock.connect` takes. ``name`` is that of the lock: by default
    one for all databases, because no URL tells which ones are the same. ``timeout`` (seconds, or
    such as ``"5m"``) bounds the wait for another migration; None waits for ever. With ``--sql``,
    which only prints, nothing is locked and None is given.

    Each commit in the block asks the service first. It raises `LockLost` after a loss, and commits
    nothing. Raises what `Lock.acquire` raises.
    """
    if context.is_offline_mode():
        yield None
        return
    with (
        coordlock.connect(target, label="alembic") as client,
        client.lock(name, timeout=timeout) as grant,
    ):

        def verify(_: object) -> None:
            grant.verify()

        verify(None)  # a service that can't tell refuses before anything is changed
        event.listen(Engine, "commit", verify)
        try:
            yield grant
        finally:
            event.remove(Engine, "commit", verify)
