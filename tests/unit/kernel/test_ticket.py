from __future__ import annotations

from typing import Any

import pytest
from coordlock_memory import Fault, VirtualTimers
from hypothesis import given
from hypothesis import strategies as st

from coordlock.errors import (
    AuthenticationFailed,
    BackendUnavailable,
    ClientClosed,
    SessionLost,
)
from coordlock.kernel.access import close
from coordlock.kernel.ticket import Ticket
from coordlock.locks.grant import GrantState
from coordlock.model.claim import Mode
from coordlock.model.contender import Snapshot
from coordlock.runtime.log import flush
from coordlock.runtime.promise import Promise, failed
from tests.simulation.world import TTL, Call, Party, World

#: After this many seconds the last look for a late contender is over.
CONFIRMED = 120.0


@pytest.fixture
def party(world: World) -> Party:
    party = world.party()
    party.run(party.engine.session())
    return party


def ticket_of(party: Party) -> Ticket:
    session = party.run(party.engine.session())
    party.world.settle()
    return party.engine.ticket(session.result, {"q": Mode.EX})


def enqueued(party: Party) -> tuple[Ticket, Snapshot]:
    """A ticket whose contender stands in the queue, and the queue as it was then."""
    ticket = ticket_of(party)
    call = party.run(ticket.enqueue())
    party.world.settle()
    return ticket, call.result[0]


@pytest.fixture
def queued(party: Party) -> Ticket:
    """A ticket whose contender stands in the queue."""
    return enqueued(party)[0]


def live_tickets(party: Party) -> int:
    return len(party.engine.tickets)


def test_a_ticket_withdrawn_while_its_request_is_under_way_leaves_when_that_is_answered(
    world: World, party: Party
) -> None:
    ticket = ticket_of(party)
    party.network.faults.latency = lambda: 2.0
    call = party.run(ticket.enqueue())
    world.advance(1)
    ticket.withdraw()
    assert "withdraw" not in party.network.requests
    while not call.done:
        world.advance(0.5)
    assert "withdraw" in party.network.requests, "it is left to the sweep"


def test_a_removal_that_is_refused_is_repeated_until_it_is_accepted_and_logged_once(
    world: World,
    party: Party,
    queued: Ticket,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = AuthenticationFailed("memory", "no right to delete")
    asked: list[float] = []

    def refuse(_: object) -> Any:
        asked.append(world.time.now())
        return failed(refused)

    with monkeypatch.context() as patched:
        patched.setattr(party.engine.backend, "withdraw", refuse)
        removal = queued.withdraw()
        world.advance(0.5 * TTL)
        assert not removal.done()
        [standing] = world.queue()
        assert party.engine.tickets.own(standing) is queued
        assert 5 < len(asked) < 15
    world.advance(TTL / 3)
    assert removal.result(0) is True
    assert world.queue() == ()
    assert live_tickets(party) == 0
    assert flush(30)
    texts = [one.getMessage() for one in caplog.records if "withdraw" in one.getMessage()]
    assert len(texts) == 1
    assert "no right to delete" in texts[0]


def test_a_removal_that_is_refused_ends_with_the_session(
    world: World, party: Party, queued: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = AuthenticationFailed("memory", "no right to delete")
    monkeypatch.setattr(party.engine.backend, "withdraw", lambda _: failed(refused))
    queued.withdraw()
    world.service.expire(queued.session.id)
    world.advance(TTL)
    assert live_tickets(party) == 0


def test_what_the_service_has_refused_to_add_is_not_removed_for_ever(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = AuthenticationFailed("memory", "no right to write")
    for method in ("enqueue", "withdraw"):
        monkeypatch.setattr(party.engine.backend, method, lambda *_, **__: failed(refused))
    call = party.acquire()
    world.settle()
    assert call.error is refused
    assert live_tickets(party) == 0


def test_no_request_is_sent_again_once_the_ticket_was_withdrawn(world: World, party: Party) -> None:
    """As when the client closes in another thread, on a session that goes on."""
    ticket = ticket_of(party)
    party.network.faults.inject("enqueue", Fault.LOSE_REQUEST)
    call = party.run(ticket.enqueue())
    ticket.lose(ClientClosed())
    ticket.withdraw()
    world.advance(CONFIRMED)
    assert party.network.requests.count("enqueue") == 1
    assert isinstance(call.error, ClientClosed)
    assert world.queue() == ()


def test_no_request_is_sent_in_a_session_that_has_ended(world: World, party: Party) -> None:
    ticket = ticket_of(party)
    ticket.session.lost("it expired")
    call = party.run(ticket.enqueue())
    world.settle()
    assert isinstance(call.error, SessionLost)
    assert "enqueue" not in party.network.requests
    assert ticket.withdraw().result(0) is False


def test_a_ticket_of_a_session_that_is_gone_is_withdrawn_without_a_request(
    world: World, party: Party, queued: Ticket
) -> None:
    world.service.expire(world.service.sessions()[0])
    world.settle()
    assert isinstance(queued.end.result(0), SessionLost)
    assert queued.withdraw().result(0) is False
    assert "withdraw" not in party.network.requests


def test_a_ticket_that_is_lost_between_two_attempts_ends_its_call_at_once(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VirtualTimers, "jitter", lambda _, longest: longest)
    ticket = ticket_of(party)
    party.network.faults.inject("enqueue", Fault.LOSE_REQUEST, 1000)
    call = party.run(ticket.enqueue())
    world.advance(3)
    ticket.lose(ClientClosed())
    world.settle()
    assert isinstance(call.error, ClientClosed)


def test_removals_do_not_become_more_frequent_in_a_long_outage(
    world: World, party: Party, queued: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: each sweep sent one, and each that failed set one more timer."""
    monkeypatch.setattr(VirtualTimers, "jitter", lambda _, longest: longest)
    sent: list[float] = []

    def withdraw(_: object) -> Promise[bool]:
        sent.append(world.time.now())
        return failed(BackendUnavailable("memory", "no connection"))

    monkeypatch.setattr(party.engine.backend, "withdraw", withdraw)
    queued.withdraw()
    world.advance(100)
    begun = len(sent)
    world.advance(100)
    assert 40 < len(sent) - begun < 80


def test_a_removal_is_tried_again_as_soon_as_the_session_has_recovered(
    world: World, party: Party, queued: Ticket
) -> None:
    held = party.held("other")
    # The fault: an outage of which every request learns at once.
    for method in ("withdraw", "heartbeat"):
        party.network.faults.inject(method, Fault.LOSE_REQUEST, 1000)
    removal, late = queued.withdraw(), held._ticket.withdraw()
    world.advance(0.8 * TTL)
    party.network.faults._next.clear()
    queued.session.recovered()
    world.settle()
    assert removal.result(0) is True
    assert late.result(0) is True


def test_the_sweep_repeats_a_removal_that_nothing_else_repeats(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VirtualTimers, "jitter", lambda *_: 300.0)
    tickets = [party.held(name)._ticket for name in "abc"]
    party.network.faults.inject("withdraw", Fault.LOSE_REQUEST, 3)
    removals = [ticket.withdraw() for ticket in tickets]
    assert not any(removal.done() for removal in removals)
    world.advance(TTL / 3)
    assert all(removal.done() for removal in removals)


def test_the_own_contender_is_watched_only_when_it_is_held_for_a_moment(
    world: World, party: Party
) -> None:
    grant = party.held()
    assert world.watches() == 0
    world.advance(1)
    assert world.watches() == 1
    grant._ticket.withdraw()
    assert world.watches() == 0
    short = party.held()
    short._ticket.withdraw()
    world.advance(1)
    assert world.watches() == 0


def test_a_holder_whose_deadline_has_passed_is_not_told_that_it_was_evicted(
    world: World, party: Party
) -> None:
    grant = party.held()
    # It stands still, and its contender goes with its session. When it runs again, the thread that
    # brings the departure comes before the one that looks at the clock.
    party.pause()
    world.advance(3 * TTL)
    assert world.queue() == ()
    grant._ticket.removed_by_service("q")
    assert isinstance(grant._ticket.end.result(0), SessionLost)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.floats(0, 8)),
        st.tuples(st.just("enqueue"), st.sampled_from(Fault)),
        st.tuples(st.just("withdraw"), st.sampled_from(Fault)),
        st.tuples(st.just("partition"), st.none()),
        st.tuples(st.just("heal"), st.none()),
        st.tuples(st.just("latency"), st.floats(0, 3)),
        st.tuples(st.just("withdraw"), st.none()),
        st.tuples(st.just("expire"), st.none()),
        st.tuples(st.just("evict"), st.none()),
        st.tuples(st.just("enqueue"), st.none()),
    ),
    max_size=14,
)


class Day:
    """A ticket's day, in which ``steps`` happen to it."""

    def __init__(self) -> None:
        self.world = World()
        self.party = self.world.party()
        self.ticket = ticket_of(self.party)
        self.calls: list[Call[tuple[Snapshot, ...]]] = []

    def happen(self, name: str, value: float | Fault | None) -> None:
        faults = self.party.network.faults
        match name, value:
            case "advance", float(seconds):
                self.world.advance(seconds)
            case ("enqueue" | "withdraw") as method, Fault() as fault:
                faults.inject(method, fault)
            case "latency", float(seconds):
                faults.latency = lambda: seconds
            case _:
                getattr(self, name)()

    def partition(self) -> None:
        self.party.cut_off()

    def heal(self) -> None:
        self.party.heal()

    def enqueue(self) -> None:
        if not self.calls and not self.ticket.is_leaving:
            self.calls.append(self.party.run(self.ticket.enqueue()))

    def withdraw(self) -> None:
        self.ticket.withdraw()
        for call in self.calls:
            call.cancel()

    def expire(self) -> None:
        for session in self.world.service.sessions():
            self.world.service.expire(session)

    def evict(self) -> None:
        for contender in self.world.queue():
            self.world.service.remove(contender)


@given(STEPS)
def test_whatever_fails_a_withdrawn_ticket_leaves_no_contender(
    steps: list[tuple[str, float | Fault | None]],
) -> None:
    day = Day()
    for name, value in steps:
        day.happen(name, value)
    day.withdraw()
    day.heal()
    day.world.advance(2 * CONFIRMED)
    assert day.world.queue() == ()
    assert live_tickets(day.party) == 0
    assert day.world.watches() == 0
    for call in day.calls:
        assert call.done
        assert not isinstance(call.outcome.exception(0), BackendUnavailable)


def test_nothing_is_watched_after_the_client_was_closed(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    party.held()
    watched: list[object] = []
    monkeypatch.setattr(party.network, "watch", lambda *args: watched.append(args))
    party.run(close(party.engine))
    world.advance(5)
    assert watched == []


def test_a_removal_that_ctrl_c_ended_counts_though_its_repetition_finds_nothing(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = party.held()
    withdraw = party.engine.backend.withdraw

    def struck(entry: Any) -> Any:
        monkeypatch.undo()
        withdraw(entry)
        raise KeyboardInterrupt

    monkeypatch.setattr(party.engine.backend, "withdraw", struck)
    with pytest.raises(KeyboardInterrupt):
        grant._ticket.withdraw()
    assert world.queue() == ()
    world.advance(TTL / 3)
    assert grant._ticket.withdraw().result(0) is True
    assert grant.state is GrantState.RELEASED


def test_a_request_that_is_being_sent_after_a_refusal_leaves_nothing_behind(
    world: World, party: Party
) -> None:
    """A client asks a service without order again and again: see `_Acquisition.poll`."""
    held = world.party().acquire()
    world.settle()
    ticket = ticket_of(party)
    party.run(ticket.enqueue(unless_blocked=True))
    world.settle()
    held.result.withdraw()
    world.settle()
    send, backend = party.network.enqueue, party.network

    def interrupted_send(*arguments: Any, **options: Any) -> Any:
        ticket.withdraw()  # by another thread, which closes the client
        return send(*arguments, **options)

    backend.enqueue = interrupted_send  # type: ignore[method-assign]
    party.run(ticket.enqueue(unless_blocked=True))
    world.advance(200)
    assert world.queue() == ()
