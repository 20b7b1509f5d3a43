"""Whose departure would have been told, against a model of a server, kazoo and its threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any

import coordlock_zookeeper
import pytest
from coordlock_zookeeper.requests import Requests
from coordlock_zookeeper.watches import Watches
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.states import Callback

from coordlock.backend import Departure
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender
from tests.unit.signals import moments

NODES = ("/q/1", "/q/2")


class Turn(Enum):
    """Who does what is next for it."""

    SERVER = "the server answers a request"
    INPUT = "kazoo hears what the server said, and completes answers"
    EVENTS = "kazoo's thread for events calls back"


class Kazoo:
    """One connection at a time to a server on which nodes are written and deleted.

    What is asked arrives in order. What is said, answers and events, comes in the order in which
    the server did it. As with a given client, another thread calls back for events.
    """

    def __init__(self) -> None:
        self.connected = True
        self.chroot = ""
        self.nodes = dict.fromkeys(NODES)
        #: In the order in which they were deleted.
        self.deleted: list[str] = []
        self.asked: deque[tuple[str, Any, Any]] = deque()
        self.said: deque[Callable[[], object]] = deque()
        self.events: deque[Callable[[], object]] = deque()
        self._set: set[str] = set()  # on the server
        self._kept: dict[str, Any] = {}  # by kazoo
        self._unanswered: list[Any] = []
        self.last_zxid = 0
        self.handler = SimpleNamespace(dispatch_callback=self.dispatch)

    def _call(self, request: Any, result: Any) -> None:
        self.asked.append((request.path, request.watcher, result))
        self._unanswered.append(result)

    def dispatch(self, callback: Callback) -> None:
        self.events.append(partial(callback.func, *callback.args))

    def _serve(self) -> None:
        path, watch, result = self.asked.popleft()
        if path in self.nodes:
            self._set.add(path)
        self.said.append(partial(self._answer, path, watch, result, path in self.nodes))

    def write(self, path: str) -> None:
        self._say("CHANGED", path)

    def delete(self, path: str) -> None:
        del self.nodes[path]
        self.deleted.append(path)
        self._say("DELETED", path)

    def go_on(self, turn: Turn) -> bool:
        """Whether there was something to do."""
        match turn:
            case Turn.SERVER if self.asked:
                self._serve()
            case Turn.INPUT if self.said:
                self.said.popleft()()
            case Turn.EVENTS if self.events:
                self.events.popleft()()
            case _:
                return False
        return True

    def forget(self) -> None:
        """The connection breaks: what is under way is lost."""
        self.asked.clear()
        self.said.clear()
        self._set.clear()
        self._kept.clear()
        for result in self._unanswered:
            result.set_exception(ConnectionLoss())
        self._unanswered.clear()

    def _answer(self, path: str, watch: Any, result: Any, found: bool) -> None:
        self._unanswered.remove(result)
        if found:
            self._kept[path] = watch
            result.set((b"", SimpleNamespace(version=0)))
        else:
            result.set_exception(NoNodeError())

    def _say(self, kind: str, path: str) -> None:
        if path in self._set:
            self._set.remove(path)
            self.said.append(partial(self._event, kind, path))

    def _event(self, kind: str, path: str) -> None:
        if (watch := self._kept.pop(path, None)) is not None:
            event = SimpleNamespace(type=kind, path=path)
            self.dispatch(Callback("watch", watch, (event,)))


class Watching(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.kazoo = Kazoo()
        self.watches = Watches(Requests(self.kazoo))
        self.waiting: set[str] = set()
        self.told: list[str] = []

    @rule()
    def the_first_is_waited_for(self) -> None:
        self.wait_for(NODES[0])

    @rule()
    def the_second_is_waited_for(self) -> None:
        self.wait_for(NODES[1])

    def wait_for(self, path: str) -> None:
        if path not in self.waiting:
            self.waiting.add(path)
            self.watches.add(path, partial(self.departed, path))

    def departed(self, path: str, _: Departure) -> None:
        self.told.append(path)
        self.look()

    def look(self) -> None:
        """Who is certain has been told if its path went before another that was told."""
        for place, mine in enumerate(self.kazoo.deleted):
            if mine in self.waiting and (mine not in self.told or mine == self.told[-1]):
                later = set(self.kazoo.deleted[place:])
                assert not (later & set(self.told) and self.watches.certain(mine))

    @rule(turns=st.permutations(list(Turn)), most=st.sampled_from((1, 2, 9)))
    def they_take_turns(self, turns: list[Turn], most: int) -> None:
        for turn in turns:
            for _ in range(most):
                self.kazoo.go_on(turn)
                self.look()

    @rule()
    def all_comes_to_rest(self) -> None:
        while any(self.kazoo.go_on(turn) for turn in Turn):
            self.look()

    @rule(paths=st.lists(st.sampled_from(NODES), min_size=1, unique=True))
    def somebody_deletes(self, paths: list[str]) -> None:
        for path in paths:
            if path in self.kazoo.nodes:
                self.kazoo.delete(path)

    @rule(path=st.sampled_from(NODES))
    def somebody_writes(self, path: str) -> None:
        if path in self.kazoo.nodes:
            self.kazoo.write(path)

    @rule()
    def the_connection_breaks_or_is_back(self) -> None:
        self.kazoo.connected = not self.kazoo.connected
        if self.kazoo.connected:
            self.kazoo.dispatch(Callback("watch", self.watches.rearm, ()))
        else:
            self.kazoo.forget()

    @rule()
    def a_heartbeat_is_due(self) -> None:
        self.watches.rearm(missing=True)

    def teardown(self) -> None:
        """In the end everybody is told, and who stays is certain."""
        if not self.kazoo.connected:
            self.the_connection_breaks_or_is_back()
        self.all_comes_to_rest()
        self.a_heartbeat_is_due()
        self.all_comes_to_rest()
        assert sorted(self.told) == sorted(self.waiting & set(self.kazoo.deleted))
        assert all(self.watches.certain(one) for one in self.waiting & set(self.kazoo.nodes))


TestWatching = Watching.TestCase
TestWatching.settings = settings(max_examples=500, stateful_step_count=15)


def test_an_answer_that_shows_a_departure_is_told_behind_the_events_that_came_before() -> None:
    kazoo, told = Kazoo(), list[str]()
    mine, other = NODES
    watches = Watches(Requests(kazoo))
    watches.add(mine, lambda _: told.append(mine))
    kazoo.go_on(Turn.SERVER)
    kazoo.delete(mine)
    kazoo.delete(other)
    watches.add(other, lambda _: told.append(other))
    for turn in (Turn.SERVER, Turn.INPUT, Turn.INPUT, Turn.INPUT):
        assert kazoo.go_on(turn)
    assert watches.certain(mine)
    assert not told
    assert all(kazoo.go_on(Turn.EVENTS) for _ in NODES)
    assert told == [mine, other]


@pytest.mark.parametrize(
    ("watches_itself", "proof"), [(True, Departure.IN_ORDER), (False, Departure.UNORDERED)]
)
def test_a_departure_proves_something_where_the_waiters_own_would_have_been_told(
    watches_itself: bool, proof: Departure
) -> None:
    kazoo, told = Kazoo(), list[Departure]()
    mine, other = NODES
    watches = Watches(Requests(kazoo))
    if watches_itself:
        watches.add(mine, lambda _: None)
    watches.add(other, told.append, (Contender("me", mine, Mode.EX, 2),))
    while any(kazoo.go_on(turn) for turn in Turn):
        pass
    kazoo.delete(other)
    while any(kazoo.go_on(turn) for turn in Turn):
        pass
    assert told == [proof]


class Breaking(Kazoo):
    """Its connection breaks, when armed, after the first watch that was asked for is answered."""

    def __init__(self) -> None:
        self.is_armed = False
        self._is_connected = True
        super().__init__()

    @property
    def connected(self) -> bool:
        if self.is_armed and self.asked:
            self.is_armed = False
            for turn in (Turn.SERVER, Turn.INPUT):
                assert self.go_on(turn)
            self.forget()
            self._is_connected = False
        return self._is_connected

    @connected.setter
    def connected(self, connected: bool) -> None:
        self._is_connected = connected


def test_a_connection_that_breaks_while_watches_are_set_anew_leaves_none_certain() -> None:
    kazoo, told = Breaking(), list[str]()
    other, mine = NODES
    watches = Watches(Requests(kazoo))
    for path in (other, mine):
        watches.add(path, lambda _, path=path: told.append(path))  # type: ignore[misc]
    while any(kazoo.go_on(turn) for turn in Turn):
        pass
    assert watches.certain(mine)
    kazoo.forget()
    kazoo.delete(mine)
    kazoo.delete(other)
    kazoo.is_armed = True
    watches.rearm()
    assert kazoo.go_on(Turn.EVENTS)
    assert told == [other]
    assert not watches.certain(mine)


def test_a_watch_that_a_signal_kept_from_being_asked_for_is_asked_for_by_the_next_heartbeat() -> (
    None
):
    for strike in moments(1, coordlock_zookeeper):
        kazoo, told = Kazoo(), list[Departure]()
        watches, path = Watches(Requests(kazoo)), NODES[0]
        strike(partial(watches.add, path, lambda _: None))
        watches.add(path, told.append)
        watches.rearm(missing=True)
        while any(kazoo.go_on(turn) for turn in Turn):
            pass
        assert watches.certain(path)
        kazoo.delete(path)
        while any(kazoo.go_on(turn) for turn in Turn):
            pass
        assert told
