"""Mistakes in what is built of locks, and beside them: groups, elections, values, work queues."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from coordlock.backend import Expect, Operation
from coordlock.errors import BackendUnavailable
from coordlock.kernel.access import Access
from coordlock.locks.publishing import Publisher
from coordlock.recipes import value
from coordlock.recipes.membership import BasePresence
from coordlock.recipes.shared.observer import BaseObserver
from coordlock.records import stored_record
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, resolved, settled
from coordlock.work import chores
from coordlock.work.item import AsyncItem, Item
from coordlock.work.layout import Entry
from coordlock.work.producer import Producer
from coordlock.work.records import Ended, entry_in
from coordlock.work.store import Store
from coordlock.work.workers import Worker, Workers
from tests.mutants.mutant import SUITES, Changes, mutant
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
        yield resolved(None)

    return [(BasePresence, "_leave", leave)]


@mutant("Of two values that come fast, one is never published.", simulated=(Gathering,))
def publishes_several_at_once() -> Changes:
    begin = Publisher._begin

    def at_once(self: Publisher, make: Callable[[], bytes], answer: Promise[None]) -> None:
        self._begun = resolved(None)
        begin(self, make, answer)

    return [(Publisher, "_begin", at_once)]


@mutant(
    "What is published anew is said to be there, and is not.",
    SUITES + "TestElectionOnMemory::test_a_leader_is_known_by_what_it_publishes",
)
def publishes_what_was_first_for_ever() -> Changes:
    def publish(self: Publisher, make: Callable[[], bytes]) -> Promise[None]:
        return resolved(None)

    return [(Publisher, "publish", publish)]


@mutant(
    "An observer shows a leader of the past.",
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


@mutant(
    "A write without an answer is sent again.",
    "tests/unit/test_values.py::test_a_write_without_an_answer_is_made_at_most_once_and_says_so",
)
def writes_again_what_was_not_answered() -> Changes:
    send = value.send

    def send_again(access: Access, operations: list[Operation]) -> Steps[None]:
        try:
            yield from send(access, operations)
        except BackendUnavailable:
            yield from send(access, operations)

    return [(value, "send", send_again)]


@mutant("An item that is done is taken again.", simulated=(Working,))
def gives_back_what_is_acknowledged() -> Changes:
    finish = Item._finish

    def finish_not(self: Any, how: str, operations: list[Operation]) -> Steps[None]:
        if how == "acknowledged":
            ended = Ended.of(self._claimed.entry, self._consumer.max_failures)
            operations = list(ended.keeping(self._consumer.store.layout))
        yield from finish(self, how, operations)

    return [(kind, "_finish", finish_not) for kind in (Item, AsyncItem)]


@mutant("An item is put again, because the answer was lost.", simulated=(Working,))
def puts_again_without_a_look_at_the_tail() -> Changes:
    return [(Producer, "_first_of", lambda *_: None)]


@mutant("An item is taken from a worker that has it.", simulated=(Working,))
def takes_claims_for_void() -> Changes:
    return [(chores, "_without", lambda claims, _: claims)]


@mutant("A later claim has a token of an earlier time.", simulated=(Working,))
def claims_again_with_an_old_token() -> Changes:
    get = Workers.get

    def worker(self: Workers, _: int = 0) -> Steps[Worker]:
        return get(self, 0)

    return [(Workers, "get", worker)]


@mutant(
    "A claim that no caller got counts as a failure.",
    "tests/unit/work/test_races.py::test_a_claim_that_no_caller_got_counts_for_nothing",
)
def blames_an_item_that_nobody_got() -> Changes:
    of = Ended.of

    def blamed(claim: Entry, limit: int, *, delivered: bool = True, **more: Any) -> Ended:
        ended: Ended = of(claim, limit, delivered=delivered, **{"failed": not delivered, **more})
        return ended

    return [(Ended, "of", staticmethod(blamed))]


@mutant("What others give back is never seen.", simulated=(Working,))
def sees_nothing_that_waits() -> Changes:
    names = Store.names

    def blind(self: Store, folder: str, *which: Any) -> Steps[list[str]]:
        found = yield from names(self, folder, *which)
        return [name for name in found if folder != self.layout.ready or not entry_in(name).token]

    return [(Store, "names", blind)]


@mutant(
    "A record that a newer release wrote is rewritten as one of this release.",
    "tests/unit/test_stored_records.py"
    "::test_a_record_in_a_newer_format_is_refused_by_name_and_left_alone",
)
def reads_any_format() -> Changes:
    return [(stored_record, "decode", json.loads)]
