"""The service that a command line names, and connecting to it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from coordlock.backend.config import configure, warn_unless_chosen
from coordlock.backend.registry import backend_for_scheme
from coordlock.cli.exits import complain
from coordlock.client import Client, connect
from coordlock.errors import ConfigurationError
from coordlock.settings import Settings

__all__ = ["Service", "connected"]

#: Seconds until a person learns what is waited for.
_PATIENCE: Final = 1.0
#: No timeout bounds connecting to less, in seconds.
_CONNECT_AT_LEAST: Final = 1.0


@dataclass(frozen=True)
class Service:
    """What the options ``--url`` and ``--connect-timeout`` say; None where they say nothing."""

    url: str | None
    connect_timeout: float | None

    def settings(self, *, alone: bool = False, **options: object) -> Settings:
        """The configuration, with those of ``options`` over it that are not None.

        Raises `ConfigurationError`, also for a backend that covers one process only, unless it is
        of use ``alone``. Otherwise says so on stderr where nothing is configured.
        """
        options["connect_timeout"] = self.connect_timeout
        given = {name: value for name, value in options.items() if value is not None}
        settings = configure(self.url, given)
        if alone:
            return settings
        if backend_for_scheme(settings.scheme).capabilities.reach == "process":
            raise ConfigurationError(
                f"{settings.scheme}:// covers one process, so it excludes no other command: "
                "use local://, etcd://, postgresql://, redis:// or zookeeper://"
            )
        warn_unless_chosen(settings, complain)
        return settings

    def connected(self, timeout: float | None = None) -> AbstractContextManager[Client]:
        """A client, closed at the end. ``timeout`` bounds connecting, as in `connected`."""
        return connected(self.settings(), timeout)


@contextmanager
def connected(settings: Settings, timeout: float | None = None) -> Iterator[Client]:
    """A client, closed at the end. A terminal on stderr shows when connecting takes a while.

    A ``timeout`` in seconds bounds connecting, to a second at least, so that a short one still
    tells a busy lock from a dead service. None and 0 set no bound.
    """
    if timeout:
        bound = min(settings.connect_timeout, max(timeout, _CONNECT_AT_LEAST))
        settings = replace(settings, connect_timeout=bound)
    waiting = threading.Timer(_PATIENCE, complain, [f"connecting to {settings}"])
    if sys.stderr.isatty():
        waiting.start()
    try:
        client = connect(settings)
    finally:
        waiting.cancel()
    with client:
        yield client
