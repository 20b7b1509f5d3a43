"""Mistakes in what is built of locks: groups, and values that are published anew."""

from __future__ import annotations

from collections.abc import Callable

from coordlock.kernel.publisher import Publisher
from coordlock.recipes.membership import BasePresence
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, resolved, settled
from tests.mutants.mutant import Changes, mutant
from tests.simulation.gathering import Gathering


@mutant("Who joins again publishes what it did at first.", simulated=(Gathering,))
def joins_again_with_an_old_value() -> Changes:
    stay = BasePresence._staying

    def staying(self: BasePresence) -> Steps[None]:
        first, join = self._value, self._join
        self._join = lambda _: join(first)  # type: ignore[misc]
        yield from stay(self)

    def take_as_it_is(self: BasePresence, value: bytes) -> bytes:
        return value

    return [(BasePresence, "_staying", staying), (BasePresence, "_newest", take_as_it_is)]


@mutant("Who was lost once is not there any more.", simulated=(Gathering,))
def joins_once() -> Changes:
    def staying(self: BasePresence) -> Steps[None]:
        assert self._ticket is not None
        yield settled(self._ticket.end)

    return [(BasePresence, "_staying", staying)]


@mutant("Who has left while it joined is there for ever.", simulated=(Gathering,))
def joins_after_leaving() -> Changes:
    def leave(self: BasePresence) -> Steps[None]:
        if self._ticket is not None:
            self._ticket.withdraw()
        yield None

    return [(BasePresence, "_leave", leave)]


@mutant("Of two values that come fast, one is never published.", simulated=(Gathering,))
def publishes_several_at_once() -> Changes:
    publishing = Publisher._publishing

    def at_once(self: Publisher, _: Promise[None], make: Callable[[bytes], bytes]) -> Steps[None]:
        yield from publishing(self, resolved(None), make)

    return [(Publisher, "_publishing", at_once)]
