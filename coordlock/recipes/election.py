"""Elections: of the candidates that campaign, the first in the queue leads.

A candidate is a contender for the exclusive lock of the election's name, and publishes a value.
The value is all that its entry holds. So Go's ``concurrency.Election``, ``etcdctl elect`` and
kazoo's ``Election`` read it, and what they write is read here.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar, cast

from coordlock.errors import BackendUnavailable, Evicted, SessionLost, WaitCancelled
from coordlock.kernel.access import Access
from coordlock.kernel.acquisition import acquisition
from coordlock.model.claim import Mode
from coordlock.model.contender import Announcement, Snapshot
from coordlock.recipes.shared.observer import AsyncObserver, Observer
from coordlock.recipes.shared.recipe import QueueRecipe
from coordlock.recipes.term import AsyncTerm, LeadingBodies, Term, check_candidate_value
from coordlock.runtime.caller import this_caller
from coordlock.runtime.clock import sleep
from coordlock.runtime.deadline import Cancellation
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.guards import PlainFunction
from coordlock.runtime.log import Log
from coordlock.runtime.process import host_name
from coordlock.settings import DEFAULT, Default, Duration, Timeout, max_hold_of, timeout_of

__all__ = ["AsyncElection", "Candidate", "Election"]

log = Log("coordlock")

T = TypeVar("T", Term, AsyncTerm)

#: Seconds from one attempt to campaign to the next, after the service was silent.
CAMPAIGN_PAUSE_S: Final = 1.0

_LEAD: Final = PlainFunction(
    "lead must be a function of the term",
    "and would not run before the term has ended",
    "use an election of coordlock.connect_async()",
    "give a plain function",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate of an election: the leader, or one that waits to be elected.

    Attributes:
        id: unique among all candidates ever.
        value: what it publishes, such as its address.
        token: the fencing token of its term, or of the term that it would have, greater than all
            tokens of earlier terms. None if the service does not tell.
    """

    id: str
    value: bytes
    token: int | None


class _BaseElection(QueueRecipe, Generic[T]):
    """What sync and async elections share."""

    _term_kind: ClassVar[type[Term | AsyncTerm]]

    def __init__(
        self,
        access: Access,
        name: str,
        value: bytes | None = None,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
    ) -> None:
        super().__init__(access, name)
        #: What candidates are known by, where `campaign` is given nothing else.
        self.value: Final = _identity() if value is None else check_candidate_value(value)
        settings = access.settings
        #: For how many seconds a term may last before it is lost; None for no limit.
        self.max_hold: Final = (
            settings.max_hold if isinstance(max_hold, Default) else max_hold_of(max_hold)
        )
        #: For how many seconds `campaign` waits; None for ever.
        self.timeout: Final = _seconds(timeout, settings.timeout)
        self._bodies: Final = LeadingBodies()

    def _campaign(
        self,
        value: bytes | None = None,
        *,
        timeout: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> Steps[T]:
        """Wait to be elected, first come first served; returns the term.

        ``value``, up to 65,536 bytes, is what the candidate publishes; by default the election's.
        ``timeout`` is the election's by default; None waits for ever, 0 tries once. The rest,
        errors included, is as for `Lock.acquire`.
        """
        value = self.value if value is None else check_candidate_value(value)
        engine = self._access.engine
        ticket = yield from acquisition(
            engine,
            {self.name: Mode.EX},
            _seconds(timeout, self.timeout),
            this_caller(),
            cancellation=cancellation,
            announcement=Announcement(value, raw=True),
            kind="election",
            max_hold=self.max_hold,
        )
        term = cast("T", self._term_kind(engine, ticket))
        log.info("election %r: leads from now on, token %s", self.name, term._first_token)
        return term

    def _candidates(self) -> Steps[tuple[Candidate, ...]]:
        """The leader, then the other candidates, in order. Raises `BackendUnavailable`."""
        return _candidates((yield from self._snapshot()))

    def _leader(self) -> Steps[Candidate | None]:
        """The leader, as the service reports it; None for nobody. Raises `BackendUnavailable`.

        The leader may already have lost its session, or change before this returns. Only a fence,
        the resource's own check of the token, knows.
        """
        candidates = yield from self._candidates()
        return candidates[0] if candidates else None

    def is_healthy(self, grace: Duration = 0.0) -> bool:
        """Whether each body that `run` called ended within ``grace`` seconds after its loss.

        Use it in health checks that restart a process whose body hangs.
        """
        now = self._access.engine.clock.now()
        return self._bodies.are_healthy(timeout_of("is_healthy", grace) or 0.0, now)

    def _next_term(self, cancellation: Cancellation | None) -> Steps[T | None]:
        """Campaign until elected, whatever the service does; None once ``cancellation`` came."""
        is_out = False
        while True:
            try:
                return (yield from self._campaign(timeout=None, cancellation=cancellation))
            except WaitCancelled:
                if cancellation is None or cancellation.reason is None:
                    raise  # the process is to end
                return None
            except (SessionLost, Evicted, BackendUnavailable) as error:
                was_out, is_out = is_out, isinstance(error, BackendUnavailable)
                if not (was_out and is_out):  # an outage is logged once, however often it fails
                    log.warning("election %r: %s; campaigns again", self.name, error)
            yield sleep(self._access.engine.timers, CAMPAIGN_PAUSE_S)


def _identity() -> bytes:
    return f"{host_name()}:{os.getpid()}".encode()


def _seconds(timeout: Timeout, default: float | None) -> float | None:
    return timeout_of("campaign", default if isinstance(timeout, Default) else timeout)


def _candidates(snapshot: Snapshot) -> tuple[Candidate, ...]:
    """The leader, and behind it those that campaign."""
    return tuple(
        Candidate(contender.id, contender.value or b"", contender.token)
        for contender in snapshot.contenders
        if contender.claim is not Mode.NL
    )


def _leader_of(snapshot: Snapshot, before: Candidate | None) -> Candidate | None:
    return next(iter(_candidates(snapshot)), None)


class Election(_BaseElection[Term]):
    """An election by name: the next candidate leads when the leader resigns or is lost.

    As in::

        election = client.election("scheduler", b"10.0.0.5:8080")
        with election.campaign() as term:
            while not stopped:
                term.check()
                schedule(token=term.token)
    """

    _term_kind = Term

    campaign = blocking(_BaseElection[Term]._campaign)
    candidates = blocking(_BaseElection[Term]._candidates)
    leader = blocking(_BaseElection[Term]._leader)
    _elected = blocking(_BaseElection[Term]._next_term)

    def observe(self) -> Observer[Candidate | None]:
        """An iterator of the leader now and of each new one; None when nobody leads.

        Leaders appear in the order of their terms; it may skip short terms. A leader appears again
        when it publishes another value. Raises `Unsupported` if the backend cannot; the iterator
        raises `ClientClosed`.
        """
        return Observer(self._access.engine, self._begin, _leader_of, "election", self.name)

    def run(
        self, lead: Callable[[Term], object], *, cancellation: Cancellation | None = None
    ) -> None:
        """Campaign, call ``lead(term)``, resign when it returns, and campaign again, for ever.

        ``lead`` must return soon after ``term.lost`` is set, because nothing can end it from
        outside. Until it has returned, the term is not resigned, and ``lead`` is not called again.
        If ``lead`` raises the term's `LockLost`, as ``term.check()`` does, only the term ends.
        After any other exception, ``run`` resigns and raises that. It logs losses and outages, and
        campaigns again.

        Returns after ``cancellation`` is cancelled: while it campaigns,
        or when ``lead`` has returned. Raises `WaitCancelled` after a signal: see
        `release_on_signals`; TypeError for a coroutine function; and, as `campaign` does,
        `NameConflict`, `DeadlockDetected`, `ClientClosed`, `AuthenticationFailed`.
        """
        _LEAD.check(lead)
        while (term := self._elected(cancellation)) is not None:
            try:
                with self._bodies.leading(self.name, term), term:
                    _LEAD.finished(lead, lead(term))
            finally:
                term._withdraw()  # Ctrl-C may have come before its block was entered


class AsyncElection(_BaseElection[AsyncTerm]):
    """An election by name: the next candidate leads when the leader resigns or is lost.

    Made by `AsyncClient`.
    """

    _term_kind = AsyncTerm

    campaign = awaiting(_BaseElection[AsyncTerm]._campaign)
    candidates = awaiting(_BaseElection[AsyncTerm]._candidates)
    leader = awaiting(_BaseElection[AsyncTerm]._leader)
    _elected = awaiting(_BaseElection[AsyncTerm]._next_term)

    def observe(self) -> AsyncObserver[Candidate | None]:
        """An async iterator of leaders; see `Election.observe`."""
        return AsyncObserver(self._access.engine, self._begin, _leader_of, "election", self.name)

    async def run(
        self,
        lead: Callable[[AsyncTerm], Awaitable[object]],
        *,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Campaign, await ``lead(term)``, resign when it is done, and campaign again, for ever.

        It cancels ``lead`` when the term is lost. The rest is as for `Election.run`. Raises
        TypeError for a ``lead`` that can't be awaited.
        """
        while (term := await self._elected(cancellation)) is not None:
            try:
                with self._bodies.leading(self.name, term):
                    async with term, term.cancel_on_loss():
                        if not inspect.isawaitable(led := lead(term)):
                            raise TypeError(f"lead must be a coroutine function, not {lead!r}")
                        await led
            finally:
                term._withdraw()
