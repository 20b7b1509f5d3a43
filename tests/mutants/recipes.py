"""Mistakes in what is built of locks, and beside them: groups, elections, values, work queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from coordlock.backend import Delete, Expect, Operation
from coordlock.errors import BackendUnavailable
from coordlock.kernel.access import Access
from coordlock.kernel.publisher import Publisher
from coordlock.kernel.ticket import Ticket
from coordlock.recipes import value
from coordlock.recipes.membership import BasePresence
from coordlock.recipes.shared.observer import BaseObserver
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, resolved, settled
from coordlock.testing.faults.chains import ForkedChain
from coordlock.testing.faults.items import DoneTwice
from coordlock.testing.faults.observers import WentBack
from coordlock.testing.faults.published import NotThere
from coordlock.work.consumer import Search
from coordlock.work.job import AsyncJob, Job
from coordlock.work.producer import Parcel, Producer
from coordlock.work.records import Claim, Tail
from tests.mutants.mutant import Changes, mutant
from tests.simulation.electing import Electing
from tests.simulation.gathering import Gathering
from tests.simulation.valuing import Valuing
from tests.simulation.working import Working


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
    publish = Publisher.publish

    def at_once(self: Publisher, make: Callable[[bytes], bytes]) -> Promise[None]:
        self.last = resolved(None)
        return publish(self, make)

    return [(Publisher, "publish", at_once)]


@mutant(
    "What is published anew is said to be there, and is not.",
    worked=("gather", NotThere),
    simulated=(Electing,),
    rare=True,
)
def publishes_what_was_first_for_ever() -> Changes:
    def publish(self: Publisher, make: Callable[[bytes], bytes]) -> Promise[None]:
        return resolved(None)

    return [(Publisher, "publish", publish)]


@mutant(
    "An observer shows a leader of the past.",
    worked=("elect", WentBack),
    simulated=(Electing, Gathering),
)
def shows_what_was_before() -> Changes:
    """Of every three states, the third one is what the first one was."""
    show = BaseObserver._shown
    given: WeakKeyDictionary[BaseObserver[Any], deque[Any]] = WeakKeyDictionary()

    def shown(self: BaseObserver[Any], state: Any) -> Any:
        last = given.setdefault(self, deque(maxlen=3))
        now = show(self, state)
        if not last or last[-1] != now:
            last.append(now)
        return last.popleft() if len(last) == 3 else now

    return [(BaseObserver, "_shown", shown)]


@mutant(
    "A value is written whatever its version.",
    worked=("values", ForkedChain),
    simulated=(Valuing,),
)
def writes_whatever_is_there() -> Changes:
    send = value.send

    def send_all(access: Access, operations: list[Operation]) -> Steps[None]:
        yield from send(access, [one for one in operations if not isinstance(one, Expect)])

    return [(value, "send", send_all)]


@mutant("What one transaction writes is seen in part.", simulated=(Valuing,))
def writes_one_key_after_the_other() -> Changes:
    send = value.send

    def send_each(access: Access, operations: list[Operation]) -> Steps[None]:
        for key in dict.fromkeys(one.key for one in operations):
            yield from send(access, [one for one in operations if one.key == key])

    return [(value, "send", send_each)]


@mutant("A write without an answer is sent again.", simulated=(Valuing,))
def writes_again_what_was_not_answered() -> Changes:
    send = value.send

    def send_again(access: Access, operations: list[Operation]) -> Steps[None]:
        try:
            yield from send(access, operations)
        except BackendUnavailable:
            yield from send(access, operations)

    return [(value, "send", send_again)]


@mutant("An item that is done is taken again.", worked=("work", DoneTwice), simulated=(Working,))
def gives_back_what_is_done() -> Changes:
    finish = Job._finish

    def finish_not(self: Any, how: str, operations: list[Operation]) -> Steps[None]:
        is_done = any(isinstance(one, Delete) for one in operations)
        yield from finish(self, how, self._returning(0) if is_done else operations)

    return [(kind, "_finish", finish_not) for kind in (Job, AsyncJob)]


@mutant("An item is put again, because the answer was lost.", simulated=(Working,))
def puts_again_without_a_look_at_the_tail() -> Changes:
    tell = Producer._tell

    def tell_what_was_answered(
        self: Producer, batch: list[Parcel], tail: Tail, last: BackendUnavailable | None
    ) -> bool:
        was_answered = self._state is not None
        return was_answered and tell(self, batch, tail, last)

    return [(Producer, "_tell", tell_what_was_answered)]


@mutant("An item is taken from a worker that has it.", simulated=(Working,))
def takes_claims_for_void() -> Changes:
    return [(Claim, "stands_in", lambda *_: False)]


@mutant("A later attempt has a token of an earlier time.", simulated=(Working,))
def takes_over_with_an_old_token() -> Changes:
    worker_after = Search._worker_after

    def worker(self: Search, _: int) -> Steps[Ticket]:
        return worker_after(self, 0)

    return [(Search, "_worker_after", worker)]
