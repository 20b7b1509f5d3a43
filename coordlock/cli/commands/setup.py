"""``coordlock setup``: what a service needs before its first client."""

from __future__ import annotations

from coordlock.backend.registry import backend_for_scheme
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.parser import UsageError
from coordlock.cli.text import echo

__all__ = ["setup"]


def setup(
    *, service: Service, what: str, prints: bool, max_ttl: float | None, restored: bool
) -> int:
    """Make or upgrade the schema in the URL's database, or show it.

    Only PostgreSQL needs this, once for each database. The role must be allowed to create a schema.
    Each role that locks needs GRANT USAGE ON SCHEMA coordlock. If the schema has this version
    already, only what an option asks for changes. Locks stay.
    """
    if prints:
        if restored or max_ttl is not None:
            raise UsageError(
                "--print shows the schema alone: run --max-ttl and --restored afterwards"
            )
        echo(backend_for_scheme(what).setup_source())
        return Exit.OK
    settings = service.settings()
    backend = backend_for_scheme(settings.scheme)
    has_made = backend.set_up(settings, max_ttl=max_ttl, restored=restored)
    complain("the schema coordlock is made" if has_made else "the schema coordlock is there")
    return Exit.OK
