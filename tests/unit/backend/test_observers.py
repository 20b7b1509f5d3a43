"""What is observed is read after each change, one reading at a time, and never shown too old."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from coordlock_memory import VirtualTime

from coordlock.backend import Listing, Observation
from coordlock.backend.observers import Observers
from coordlock.errors import BackendError, BackendUnavailable
from coordlock.runtime.process import PROCESS
from coordlock.runtime.promise import Promise

UNAVAILABLE = BackendUnavailable("etcd", "no answer")


class Service:
    """Answers readings when it is told to."""

    def __init__(self, *, is_live: bool = True) -> None:
        self.time = VirtualTime()
        self.is_live = is_live
        self.observers = Observers(self, self.time, threading.RLock())
        self.readings: list[Promise[Any]] = []
        self.reported: list[str] = []
        self.pauses: list[Promise[None]] = []

    def report(self, place: str) -> bool:
        self.reported.append(place)
        return self.is_live

    def unreport(self, place: str) -> None:
        self.reported.remove(place)

    def pause(self) -> Promise[None]:
        self.pauses.append(Promise())
        return self.pauses[-1]

    def read(self) -> Promise[Any]:
        self.readings.append(Promise())
        return self.readings[-1]

    def observe(self) -> Observation[Any]:
        return self.observers.observe("x", self.read, lambda: None)

    def answer(self, revision: int, number: int = -1) -> None:
        self.readings[number].resolve(Listing({}, revision))

    def fail(self, error: Exception = UNAVAILABLE) -> None:
        self.readings[-1].fail(error)


def shown(observation: Observation[Any]) -> tuple[int, float | None]:
    view = observation.view
    return (0 if view.state is None else view.state.revision), view.stale_since


def test_changes_that_come_during_a_reading_need_one_more() -> None:
    service = Service()
    observation = service.observe()
    for _ in range(3):
        service.observers.changed("x")
    assert len(service.readings) == 1
    service.answer(1)
    assert len(service.readings) == 2
    service.answer(2)
    assert len(service.readings) == 2
    assert shown(observation) == (2, None)


def test_a_change_is_applied_to_what_is_shown_and_read_during_a_reading_or_a_gap() -> None:
    service = Service()
    observation = service.observe()

    def change(known: Listing) -> Listing:
        return Listing(known.values, known.revision + 1)

    service.observers.apply("x", change)
    service.answer(1)
    assert len(service.readings) == 2, "the reading may lack it"
    service.answer(2)
    service.observers.apply("x", change)
    assert shown(observation) == (3, None)
    service.observers.apply("x", lambda known: known)
    assert len(service.readings) == 2
    service.observers.gap(is_over=True)
    service.observers.apply("x", change)
    service.answer(5)
    service.answer(6)
    assert shown(observation) == (6, None)
    service.observers.apply("elsewhere", change)


def test_nothing_is_read_before_changes_are_reported() -> None:
    service = Service(is_live=False)
    observation = service.observe()
    service.observers.changed("x")
    assert service.readings == []
    service.observers.live("x")
    service.answer(1)
    assert shown(observation) == (1, None)


def test_an_observer_sees_nothing_that_was_asked_before_it_came() -> None:
    service = Service()
    first = service.observe()
    second = service.observe()
    service.answer(1)
    assert shown(second) == (0, 0.0)
    service.answer(2)
    assert shown(first) == shown(second) == (2, None)
    assert service.reported == ["x"]


def test_after_a_gap_the_state_is_stale_since_its_reading_and_is_read_anew() -> None:
    service = Service()
    observation = service.observe()
    service.time.advance(1.0)
    service.observers.changed("x")
    service.answer(1, 0)
    service.answer(2)
    service.observers.changed("x")
    service.observers.gap(0.5)
    assert shown(observation) == (2, 1.0)
    service.answer(3)
    assert shown(observation) == (2, 1.0), "what was asked before the gap says nothing"
    service.observers.live("x")
    assert len(service.readings) == 4, "it does not wait for the answer to an earlier one"
    service.answer(4)
    assert shown(observation) == (4, None)


def test_a_gap_does_not_make_a_change_younger_that_was_reported_and_not_read() -> None:
    service = Service()
    observation = service.observe()
    service.answer(1)
    service.time.advance(2.0)
    service.observers.changed("x")
    service.observers.gap(1.0)
    assert shown(observation) == (1, 0.0)


def test_a_gap_that_is_over_makes_all_read_that_is_reported() -> None:
    service = Service()
    observation = service.observe()
    service.answer(1)
    service.time.advance(2.0)
    service.observers.gap(1.0, is_over=True)
    assert shown(observation) == (1, 1.0)
    service.answer(2)
    assert shown(observation) == (2, None)
    service.is_live = False
    service.observers.gap(2.0)
    service.observers.gap(2.0, is_over=True)
    assert len(service.readings) == 2, "changes are not reported yet"


def test_a_reading_without_an_answer_is_repeated_after_a_pause() -> None:
    service = Service()
    service.time.advance(2.0)
    observation = service.observe()
    service.answer(1)
    service.time.advance(3.0)
    service.observers.changed("x")
    service.time.advance(1.0)
    service.fail()
    assert shown(observation) == (1, 2.0), "the change may be older than its report"
    service.observers.changed("x")
    assert len(service.readings) == 2
    service.pauses[-1].resolve(None)
    service.answer(2)
    assert shown(observation) == (2, None)


def test_an_error_that_no_repetition_mends_ends_the_observations_of_that_place() -> None:
    service = Service()
    observation = service.observe()
    service.fail(error := BackendError("etcd", "too large"))
    assert observation.view.ended is error
    assert service.reported == []
    again = service.observe()
    service.answer(1)
    assert shown(again) == (1, None)


def test_a_reading_that_is_not_understood_ends_the_observations_of_that_place() -> None:
    service = Service()
    observation = service.observe()
    service.answer(1)
    service.observers.changed("x")
    service.fail(ValueError("no number"))
    with pytest.raises(BackendError, match="ValueError: no number"):
        raise observation.view.ended or AssertionError("what is shown passes for the newest")
    assert service.reported == []


def test_the_last_observer_that_leaves_ends_the_reports_and_the_reading() -> None:
    service = Service()
    first, second = service.observe(), service.observe()
    first.cancel()
    first.cancel()
    assert service.reported == ["x"]
    second.cancel()
    assert service.reported == []
    assert service.observers.places() == []
    service.fail()
    assert service.pauses == []


def refuse(_: str) -> bool:
    raise RuntimeError("no thread")


def test_a_place_that_could_not_be_reported_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service()
    with monkeypatch.context() as patch:
        patch.setattr(service, "report", refuse)
        with pytest.raises(RuntimeError):
            service.observe()
    assert service.observers.places() == []
    service.observe()
    assert service.reported == ["x"]


def test_a_reading_that_a_signal_handler_ends_is_repeated_after_a_pause() -> None:
    service = Service()
    observation = service.observe()
    service.answer(1)

    def interrupted() -> None:
        raise KeyboardInterrupt

    observed = service.observers._observed["x"]
    real, observed.read = observed.read, interrupted  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        service.observers.changed("x")
    observed.read = real
    service.pauses[-1].resolve(None)
    service.answer(2)
    assert shown(observation) == (2, None)


def test_an_observation_that_ends_in_a_forked_child_goes_on_for_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service()
    observation = service.observe()
    with observation._lock:  # as another thread may hold it at the fork
        monkeypatch.setattr(PROCESS, "id", -1)
        observation.cancel()
    assert service.reported == ["x"]


def test_where_readings_may_show_the_past_the_service_says_since_when_they_are_stale() -> None:
    service = Service()
    service.observers = Observers(
        service, service.time, threading.RLock(), known_at=lambda place: 7.0
    )
    observation = service.observe()
    service.answer(1)
    service.observers.gap(9.0, is_over=True)
    assert shown(observation) == (1, 7.0)
    service.answer(2)
    assert shown(observation) == (2, None)


def test_a_callback_that_raises_disturbs_no_other() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    service = Service()
    service.observers.observe("x", service.read, fail)
    observation = service.observe()
    service.answer(1)
    service.answer(2)
    service.observers.changed("x")
    service.answer(3)
    assert shown(observation) == (3, None)
