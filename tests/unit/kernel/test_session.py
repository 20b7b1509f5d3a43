from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from coordlock_memory import MemoryBackend, MemoryService, VirtualTime, VirtualTimers
from hypothesis import given
from hypothesis import strategies as st

from coordlock.backend import SessionInfo, SessionListener
from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError, SessionLost
from coordlock.kernel.session import Session
from coordlock.runtime.driver import run_in_background
from coordlock.runtime.log import flush
from coordlock.runtime.promise import Promise, resolved
from tests.unit.signals import interrupted

TTL = 15.0
UNAVAILABLE = BackendUnavailable("memory", "cut off")


class ByHand(MemoryBackend):
    """A backend whose heartbeats the test answers, when it likes."""

    def __init__(self, time: VirtualTime, ttl: float) -> None:
        super().__init__(MemoryService(VirtualTimers(time)), ttl, VirtualTimers(time))
        self.time = time
        self.granted = ttl
        self.beats: list[tuple[float, Promise[float]]] = []

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        return resolved(SessionInfo("by hand", self.granted))

    def heartbeat(self) -> Promise[float]:
        self.beats.append((self.time.now(), Promise()))
        return self.beats[-1][1]

    def answer(self, number: int = -1, ttl: float | None = None) -> None:
        self.beats[number][1].resolve(self.granted if ttl is None else ttl)

    @property
    def sent(self) -> list[float]:
        return [moment for moment, _ in self.beats]


class Stage:
    """A session that is open since 0, its backend and its time."""

    def __init__(self, ttl: float = TTL) -> None:
        self.time = VirtualTime()
        self.timers = VirtualTimers(self.time)
        self.backend = ByHand(self.time, ttl)
        self.ends: list[CoordlockError] = []
        self.recoveries = 0
        self.client = 1
        self.session = Session(self.backend, self.timers, self)
        self.opened = run_in_background(self.session.open())

    def start(self) -> Stage:
        self.backend.answer()
        assert self.opened.result(0) is self.session
        return self

    def lose_session(self, _: Session, error: CoordlockError) -> None:
        self.ends.append(error)

    def loss_grace(self, _: Session) -> float:
        return 0.0

    def sweep_soon(self) -> None:
        self.recoveries += 1

    def end(self) -> CoordlockError | None:
        return self.session.ended

    def lives(self) -> bool:
        return self.session.ended is None

    def doubt(self) -> str | None:
        return self.session.suspicion

    def advance(self, seconds: float) -> None:
        self.time.advance(seconds)

    def mute_advance(self, seconds: float) -> None:
        """Time passes, and no timer of this process is served in time."""
        self.timers.pause()
        self.advance(seconds)


@pytest.fixture
def stage() -> Stage:
    return Stage().start()


def test_a_session_is_open_only_when_a_heartbeat_was_acknowledged() -> None:
    stage = Stage()
    assert not stage.opened.done()
    assert stage.backend.sent == [0.0]
    stage.start()
    assert stage.lives()
    assert stage.session.id == "by hand"


def test_heartbeats_are_sent_three_times_per_time_to_live(stage: Stage) -> None:
    for _ in range(6):
        stage.advance(TTL / 3)
        stage.backend.answer()
    assert stage.backend.sent == [n * TTL / 3 for n in range(7)]
    assert stage.ends == []


def test_a_first_heartbeat_answered_after_the_time_to_live_does_not_open_a_session() -> None:
    stage = Stage()
    stage.mute_advance(TTL + 1)
    stage.backend.answer()
    stage.timers.resume()
    stage.advance(0)
    held = stage.opened.done() and stage.opened.exception() is None
    assert not held or stage.session.remaining == 0


def test_heartbeats_that_hang_put_the_session_in_doubt_and_then_end_it(stage: Stage) -> None:
    stage.advance(TTL / 3)
    assert stage.doubt() is None
    stage.advance(TTL / 3)
    assert stage.doubt() is not None
    assert stage.lives()
    stage.advance(TTL / 3)
    assert not stage.lives()


def test_a_heartbeat_that_fails_is_repeated_soon(stage: Stage) -> None:
    stage.advance(TTL / 3)
    stage.backend.beats[-1][1].fail(UNAVAILABLE)
    assert stage.doubt() is not None
    stage.advance(TTL / 10)
    assert stage.backend.sent[-1] == pytest.approx(TTL / 3 + TTL / 10)
    stage.backend.answer()
    assert stage.doubt() is None


def test_a_reconnection_sends_a_heartbeat_at_once_and_its_answer_ends_the_doubt(
    stage: Stage,
) -> None:
    stage.advance(1)
    stage.session.suspect("disconnected")
    assert stage.doubt() == "disconnected"
    stage.session.recovered()
    assert stage.backend.sent == [0.0, 1.0]
    assert stage.doubt() == "disconnected"
    assert stage.recoveries == 0
    stage.backend.answer()
    assert stage.doubt() is None
    assert stage.session.remaining == TTL
    assert stage.recoveries == 1


def test_what_the_session_left_undone_is_tried_again_at_a_reconnection_after_its_end(
    stage: Stage,
) -> None:
    stage.session.end(SessionLost("memory", "the deadline has passed"))
    stage.session.recovered()
    assert stage.backend.sent == [0.0]
    assert stage.recoveries == 1


def test_a_heartbeat_refused_because_the_session_is_gone_ends_it(stage: Stage) -> None:
    stage.advance(TTL / 3)
    stage.backend.beats[-1][1].fail(SessionLost("memory", "it expired"))
    assert stage.session.gone
    assert isinstance(stage.end(), SessionLost)


def test_only_the_first_end_counts(stage: Stage) -> None:
    closed = ClientClosed()
    stage.session.end(closed)
    stage.session.lost("later")
    stage.advance(100)
    assert stage.end() is closed
    assert stage.ends == [closed]
    stage.session.suspect("later still")
    assert stage.doubt() is None


def test_a_session_that_is_gone_before_it_is_open_is_opened_anew_by_who_asks() -> None:
    stage = Stage()
    stage.backend.beats[0][1].fail(SessionLost("memory", "it expired"))
    assert isinstance(stage.opened.exception(0), BackendUnavailable)


def test_opening_repeats_its_heartbeat_while_the_service_is_unavailable() -> None:
    stage = Stage()
    stage.backend.beats[0][1].fail(UNAVAILABLE)
    stage.advance(1)
    assert len(stage.backend.beats) >= 2
    sent = stage.backend.sent[-1]
    stage.backend.answer()
    assert stage.opened.result(0).remaining == pytest.approx(sent + TTL - stage.time.now())


def test_a_session_whose_first_heartbeat_was_repeated_is_not_back_after_infinite_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.backend.beats[0][1].fail(UNAVAILABLE)
    stage.advance(1)
    stage.start()
    assert flush(30)
    assert "is in doubt" in caplog.text
    assert "is good again" not in caplog.text


def test_a_session_without_a_lease_has_no_deadline_and_sends_no_heartbeats() -> None:
    stage = Stage(ttl=math.inf).start()
    stage.advance(10_000)
    assert stage.lives()
    assert stage.session.remaining == math.inf
    assert len(stage.backend.beats) == 1


def test_a_shorter_time_to_live_holds_from_the_heartbeat_that_was_granted_it(
    stage: Stage,
) -> None:
    # ZooKeeper negotiates anew at every reconnect, and servers may be configured differently.
    stage.advance(TTL / 3)
    stage.backend.answer(ttl=3.0)
    assert stage.session.remaining == 3.0


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.floats(0, 12)),
        st.tuples(st.just("stall"), st.floats(0, 20)),
        st.tuples(st.just("answer"), st.integers(0, 30)),
        st.tuples(st.just("fail"), st.integers(0, 30)),
        st.tuples(st.just("recovered"), st.none()),
        st.tuples(st.just("suspect"), st.none()),
    ),
    max_size=30,
)


@given(EVENTS)
def test_the_session_lives_exactly_until_its_deadline_whatever_happens(
    events: list[tuple[str, float | int | None]],
) -> None:
    stage = Stage().start()
    deadline, dead = TTL, False
    for name, value in events:
        actions: dict[str, Callable[[], None]] = {
            "recovered": stage.session.recovered,
            "suspect": lambda: stage.session.suspect("told so"),
        }
        if name == "advance":
            stage.advance(value or 0.0)
        elif name == "stall":
            stage.mute_advance(value or 0.0)
            stage.timers.resume()
        elif name in actions:
            actions[name]()
        else:
            sent, promise = stage.backend.beats[int(value or 0) % len(stage.backend.beats)]
            if promise.done():
                continue
            dead = dead or stage.time.now() >= deadline
            if name == "answer":
                promise.resolve(TTL)
                if not dead and stage.time.now() < sent + TTL:
                    deadline = max(deadline, sent + TTL)
            else:
                promise.fail(UNAVAILABLE)
        dead = dead or stage.time.now() >= deadline
        assert stage.lives() is not dead
        assert stage.session.remaining == (0.0 if dead else deadline - stage.time.now())
    stage.advance(0)
    assert len(stage.ends) == dead


def test_the_end_is_told_though_ctrl_c_strikes_as_a_caller_looks_at_the_clock() -> None:
    for number in itertools.count(1):
        stage = Stage().start()
        stage.mute_advance(TTL + 1)
        came = interrupted(stage.end, number)
        assert not stage.ends
        stage.timers.resume()
        stage.advance(0)
        assert stage.ends == [stage.end()]
        if not came:
            break
    assert number > 5


def test_a_probe_is_sent_though_ctrl_c_struck_the_one_before() -> None:
    for number in itertools.count(1):
        stage = Stage().start()
        came = interrupted(stage.session.probe, number)
        stage.advance(0)
        before = len(stage.backend.beats)
        probe = stage.session.probe()
        stage.advance(0)
        assert len(stage.backend.beats) == before + 1
        stage.backend.answer()
        assert probe.done()
        if not came:
            break
    assert number > 3
