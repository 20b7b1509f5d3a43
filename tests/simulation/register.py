"""A resource behind a network: an integer that is read and written under a lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial

from coordlock_memory import VirtualTimers

from coordlock.errors import BackendUnavailable, StaleToken
from coordlock.fencing import FencingToken, MemoryFence
from coordlock.kernel.acquisition import acquisition
from coordlock.locks.grant import Grant
from coordlock.model.claim import Claim, Mode
from coordlock.runtime.clock import sleep
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from tests.simulation.world import Party, World

__all__ = ["Fate", "Register", "Trip"]


class Fate(Enum):
    """What becomes of one request."""

    FINE = "fine"
    REQUEST_LOST = "request lost"  #: it never arrives; the client gives up
    REPLY_LOST = "reply lost"  #: it takes effect; the client gives up
    LATE = "late"  #: the client gives up at once; it takes effect in its time


@dataclass(frozen=True)
class Trip:
    """A request to the register: how long it takes until it has its effect, and its fate."""

    seconds: float = 0.0
    fate: Fate = Fate.FINE


class Register:
    """The integer, with a fence or without, and what is found wrong with what happens to it.

    Attributes:
        accepted: the tokens of the operations that took effect, in order.
        writes: how many of them were writes.
        acknowledged: how many writes their clients know of.
        refused: how many operations were refused.
        lost: updates that were overwritten unseen.
        wrong: what else must not happen behind a fence.
    """

    def __init__(self, world: World, *, fenced: bool) -> None:
        self.value = 0
        self.accepted: list[FencingToken] = []
        self.writes = self.acknowledged = self.refused = 0
        self.lost: list[str] = []
        self.wrong: list[str] = []
        self._world = world
        self._fence = MemoryFence() if fenced else None
        self._timers = VirtualTimers(world.time)

    # What clients do, who never ask whether they still hold the lock

    def increment(
        self, party: Party, claim: Claim, pause: float, trips: tuple[Trip, Trip]
    ) -> Steps[None]:
        """Read, think for ``pause`` seconds, and write one more."""

        def body(grant: Grant) -> Steps[None]:
            value = yield self._ask(grant, self._read, trips[0])
            yield sleep(party.process, pause)
            yield self._ask(grant, partial(self._write, value + 1), trips[1])
            self.acknowledged += 1

        return self._under_lock(party, claim, body)

    def look_twice(self, party: Party, pause: float, trips: tuple[Trip, Trip]) -> Steps[None]:
        """Read, think for ``pause`` seconds, and read again, under a read lock."""

        def body(grant: Grant) -> Steps[None]:
            value = yield self._ask(grant, self._read, trips[0])
            yield sleep(party.process, pause)
            if value != (yield self._ask(grant, self._read, trips[1])):
                self.wrong.append(f"reader {grant.token} saw two values under one lock")

        return self._under_lock(party, Mode.PR, body)

    def _under_lock(
        self, party: Party, claim: Claim, body: Callable[[Grant], Steps[None]]
    ) -> Steps[None]:
        ticket = yield from acquisition(party.engine, {"q": claim})
        grant = party.grant(ticket)
        with suppress(StaleToken, BackendUnavailable):  # the next one reads again
            yield from body(grant)
        yield from grant._release(None)

    # What the register does

    def _ask(self, grant: Grant, action: Callable[[FencingToken], int], trip: Trip) -> Promise[int]:
        reply: Promise[int] = Promise()
        # The number, not the grant: a holder that stood still sends without another look.
        token = FencingToken(grant.token, shared=grant.claim is Mode.PR)
        unanswered = BackendUnavailable("register", "no answer")

        def arrive() -> None:
            if trip.fate is Fate.REQUEST_LOST:
                reply.fail(unanswered)
                return
            try:
                result = self._operate(token, action)
            except StaleToken as stale:
                reply.fail(stale)
            else:
                if trip.fate is Fate.REPLY_LOST:
                    reply.fail(unanswered)
                reply.resolve(result)

        if trip.fate is Fate.LATE:
            reply.fail(unanswered)
        self._timers.call_at(self._world.time.now() + trip.seconds, arrive)
        return reply

    def _operate(self, token: FencingToken, action: Callable[[FencingToken], int]) -> int:
        try:
            with self._fence.guard("register", token) if self._fence else nullcontext():
                self._accept(token)
                return action(token)
        except StaleToken:
            self.refused += 1
            if any(one.token == token.value for one in self._world.queue()):
                self.wrong.append(f"{token} was refused, and the service has it as a holder")
            raise

    def _accept(self, token: FencingToken) -> None:
        for other in self.accepted:
            if other.value > token.value and not (other.shared and token.shared):
                self.wrong.append(f"{token} was accepted after {other}")
        self.accepted.append(token)

    def _read(self, token: FencingToken) -> int:
        return self.value

    def _write(self, value: int, token: FencingToken) -> int:
        if value != self.value + 1:
            self.lost.append(f"{token} wrote {value} over {self.value}: an update was lost")
        self.value = value
        self.writes += 1
        return value
