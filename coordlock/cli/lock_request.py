"""The lock that a command line asks for, and acquiring it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from coordlock.cli.connection import connected
from coordlock.cli.exits import complain
from coordlock.cli.options import log_to_stderr, settings_of
from coordlock.cli.parser import NotAcquired, UsageError
from coordlock.cli.text import listed
from coordlock.client import Client
from coordlock.errors import AcquireTimeout, CoordlockError, Evicted
from coordlock.grant import Grant
from coordlock.lock import Lock
from coordlock.model.claim import Mode
from coordlock.model.names import check_name
from coordlock.settings import Settings

__all__ = ["LockRequest"]

#: However short the timeout, in seconds: a busy lock is to be told from a dead service.
_CONNECT_AT_LEAST: Final = 1.0


@dataclass(eq=False, repr=False)  # one is made, and nothing compares or shows it
class LockRequest:
    """What the options of `coordlock.cli.options.acquire_options` say; their names are theirs."""

    name: str
    url: str | None
    connect_timeout: float | None
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
            raise UsageError("--shared, --mode and --slots exclude each other")
        if self.nonblock and self.timeout is not None:
            raise UsageError("--nonblock and --timeout exclude each other")
        check_name(self.name)
        if self.verbose:
            log_to_stderr()

    def settings(self, label: str = "") -> Settings:
        """The configuration; ``label`` stands where neither the option nor a file has one."""
        settings = settings_of(
            self.url,
            connect_timeout=self.connect_timeout,
            ttl=self.ttl,
            label=self.label,
            reach=self.reach,
        )
        return settings if settings.label else replace(settings, label=label)

    @contextmanager
    def acquired(self, settings: Settings) -> Iterator[Grant]:
        """Connect, acquire, and disconnect at the end. The one timeout covers both.

        Raises `NotAcquired` with the conflict status when the lock was not acquired.
        """
        started = time.monotonic()
        timeout = 0.0 if self.nonblock else self.timeout
        if timeout is None:
            timeout = settings.timeout
        if timeout:
            bound = min(settings.connect_timeout, max(timeout, _CONNECT_AT_LEAST))
            settings = replace(settings, connect_timeout=bound)
        with connected(settings) as client:
            self.say(f"connected to {settings}")
            lock = self._lock(client)
            try:
                # Only to tell whether there is something to wait for.
                grant = lock.try_acquire() if self.verbose else None
                if grant is None:
                    if self.verbose and timeout != 0:
                        self.say(f"waiting for {self.what}{self._held_by(client)}")
                    if timeout:
                        timeout = max(0.0, timeout - (time.monotonic() - started))
                    grant = lock.acquire(timeout)
            except (AcquireTimeout, Evicted) as error:
                if timeout == 0:
                    self.warn(f"{self.what} is busy{self._held_by(client)}")
                else:
                    self.warn(str(error))
                raise NotAcquired(self.conflict_exit_code) from None
            self.say(f"holding {self.what}, token {grant.token}")
            yield grant

    @property
    def what(self) -> str:
        """The lock, or the semaphore, in messages."""
        kind = "lock" if self.slots is None else "semaphore"
        return f"{kind} {self.name!r}"

    def say(self, message: str) -> None:
        """What --verbose shows."""
        if self.verbose:
            complain(message)

    def warn(self, message: str) -> None:
        """What --quiet hides. The library calls semaphores locks, too."""
        if not self.quiet:
            complain(message.replace(f"lock {self.name!r}", self.what, 1))

    def _held_by(self, client: Client) -> str:
        """Who holds it, as the end of a sentence. Trying once asks for no names, so this does."""
        with suppress(CoordlockError):
            holding = [one for one in client.contenders(self.name) if one.holding]
            if holding:
                owners = listed([str(one.contender) for one in holding])
                of = "" if self.slots is None else f"{len(holding)} of {self.slots} permits "
                return f": {of}held by {owners}"
        return ""

    def _lock(self, client: Client) -> Lock:
        if self.slots is not None:
            return client.semaphore(self.name, self.slots)
        mode = Mode.PR if self.shared else Mode[self.mode or "EX"]
        return client.lock(self.name, mode=mode)
