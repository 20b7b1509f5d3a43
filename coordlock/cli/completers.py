"""What the words of a command line may be: names of locks in use, and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from coordlock.errors import Unsupported

if TYPE_CHECKING:
    import argparse

    from coordlock.client import Client

__all__ = ["complete_key", "complete_name"]

#: Seconds: a person at a shell does not wait for longer.
_PATIENCE: Final = 1.0


def asked(
    parsed_args: argparse.Namespace, question: Callable[[Client], Iterable[str]]
) -> list[str]:
    """The service's answer to ``question``, to be typed; nothing where it cannot tell."""
    from coordlock.backend.config import configure
    from coordlock.client import connect

    try:
        options = {"connect_timeout": _PATIENCE, "request_timeout": _PATIENCE}
        with connect(configure(getattr(parsed_args, "url", None), options)) as client:
            return [text for text in question(client) if text.isprintable()]
    except Exception:
        return []  # an error's text would land in the line that is being typed


def complete_name(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The names that start with ``prefix``, in use or of records."""

    def names(client: Client) -> Iterable[str]:
        yield from client.admin.names()
        with suppress(Unsupported):
            yield from (record.name for record in client.admin.records())

    found = dict.fromkeys(asked(parsed_args, names))
    return [name for name in found if name.startswith(prefix)]


def complete_key(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The keys that start with ``prefix``, in its folder."""
    folder = prefix.rpartition("/")[0] + "/"
    keys = asked(parsed_args, lambda client: list(client.values(folder).get()))
    return [key for key in keys if key.startswith(prefix)]
