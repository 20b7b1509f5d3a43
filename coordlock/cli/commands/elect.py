"""``coordlock elect``: a command that leads, and leads again after outages."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final

from coordlock.cli.child import Child
from coordlock.cli.commands.hold import check_stdin, event_lines, keep
from coordlock.cli.commands.run import supervise
from coordlock.cli.data import given
from coordlock.cli.guard import Guard
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.parser import Lost, UsageError, usage_errors
from coordlock.client import Client
from coordlock.errors import BackendUnavailable, Evicted, LockLost, SessionLost
from coordlock.locks.grant import Grant
from coordlock.recipes.election import CAMPAIGN_PAUSE_S
from coordlock.recipes.term import check_candidate_value
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["elect"]


#: What ends an attempt to be elected, and no campaign.
_OUTAGES: Final = (BackendUnavailable, Evicted, SessionLost)


@dataclass(eq=False, repr=False)
class _Campaign(LockRequest):
    """A request to lead."""

    value: bytes | None = None
    #: The newest term.
    term: Grant | None = None

    def _acquire(self, client: Client) -> Callable[[float | None], Grant]:
        election = client.election(self.names[0], self.value)

        def campaign(timeout: float | None) -> Grant:
            end = None if timeout is None else SYSTEM_CLOCK.now() + timeout
            while True:
                try:
                    self.term = election.campaign(timeout=timeout)
                    return self.term
                except _OUTAGES as error:
                    if timeout == 0:
                        raise
                    if end is not None:
                        timeout = end - SYSTEM_CLOCK.now() - CAMPAIGN_PAUSE_S
                        if timeout <= 0:
                            raise
                    self.warn(f"{error}; campaigns again")
                    time.sleep(CAMPAIGN_PAUSE_S)

        return campaign

    def _try(self, acquire: Callable[[float | None], Grant]) -> Grant | None:
        with suppress(*_OUTAGES):
            return super()._try(acquire)
        return None

    @property
    def what(self) -> str:
        """The election, in messages."""
        return f"election {self.names[0]!r}"


def elect(
    *,
    name: str,
    command: tuple[str, ...],
    value: str | None,
    grace: float,
    on_ask: int | None,
    http: tuple[str, int] | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Campaign in the election NAME, and run COMMAND while leading.

    COMMAND runs as under `coordlock run`, with the same variables. When the lead is lost, coordlock
    ends COMMAND and campaigns again, also after outages. When COMMAND ends by itself, coordlock
    resigns and ends with its status. The status is 75 if it was not elected in time, and 69 if the
    service is unavailable at the beginning.

    Without COMMAND it leads until stdin closes or a signal arrives, and prints the fencing token of
    each term, or with --json a line for each event.

    With --http, other programs ask it who leads, also while it waits: / answers with JSON, /leading
    with 200 while this process leads and 503 while not, /healthz with 503 until the service has
    answered, and once it has been silent for the time-to-live. Without COMMAND it does not read
    stdin then.
    """
    with usage_errors():
        encoded = None if value is None else check_candidate_value(given(value))
    request = _Campaign([name], value=encoded, **options)
    if command and as_json:
        raise UsageError("--json prints the events of an election without COMMAND: leave one out")
    request.lines = event_lines() if as_json else None
    if not command and http is None:
        check_stdin("coordlock would resign", "give it a COMMAND or --http, or ")
    with Guard() if command else nullcontext() as guard:  # forks: before the client's threads
        settings = request.settings(label=os.path.basename(command[0]) if command else "")
        with request.connected(settings) as client, ExitStack() as stack:
            if http is not None:
                from coordlock.cli.election_http import serving  # few need it

                stack.enter_context(serving(http, client, name, lambda: request.term))
            while True:
                try:
                    term = request.acquire(client, settings)
                    if guard is None:
                        duration = None if http is None else math.inf
                        return keep(request, term, settings, duration)
                    child = Child(guard, command)
                    return supervise(request, child, term, settings, grace, on_ask)
                except (Lost, LockLost) as lost:
                    if isinstance(lost, Lost) and lost.ending:
                        raise
                    if isinstance(lost, LockLost):  # too late to start COMMAND
                        request.warn(str(lost))
                    request.warn(f"{request.what}: campaigns again")
