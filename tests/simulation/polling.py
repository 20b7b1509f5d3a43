"""Processes that poll for a lock, and what a lock that nobody holds must not do: refuse them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from coordlock.backend import Capabilities
from coordlock.errors import AcquireTimeout, SessionLost
from coordlock.kernel.ticket import Ticket
from coordlock.model.admission import blockers, is_blocked
from coordlock.model.claim import AnyClaim, Mode, Permit
from coordlock.model.contender import Entry, Snapshot
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, all_of
from tests.simulation.world import Network, Party, World

__all__ = ["LONGEST", "Polling", "TwoSteps", "conflict"]

Claims = Mapping[str, AnyClaim]

#: For how many seconds a lock that nobody holds may refuse somebody.
LONGEST = 0.25


class TwoSteps(Network):
    """A service that reads first, and then enqueues: others may come in between."""

    capabilities: ClassVar[Capabilities] = replace(Network.capabilities, one_step="none")

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        enqueue, session = super().enqueue, self._session

        def look() -> Steps[tuple[Snapshot, ...]]:
            present: tuple[Snapshot, ...]
            present = yield all_of(self.snapshot(entry.queue) for entry in entries)
            if not any(map(is_blocked, present, entries)):
                self._still(session)
                present = yield enqueue(entries)
            return present

        return run_in_background(look()) if unless_blocked else enqueue(entries)

    def _still(self, session: str) -> None:
        """Nobody would remove what was enqueued in a later session than it was asked for."""
        if session != self._session:
            raise SessionLost("memory", "it has ended while the queue was read")


def conflict(held: Sequence[Claims], wanted: Claims) -> bool:
    """Whether ``wanted`` can't be held beside all of ``held``."""
    for queue, claim in wanted.items():
        others = [one[queue] for one in held if queue in one]
        modes = (one for one in others if isinstance(one, Mode))
        if isinstance(claim, Permit) and len(others) >= claim.of:
            return True
        if isinstance(claim, Mode) and any(map(claim.conflicts, modes)):
            return True
    return False


class Polling:
    """Pollers that try, hold what they get for a moment, and try again.

    `check` tells whether tries were refused for longer than `LONGEST`, though no holder kept them
    out and none of their kind was granted, and whether somebody has overtaken others in the queue.
    """

    def __init__(
        self, wanted: Sequence[Claims], network: type[Network], hold: float = 0.05, pause: float = 0
    ) -> None:
        self.world = World()
        self.hold = hold
        self.pause = pause
        self.grants = self.overtakings = 0
        #: Since when those who want the same are refused by nobody, and for how long at most.
        self.refused: dict[str, float] = {}
        self.longest = 0.0
        self.held: list[Claims] = []
        self.wanted = {repr(claims): claims for claims in wanted}
        dice = random.Random(1)
        for claims in wanted:
            party = self.world.party(network=network)
            party.network.faults.latency = lambda: dice.uniform(0.002, 0.04)
            self.poll(party, claims)

    def check(self) -> None:
        """What must hold."""
        assert not self.overtakings
        assert self.longest <= LONGEST, f"refused for {self.longest:.2f} s by nobody"

    def poll(self, party: Party, claims: Claims) -> None:
        """Try once, and go on with what comes of it."""
        call = party.acquire_all(claims, timeout=0)
        call.outcome.add_done_callback(partial(self.answered, party, claims))

    def wait(self, party: Party, claims: Claims) -> None:
        """Wait in the queue, and go on with it."""
        call = party.acquire_all(claims)
        call.outcome.add_done_callback(partial(self.answered, party, claims))

    def answered(self, party: Party, claims: Claims, answer: Promise[Ticket]) -> None:
        now = self.world.time.now()
        if isinstance(answer.exception(0), AcquireTimeout):
            if not conflict(self.held, claims):
                since = self.refused.setdefault(repr(claims), now)
                self.longest = max(self.longest, now - since)
            party.process.call_at(now + self.pause, partial(self.poll, party, claims))
            return
        ticket = answer.result(0)
        self.grants += 1
        for entry, me in zip(ticket.entries, ticket.contenders, strict=True):
            # As earlier ones only leave, who stands there now was overtaken.
            queue = self.world.service.snapshot(entry.queue)
            self.overtakings += bool(blockers(queue, me))
        self.held.append(claims)
        self.refused.pop(repr(claims), None)
        for name in [name for name in self.refused if conflict(self.held, self.wanted[name])]:
            del self.refused[name]
        party.process.call_at(now + self.hold, partial(self.release, party, claims, ticket))

    def release(self, party: Party, claims: Claims, ticket: Ticket) -> None:
        now = self.world.time.now()
        self.held.remove(claims)
        ticket.withdraw()
        party.process.call_at(now + self.pause, partial(self.poll, party, claims))
