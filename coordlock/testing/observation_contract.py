"""What following a queue promises. Subclass `ObservationContract` as the other suites."""

from __future__ import annotations

import random
import threading
import uuid

from coordlock.backend import Observation, Queue
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.testing.backend_contract import BOUND, OWNER, Party
from coordlock.testing.disturbed_suite import DisturbedSuite
from coordlock.testing.waiting import eventually

__all__ = ["ObservationContract"]

#: The contenders of a queue, with their values where the backend has them.
State = tuple[tuple[str, bytes | None], ...]


class Observer:
    """Remembers each state that it looked at when it was told of news."""

    def __init__(self, party: Party, queue: str) -> None:
        self.seen: list[State] = []
        self.news = 0
        self._lock = threading.Lock()
        self._observation: Observation[Snapshot] | None = None
        self._observation = party.backend.follow(Queue(queue), self._told)
        self.look()

    @property
    def observation(self) -> Observation[Snapshot]:
        assert self._observation is not None
        return self._observation

    @property
    def state(self) -> State | None:
        """The newest state."""
        state = self.observation.view.state
        return None if state is None else shape(state.contenders)

    def _told(self) -> None:
        self.news += 1
        if self._observation is not None:
            self.look()

    def look(self) -> None:
        with self._lock:
            if (state := self.state) is not None and state not in self.seen[-1:]:
                self.seen.append(state)


def shape(contenders: tuple[Contender, ...]) -> State:
    return tuple((one.id, one.value) for one in contenders)


class Writer:
    """Changes a queue at random, one step after the other, and remembers its states."""

    def __init__(self, party: Party, queue: str, seed: int) -> None:
        self._party, self._queue, self._chance = party, queue, random.Random(seed)
        self._entries: dict[str, Entry] = {}
        self.history: list[State] = [()]

    def step(self) -> None:
        backend = self._party.backend
        present = backend.snapshot(self._queue, owners=True).result(BOUND).contenders
        mine = [one for one in present if one.id in self._entries]
        action = self._chance.choice(["enqueue", "withdraw", "publish"])
        if action == "publish" and mine and backend.capabilities.publishing:
            one = self._chance.choice(mine)
            backend.publish(one, uuid.uuid4().bytes, one.version).result(BOUND)
        elif action == "withdraw" and mine:
            entry = self._entries[self._chance.choice(mine).id]
            assert self._party.remove(entry) is True
        else:
            value = b"new" if backend.capabilities.publishing else b""
            entry = Entry(self._queue, uuid.uuid4().hex, Mode.NL, OWNER, value)
            self._entries[entry.id] = entry
            self._party.add(entry)
        after = backend.snapshot(self._queue, owners=True).result(BOUND).contenders
        self.history.append(shape(after))


def is_subsequence(seen: list[State], history: list[State]) -> bool:
    """Whether the states were seen in their order; one that came twice counts at each place."""
    left = iter(history)
    return all(any(state == one for one in left) for state in seen)


class ObservationContract(DisturbedSuite):
    """The suite."""

    needs = ("ordered",)

    def test_an_observer_sees_who_is_there(self, one: Party, two: Party) -> None:
        made = [one.enqueue("q")[1] for _ in range(20)]
        observer = Observer(two, "q")
        eventually(lambda: observer.observation.view.state is not None)
        state = observer.observation.view.state
        assert state is not None
        assert [c.id for c in state.contenders] == [c.id for c in made]
        assert [c.token for c in state.contenders] == [c.token for c in made]
        assert {c.owner for c in state.contenders} == {OWNER}
        assert (state.queue, state.omitted) == ("q", 0)
        eventually(lambda: observer.observation.view.stale_since is None)
        observer.observation.cancel()

    def test_an_empty_queue_is_a_state(self, one: Party, two: Party) -> None:
        observer = Observer(two, "q")
        eventually(lambda: observer.state == ())
        entry, contender, _ = one.enqueue("q")
        eventually(lambda: [id for id, _ in observer.state or ()] == [contender.id])
        one.remove(entry)
        eventually(lambda: observer.state == ())
        observer.observation.cancel()

    def test_the_end_of_a_session_is_seen(self, one: Party, two: Party) -> None:
        one.enqueue("q")
        observer = Observer(two, "q")
        eventually(lambda: len(observer.state or ()) == 1)
        one.backend.close().result(BOUND)
        eventually(lambda: observer.state == ())
        observer.observation.cancel()

    def test_only_states_that_were_are_seen_and_in_their_order(
        self, one: Party, two: Party
    ) -> None:
        writer, observer = Writer(one, "q", 1), Observer(two, "q")
        for _ in range(60):
            writer.step()
        eventually(lambda: observer.state == writer.history[-1])
        observer.look()
        assert is_subsequence(observer.seen, writer.history)
        observer.observation.cancel()

    def test_after_broken_connections_the_newest_state_is_seen(
        self, one: Party, two: Party
    ) -> None:
        writer, observer = Writer(one, "q", 2), Observer(two, "q")
        for _ in range(3):
            for _ in range(5):
                writer.step()
            eventually(lambda: observer.state == writer.history[-1])
            with self.cut_off(two):
                eventually(lambda: observer.observation.view.stale_since is not None)
                for _ in range(5):
                    writer.step()
                stale = observer.observation.view
                assert stale.state is not None
                assert shape(stale.state.contenders) in writer.history[:-5]
                assert observer.observation.view.stale_since == stale.stale_since
            eventually(lambda: observer.state == writer.history[-1])
            eventually(lambda: observer.observation.view.stale_since is None)
        assert is_subsequence(observer.seen, writer.history)
        observer.observation.cancel()

    def test_a_cancelled_observation_tells_nothing_and_leaves_others_alone(
        self, one: Party, two: Party
    ) -> None:
        cancelled, kept = Observer(two, "q"), Observer(two, "q")
        eventually(lambda: cancelled.state == kept.state == ())
        cancelled.observation.cancel()
        cancelled.observation.cancel()
        news, view = cancelled.news, cancelled.observation.view
        one.enqueue("q")
        eventually(lambda: len(kept.state or ()) == 1)
        assert (cancelled.news, cancelled.observation.view) == (news, view)
        kept.observation.cancel()

    def test_closing_ends_an_observation(self, one: Party, two: Party) -> None:
        observer = Observer(two, "q")
        eventually(lambda: observer.state == ())
        two.backend.close().result(BOUND)
        eventually(lambda: observer.observation.view.ended is not None)
        assert observer.observation.view.stale_since is not None
        observer.observation.cancel()
