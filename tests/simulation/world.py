"""Several clients of one memory service under virtual time, and a driver for their protocols.

Nothing waits and nothing runs in parallel: a run is decided by its calls and the latencies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from coordlock_memory import MemoryBackend, MemoryService, VirtualTime, VirtualTimers

from coordlock.backend import Departure
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.locks.grant import Grant, GrantState
from coordlock.locks.upgradeable import UpgradeableGrant
from coordlock.model.claim import AnyClaim, Claim, Convertible, Mode
from coordlock.model.contender import Contender
from coordlock.runtime import driver
from coordlock.runtime.clock import soon
from coordlock.runtime.deadline import Deadline, DeadlineReached
from coordlock.runtime.driver import Step, Steps
from coordlock.runtime.promise import Promise
from coordlock.settings import Settings

T = TypeVar("T")

TTL = 15.0


class Network(MemoryBackend):
    """A connection that notes what is asked over it, to a service that tells of no holder."""

    def __init__(self, service: MemoryService, ttl: float, timers: VirtualTimers) -> None:
        super().__init__(service, ttl, timers)
        self.requests: list[str] = []

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        def report(departure: Departure) -> None:
            on_departure(self.known(contender, departure))

        return super().watch(contender, revision, report, waiters=waiters, changes=changes)

    def known(self, contender: Contender, departure: Departure) -> Departure:
        """What the client gets to know of a departure."""
        return Departure.IN_ORDER if departure is Departure.FIRST else departure

    def _ask(self, method: str, action: Callable[[], T]) -> Promise[T]:
        self.requests.append(method)
        return super()._ask(method, action)


class Call(driver.Call, Generic[T]):
    """A protocol under way in a simulated process: advanced only while the process runs."""

    def __init__(self, party: Party, steps: Steps[T]) -> None:
        self._party = party
        self._steps = steps
        self._turn = 0
        self.outcome: Promise[T] = Promise()
        self.done = False
        #: When its time is up, or when it was cancelled.
        self.due: float | None = None
        self._deadline: Deadline | None = None
        #: Takes it off what it waits for.
        self._forget: Callable[[], None] = lambda: None
        self._advance(lambda: next(steps))

    @property
    def result(self) -> T:
        """The result, of a call that is done; raises its error."""
        return self.outcome.result(0)

    @property
    def error(self) -> BaseException | None:
        """The error, of a call that is done."""
        return self.outcome.exception(0)

    def cancel(self, error: BaseException | None = None) -> None:
        """Cancel it as asyncio cancels a task, or by ``error``."""
        self.due = self._party.time.now()
        self.throw(error or asyncio.CancelledError())

    def throw(self, error: BaseException) -> None:
        """Throw ``error`` into the protocol, unless it is done."""
        if not self.done:
            self._turn += 1
            self._forget()
            self._advance(lambda: self._steps.throw(error))

    def _advance(self, take: Callable[[], Step]) -> None:
        try:
            step = take()
            while not isinstance(step, Promise):
                step = self._steps.send(self)
        except StopIteration as stop:
            self.done = True
            self.outcome.resolve(stop.value)
        except BaseException as error:
            self.done = True
            self.outcome.fail(error)
        else:
            resume = partial(self._resume, self._turn, step)
            process = self._party.process

            def wake(_: Promise[Any]) -> None:
                process.call_at(self._party.time.now(), resume)

            self._forget = partial(step.remove_done_callback, wake)
            step.add_done_callback(wake)

    @property
    def deadline(self) -> Deadline | None:
        """The deadline in force."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: Deadline | None) -> None:
        self.due = deadline and deadline.at
        self._deadline = deadline
        if deadline is not None:
            self._party.process.call_at(deadline.at, partial(self._end, deadline))

    def _end(self, deadline: Deadline) -> None:
        if self._deadline is deadline:
            self.throw(DeadlineReached())

    def _resume(self, turn: int, future: Promise[Any]) -> None:
        if turn == self._turn and not self.done:
            error = future.exception()
            if error is None:
                self._advance(lambda: self._steps.send(future.result()))
            else:
                self._advance(lambda: self._steps.throw(error))


class Party:
    """One simulated process with a client."""

    def __init__(self, world: World, ttl: float, network: type[Network]) -> None:
        self.world = world
        self.time = world.time
        self.timers = VirtualTimers(world.time)
        #: The process' own progress, apart from the client's timers, which closing ends.
        self.process = VirtualTimers(world.time)
        #: When it went on, after it had been stopped.
        self.resumed = 0.0
        self.network = network(world.service, ttl, self.timers)
        self.engine = Engine(
            self.network,
            Settings("memory", ttl=ttl),
            self.timers,
            aside=partial(soon, self.timers),
        )

    @property
    def access(self) -> Any:
        """What recipes are made with."""
        return SimpleNamespace(engine=self.engine, settings=self.engine.settings)

    @property
    def paused(self) -> bool:
        return self.timers.paused

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does."""
        if self.network.faults.latency is None:
            # Without any, news would reach into a process that stands still.
            self.network.faults.latency = lambda: 0.0
        self.timers.pause()
        self.process.pause()

    def resume(self) -> None:
        """Let the process go on, as SIGCONT does."""
        if self.paused:
            self.resumed = self.time.now()
        self.process.resume()
        self.timers.resume()

    def cut_off(self) -> None:
        """Let nothing through between this process and the service."""
        self.network.faults.partition()

    def heal(self) -> None:
        """End the partition; who stands still hears of it later."""
        self.timers.call_at(self.time.now(), self.network.faults.heal)

    def run(self, steps: Steps[T]) -> Call[T]:
        """Start a protocol."""
        return Call(self, steps)

    def acquire(
        self,
        queue: str = "q",
        claim: Claim = Mode.EX,
        timeout: float | None = None,
    ) -> Call[Ticket]:
        """Start to acquire."""
        return self.acquire_all({queue: claim}, timeout)

    def acquire_all(
        self, claims: Mapping[str, AnyClaim], timeout: float | None = None
    ) -> Call[Ticket]:
        """Start to acquire several at once."""
        return self.run(acquisition(self.engine, claims, timeout))

    def grant(self, ticket: Ticket) -> Grant:
        """The grant that a lock would make of ``ticket``."""
        is_convertible = isinstance(ticket.entries[0].claim, Convertible)
        return (UpgradeableGrant if is_convertible else Grant)(self.engine, ticket)

    def held(self, queue: str = "q", claim: Claim = Mode.EX) -> Grant:
        """A grant, of a lock that is free."""
        call = self.acquire(queue, claim)
        self.world.settle()
        return self.grant(call.result)


class World:
    """The service, its time and its clients."""

    def __init__(self, time: VirtualTime | None = None) -> None:
        self.time = time or VirtualTime()
        self.service = MemoryService(VirtualTimers(self.time))
        self.parties: list[Party] = []

    def party(self, ttl: float = TTL, *, network: type[Network] = Network) -> Party:
        """One more process, with a session that opens at once."""
        party = Party(self, ttl, network)
        self.parties.append(party)
        return party

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        self.time.advance(seconds)

    def settle(self) -> None:
        """Let happen what is due now."""
        self.advance(0.0)

    def queue(self, queue: str = "q") -> tuple[Contender, ...]:
        """The queue as the service knows it."""
        return self.service.snapshot(queue).contenders

    def everybody(self) -> list[Contender]:
        """The contenders of all queues, coordlock's own included, as the service knows them."""
        return [one for name in list(self.service._state.queues) for one in self.queue(name)]

    def watches(self) -> int:
        """How many watches the service keeps."""
        return sum(len(watched.watches) for watched in self.service._watches.watched.values())


def believes(grant: Grant) -> bool:
    """Whether the holder of ``grant`` would go on working under it."""
    return grant.state in (GrantState.HELD, GrantState.SUSPECT)
