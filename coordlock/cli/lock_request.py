"""The lock that a command line asks for, and acquiring it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from coordlock.cli.connection import Service, connected
from coordlock.cli.exits import Exit, complain
from coordlock.cli.parser import Refused, UsageError
from coordlock.cli.text import listed
from coordlock.client import Client
from coordlock.errors import CoordlockError, DeadlockDetected, Evicted, Unsupported, WaitTimeout
from coordlock.kernel.acquisition import note_refusals
from coordlock.locks.grant import Grant
from coordlock.locks.lock import Lock
from coordlock.model.claim import Mode
from coordlock.settings import Settings

if TYPE_CHECKING:
    from coordlock.cli.event_lines import EventLines
    from coordlock.locks.several import MultiGrant, MultiLock

__all__ = ["LockRequest"]


@dataclass(eq=False, repr=False)  # one is made, and nothing compares or shows it
class LockRequest:
    """What the options of `coordlock.cli.options.ACQUIRING` say; their names are theirs."""

    names: Sequence[str]
    service: Service
    ttl: str | None
    reach: str | None
    quiet: bool
    verbose: bool
    nonblock: bool = False
    timeout: float | None = None
    conflict_exit_code: int = Exit.NOT_ACQUIRED
    trees: Sequence[str] = ()
    shared: bool = False
    mode: str | None = None
    permits: int | None = None
    label: str | None = None
    max_hold: str | None = None
    #: What prints the events of the client; None for nothing.
    lines: EventLines | None = None

    def __post_init__(self) -> None:
        if not self.names and not self.trees:
            raise UsageError("NAME is missing: name a lock")
        if self.permits is not None and self._several:
            raise UsageError("--permits is for one NAME: a semaphore can't be one of several locks")
        if self.verbose:
            show_log("INFO")

    def settings(self, label: str = "") -> Settings:
        """The configuration; ``label`` stands where neither the option nor a file has one."""
        settings = self.service.settings(
            ttl=self.ttl, label=self.label, reach=self.reach, max_hold=self.max_hold
        )
        return settings if settings.label else replace(settings, label=label)

    @contextmanager
    def acquired(self, settings: Settings) -> Iterator[Grant]:
        """Connect, acquire, and disconnect at the end. The one timeout covers both.

        Raises `Refused` with the conflict status when the lock was not acquired.
        """
        started = time.monotonic()
        with self.connected(settings) as client:
            yield self.acquire(client, settings, time.monotonic() - started)

    @contextmanager
    def connected(self, settings: Settings) -> Iterator[Client]:
        """A client, closed at the end. The timeout bounds connecting."""
        with connected(settings, self._timeout(settings)) as client:
            self.say(f"connected to {settings}")
            if self.lines is not None:
                self.lines.listen(client)
            yield client

    def acquire(self, client: Client, settings: Settings, waited: float = 0.0) -> Grant:
        """Acquire it within what is left of the timeout after ``waited`` seconds.

        Raises `Refused` with the conflict status when the lock was not acquired.
        """
        started = time.monotonic() - waited
        timeout = self._timeout(settings)
        acquire = self._acquire(client)
        # A new process knows of no refusals, and may be one of many: a try looks first.
        note_refusals(client._engine, self._lock(client)._claims)
        try:
            # Only to tell whether there is something to wait for.
            grant = self._try(acquire) if self.verbose else None
            if grant is None:
                if self.verbose and timeout != 0:
                    self.say(f"waiting for {self.what}{self._held_by(client)}")
                if timeout:
                    timeout = max(0.0, timeout - (time.monotonic() - started))
                grant = acquire(timeout)
        except (WaitTimeout, Evicted, DeadlockDetected) as error:
            self.warn(self._refusal(client) if timeout == 0 else str(error))
            raise Refused(self.conflict_exit_code) from None
        self.say(f"holding {self.what}, token {self.token(grant)}")
        return grant

    def _timeout(self, settings: Settings) -> float | None:
        if self.nonblock:
            return 0.0
        return settings.timeout if self.timeout is None else self.timeout

    def _try(self, acquire: Callable[[float | None], Grant]) -> Grant | None:
        with suppress(WaitTimeout):
            return acquire(0)
        return None

    def _refusal(self, client: Client) -> str:
        """Why a single try was refused."""
        verb = "are" if self.what.startswith("locks") else "is"
        return f"{self.what} {verb} busy{self._held_by(client)}"

    def _acquire(self, client: Client) -> Callable[[float | None], Grant]:
        """What acquires it within a time."""
        return self._lock(client).acquire

    @property
    def _several(self) -> bool:
        return bool(self.trees) or len(self.names) > 1

    @property
    def what(self) -> str:
        """The lock, the locks or the semaphore, in messages."""
        kind = "lock" if self.permits is None else "semaphore"
        names = [*self.names, *self.trees]
        return f"{kind if len(names) == 1 else 'locks'} {', '.join(map(repr, names))}"

    def token(self, grant: Grant) -> str:
        """The fencing token; of several locks with different ones, all, in the order of names.

        "none" where the service has no tokens.
        """
        return " ".join(map(str, dict.fromkeys(self._tokens(grant).values()))) or "none"

    def description(self, grant: Grant) -> dict[str, object]:
        """What is held, for JSON: of several locks with different tokens, ``token`` is null."""
        tokens = self._tokens(grant)
        token = next(iter(tokens.values())) if len(set(tokens.values())) == 1 else None
        several = {"tokens": tokens} if self._several and tokens else {}
        return {"name": grant.name, "token": token, **several}

    def environment(self, grant: Grant, settings: Settings) -> dict[str, str]:
        """What a command finds in its environment."""
        variables = {"COORDLOCK_NAME": grant.name, "COORDLOCK_BACKEND": settings.scheme}
        if tokens := self._tokens(grant):
            variables["COORDLOCK_TOKEN"] = self.token(grant)
            if self._several:
                variables["COORDLOCK_TOKENS"] = json.dumps(tokens)
        return variables

    def _tokens(self, grant: Grant) -> dict[str, int]:
        """By name; none where the service has no tokens."""
        parts = cast("MultiGrant", grant).parts if self._several else {grant.name: grant}
        with suppress(Unsupported):
            return {name: part.token for name, part in parts.items()}
        return {}

    def say(self, message: str) -> None:
        """What --verbose shows."""
        if self.verbose:
            complain(message)

    def warn(self, message: str) -> None:
        """What --quiet hides."""
        if not self.quiet:
            complain(message)

    def _held_by(self, client: Client) -> str:
        """Who holds it, as the end of a sentence. Trying once asks for no names, so this does."""
        with suppress(CoordlockError):
            queues = [client.admin.contenders(name) for name in self._lock(client)._claims]
            holding = [one for queue in queues for one in queue if one.holding]
            if holding:
                owners = listed(list(dict.fromkeys(str(one.contender) for one in holding)))
                of = "" if self.permits is None else f"{len(holding)} of {self.permits} permits "
                return f": {of}held by {owners}"
        return ""

    def _lock(self, client: Client) -> Lock | MultiLock:
        mode = Mode.PR if self.shared else Mode[self.mode or "EX"]
        match self.names, self.trees:
            case [name], []:
                if self.permits is not None:
                    return client.semaphore(name, self.permits)
                return client.lock(name, mode=mode)
            case [], [path]:
                return client.tree_lock(path, mode=mode)
        trees = [client.tree_lock(path, mode=mode) for path in self.trees]
        return client.multi_lock([*self.names, *trees], mode=mode)


def show_log(level: str) -> None:
    """Show the library's log from this level on. Without this it is quiet: commands tell most."""
    import logging  # where somebody asks for it

    class ToStderr(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complain(f"{time.strftime('%H:%M:%S')} {record.getMessage()}")

    logger = logging.getLogger("coordlock")
    logger.setLevel(level)
    logger.addHandler(ToStderr())
