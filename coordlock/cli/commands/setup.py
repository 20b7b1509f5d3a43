"""``coordlock setup``: what a service needs before its first client."""

from __future__ import annotations

from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.text import echo
from coordlock.errors import ConfigurationError

__all__ = ["setup"]


def setup(
    *, service: Service, what: str, prints: bool, max_ttl: float | None, restored: bool
) -> int:
    """Make the schema coordlock in the database of the URL, or show it.

    Only PostgreSQL needs this, once for each database. The role must be allowed to create a schema.
    Each role that locks needs GRANT USAGE ON SCHEMA coordlock. Where the schema is there, nothing
    changes but what an option asks for.
    """
    from coordlock_postgresql import schema

    if prints:
        echo(schema.source())
        return Exit.OK
    settings = service.settings()
    if not settings.scheme.startswith(what.removesuffix("ql")):
        raise ConfigurationError(
            f"{settings} is no PostgreSQL: give one with --url, such as postgresql://host/database"
        )
    has_made = schema.set_up(settings, max_ttl=max_ttl, restored=restored)
    complain("the schema coordlock is made" if has_made else "the schema coordlock is there")
    return Exit.OK
