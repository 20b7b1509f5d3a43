"""The lock that a command line asks for, and acquiring it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import click

from coordlock.cli.exits import complain
from coordlock.cli.options import log_to_stderr, settings_of
from coordlock.client import Client, connect
from coordlock.errors import AcquireTimeout, CoordlockError, Evicted
from coordlock.grant import Grant
from coordlock.lock import Lock
from coordlock.model.claim import Mode
from coordlock.model.names import check_name
from coordlock.settings import Settings

__all__ = ["Wanted"]

#: However short the timeout, in seconds: a busy lock is to be told from a dead service.
_CONNECT_AT_LEAST: Final = 1.0


@dataclass(frozen=True)
class Wanted:
    """What the options of `coordlock.cli.options.acquire_options` say; their names are theirs."""

    name: str
    url: str | None
    nonblock: bool
    timeout: float | None
    shared: bool
    mode: str | None
    slots: int | None
    ttl: str | None
    label: str | None
    reach: str | None
    conflict_exit_code: int
    quiet: bool
    verbose: bool

    def __post_init__(self) -> None:
        if sum((self.shared, self.mode is not None, self.slots is not None)) > 1:
            raise click.UsageError("--shared, --mode and --slots exclude each other")
        if self.nonblock and self.timeout is not None:
            raise click.UsageError("--nonblock and --timeout exclude each other")
        check_name(self.name)
        if self.verbose:
            log_to_stderr()

    def settings(self, label: str = "") -> Settings:
        """The configuration; ``label`` stands where neither the option nor a file has one."""
        settings = settings_of(self.url, ttl=self.ttl, label=self.label, reach=self.reach)
        return settings if settings.label else replace(settings, label=label)

    @contextmanager
    def acquired(self, settings: Settings) -> Iterator[Grant]:
        """Connect, acquire, and disconnect at the end. The one timeout covers both.

        Raises `click.exceptions.Exit` with the conflict status when the lock was not acquired.
        """
        started = time.monotonic()
        timeout = 0.0 if self.nonblock else self.timeout
        if timeout is None:
            timeout = settings.timeout
        if timeout:
            bound = min(settings.connect_timeout, max(timeout, _CONNECT_AT_LEAST))
            settings = replace(settings, connect_timeout=bound)
        with connect(settings) as client:
            if timeout:
                timeout = max(0.0, timeout - (time.monotonic() - started))
            self.say(f"waiting for {self.name!r} at {settings}")
            try:
                grant = self._lock(client).acquire(timeout)
            except (AcquireTimeout, Evicted) as error:
                self.warn(self._busy(client) if timeout == 0 else str(error))
                raise click.exceptions.Exit(self.conflict_exit_code) from None
            self.say(f"holding {self.name!r}, token {grant.token}")
            yield grant

    def say(self, message: str) -> None:
        """What --verbose shows."""
        if self.verbose:
            complain(message)

    def warn(self, message: str) -> None:
        """What --quiet hides."""
        if not self.quiet:
            complain(message)

    def _busy(self, client: Client) -> str:
        """Who holds it. Trying once asks for no names, so this asks again."""
        with suppress(CoordlockError):
            holding = [one for one in client.contenders(self.name) if one.holding]
            if holding:
                return f"lock {self.name!r} is busy: held by {holding[0].contender}"
        return f"lock {self.name!r} is busy"

    def _lock(self, client: Client) -> Lock:
        if self.slots is not None:
            return client.semaphore(self.name, self.slots)
        mode = Mode.PR if self.shared else Mode[self.mode or "EX"]
        return client.lock(self.name, mode=mode)
