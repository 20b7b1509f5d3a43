"""What elections promise on every backend that has groups, sync and async.

Subclass `ElectionContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest

from coordlock import Cancellation, GrantState, LockLost
from coordlock.testing.client_suite import BOUND, ClientSuite, Start
from coordlock.testing.waiting import eventually

__all__ = ["ElectionContract"]


def campaign(client: Any, value: bytes = b"me", **options: Any) -> Any:
    """The term of a candidate that is elected in the end."""
    return client.election("e", value, timeout=BOUND).campaign(**options)


def values(client: Any) -> list[bytes]:
    """Of the leader, and of those that campaign behind it."""
    return [one.value for one in client.election("e").candidates()]


def leading(client: Any) -> bytes | None:
    """The leader's value."""
    leader = client.election("e").leader()
    return None if leader is None else leader.value


class Body:
    """What `run` calls: it leads until it is told to end, or its term is lost."""

    def __init__(self) -> None:
        self.terms: list[Any] = []
        self.stop = threading.Event()
        self.busy = 0
        self.most = 0

    def lead(self, term: Any) -> None:
        self._begin(term)
        try:
            while not self.stop.wait(0.01):
                term.check()
        finally:
            self.busy -= 1

    async def lead_async(self, term: Any) -> None:
        self._begin(term)
        try:
            await asyncio.to_thread(self.stop.wait)
        finally:
            self.busy -= 1

    def _begin(self, term: Any) -> None:
        self.busy += 1
        self.most = max(self.most, self.busy)
        self.terms.append(term)

    def of(self, client: Any) -> Any:
        """The function for ``client``."""
        return self.lead_async if hasattr(client, "_portal") else self.lead


class ElectionContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("publishing",)

    # Campaigning

    def test_the_first_to_campaign_leads_and_the_next_follows(
        self, client: Any, other: Any, start: Start
    ) -> None:
        assert client.election("e").leader() is None
        assert client.election("e").candidates() == ()
        first = campaign(client, b"one")
        leader = other.election("e").leader()
        assert (leader.value, leader.token) == (b"one", first.token)
        second = start(campaign, other, b"two")
        eventually(lambda: values(client) == [b"one", b"two"])
        third = start(campaign, client, b"three")
        eventually(lambda: values(other) == [b"one", b"two", b"three"])
        assert first.state is GrantState.HELD
        assert not second.done()
        assert first.resign()
        term = second.result(BOUND)
        assert term.token > first.token
        assert leading(client) == b"two"
        assert term.release()
        with third.result(BOUND) as last:
            assert last.token > term.token
            assert values(other) == [b"three"]
        assert leading(client) is None

    def test_who_gives_no_value_is_known_by_host_and_process(self, client: Any) -> None:
        with client.election("e", timeout=BOUND).campaign() as term:
            assert re.fullmatch(rb".+:\d+", term.value)
            assert leading(client) == term.value

    def test_a_leader_that_is_evicted_hears_of_it(self, client: Any, other: Any) -> None:
        term = campaign(client, b"one")
        other.admin.evict_all("e")
        eventually(lambda: term.lost.is_set())
        with pytest.raises(LockLost):
            term.publish(b"still me")
        with campaign(other, b"two"):
            assert leading(client) == b"two"
        assert term.resign() is False

    # Publishing

    def test_a_leader_is_known_by_what_it_publishes(
        self, client: Any, other: Any, start: Start
    ) -> None:
        with campaign(client, b"one") as term:
            waiting = start(campaign, other, b"two")
            eventually(lambda: values(client) == [b"one", b"two"])
            token = term.token
            for value in (b"", bytes(range(256)), b"x" * 65_536, b"new"):
                term.publish(value)
                leader = other.election("e").leader()
                assert (leader.value, leader.token) == (value, token)
                assert term.value == value
            assert not waiting.done()
        with pytest.raises(LockLost):
            term.publish(b"late")
        with waiting.result(BOUND):
            assert leading(client) == b"two"

    def test_what_is_no_value_is_refused(self, client: Any) -> None:
        owner = b'{"host": "h", "pid": 1, "label": "", "since": 1.0}'
        for wrong, error, text in (
            ("text", TypeError, "encode it"),
            (b"x" * 65_537, ValueError, "65536"),
            (owner, ValueError, "host, pid, label and since"),
        ):
            with pytest.raises(error, match=text):
                client.election("e", wrong)
            with pytest.raises(error, match=text):
                client.election("e").campaign(wrong, timeout=0)
        with campaign(client) as term:
            with pytest.raises(ValueError, match="host, pid"):
                term.publish(owner)
            assert leading(client) == b"me"
        assert values(client) == []

    # Observing

    def test_an_observer_sees_the_terms_in_their_order(
        self, client: Any, other: Any, start: Start
    ) -> None:
        with other.election("e").observe() as leaders:
            assert leaders.next(BOUND) is None
            first = campaign(client, b"one")
            leader = leaders.next(BOUND)
            assert (leader.value, leader.token) == (b"one", first.token)
            second = start(campaign, client, b"two")
            eventually(lambda: values(other) == [b"one", b"two"])
            first.publish(b"uno")
            again = leaders.next(BOUND)
            assert (again.id, again.value) == (leader.id, b"uno")
            first.resign()
            term = second.result(BOUND)
            leader = leaders.next(BOUND)
            assert (leader.value, leader.token) == (b"two", term.token)
            assert leaders.state == leader
            term.resign()
            assert leaders.next(BOUND) is None

    # Running

    def test_run_leads_again_after_a_loss_and_ends_when_it_is_cancelled(
        self, client: Any, other: Any, start: Start
    ) -> None:
        stop, body = Cancellation(), Body()
        election = client.election("e", b"runner")
        running = start(election.run, body.of(client), cancellation=stop)
        eventually(lambda: len(body.terms) == 1)
        assert leading(other) == b"runner"
        assert election.is_healthy()
        other.admin.evict_all("e")
        eventually(lambda: len(body.terms) == 2)
        assert leading(other) == b"runner"
        stop.cancel()
        assert not running.done()
        body.stop.set()
        running.result(BOUND)
        assert body.most == 1
        assert body.terms[0].token < body.terms[1].token
        eventually(lambda: values(other) == [])

    def test_run_passes_the_lead_on_when_its_body_returns(
        self, client: Any, other: Any, start: Start
    ) -> None:
        stop, bodies = Cancellation(), (Body(), Body())
        for body in bodies:
            body.stop.set()
        runs = [
            start(one.election("e").run, body.of(one), cancellation=stop)
            for one, body in zip((client, other), bodies, strict=True)
        ]
        eventually(lambda: all(len(body.terms) >= 3 for body in bodies))
        stop.cancel()
        for one in runs:
            one.result(BOUND)
        eventually(lambda: values(client) == [])

    def test_run_resigns_before_it_raises_what_its_body_raised(
        self, client: Any, other: Any, start: Start
    ) -> None:
        seen: list[bytes | None] = []

        def fail(term: Any) -> None:
            seen.append(term.value)
            raise ZeroDivisionError

        async def fail_async(term: Any) -> None:
            fail(term)

        run = client.election("e", b"fails").run
        with pytest.raises(ZeroDivisionError):
            run(fail_async if hasattr(client, "_portal") else fail)
        assert seen == [b"fails"]
        assert leading(other) is None
