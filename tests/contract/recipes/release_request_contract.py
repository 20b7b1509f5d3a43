"""What requests to release promise on every backend that keeps data, sync and async.

Subclass `ReleaseRequestContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

from typing import Any

import pytest

from coordlock import GrantState
from coordlock.testing.client_suite import BOUND, ClientSuite, Start
from coordlock.testing.waiting import eventually

__all__ = ["ReleaseRequestContract"]


class ReleaseRequestContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("data",)

    def test_a_holder_hears_that_it_is_asked_and_why(
        self, client: Any, other: Any, start: Start
    ) -> None:
        with client.lock("a") as grant:
            called: list[Any] = []
            grant.on_release_requested(called.append)
            assert not grant.release_requested.is_set()
            waiting = start(grant.release_requested.wait)
            [asked] = other.admin.request_release("a", "a deployment waits: é")
            assert asked.token == grant.token
            assert waiting.result(BOUND) is True
            assert grant.release_requested.is_set()
            assert grant.release_requested.reason == "a deployment waits: é"
            eventually(lambda: len(called) == 1)
            # A word, and no more.
            grant.check()
            assert grant.state is GrantState.HELD

    def test_a_request_that_came_before_is_heard(self, client: Any, other: Any) -> None:
        with client.lock("a") as grant:
            other.admin.request_release("a")
            eventually(lambda: grant.release_requested.is_set())
            assert grant.release_requested.reason == ""
            called: list[Any] = []
            grant.on_release_requested(called.append)
            eventually(lambda: len(called) == 1)

    def test_the_next_holder_is_not_asked(self, client: Any, other: Any, start: Start) -> None:
        with client.lock("a") as grant:
            called: list[Any] = []
            waiting = start(other.lock("a").acquire, BOUND)
            eventually(lambda: len(client.admin.contenders("a")) == 2)
            assert len(other.admin.request_release("a", "now")) == 1
            eventually(lambda: grant.release_requested.is_set())
        with waiting.result(BOUND) as later:
            later.on_release_requested(called.append)
            assert not later.release_requested.is_set()
            other.admin.request_release("a", "again")
            eventually(lambda: later.release_requested.reason == "again")
            eventually(lambda: len(called) == 1)
        assert grant.release_requested.reason == "now"

    def test_one_of_several_holders_can_be_asked_alone(self, client: Any, other: Any) -> None:
        with client.read_lock("a") as one, other.read_lock("a") as two:
            listening = [grant.release_requested.is_set() for grant in (one, two)]
            assert listening == [False, False]
            [_, second] = client.admin.contenders("a")
            [asked] = client.admin.request_release("a", "you", contender=second)
            assert asked.contender == second.contender
            eventually(lambda: two.release_requested.reason == "you")
            assert not one.release_requested.is_set()
            assert len(client.admin.request_release("a", "all")) == 2
            eventually(lambda: one.release_requested.reason == "all")
            assert two.release_requested.reason == "you"  # the first one counts

    def test_a_holder_is_asked_that_has_changed_since_it_was_listed(
        self, client: Any, other: Any
    ) -> None:
        with (
            client.upgradeable_lock("c") as converted,
            client.election("e", b"one").campaign() as term,
            client.group("g").join(b"one") as member,
        ):
            listed = {name: other.admin.contenders(name)[0] for name in "ceg"}
            converted.upgrade()
            term.publish(b"two")
            member.publish(b"two")
            for name, grant in zip("ceg", (converted, term, member), strict=True):
                assert len(other.admin.request_release(name, name, contender=listed[name])) == 1
                assert grant.release_requested.wait() is True
                assert grant.release_requested.reason == name

    def test_all_holders_of_a_semaphore_are_asked_at_once(self, client: Any, other: Any) -> None:
        reason = "\N{GRINNING FACE}" * 1000
        permits = [client.semaphore("s", 100).acquire() for _ in range(100)]
        assert len(other.admin.request_release("s", reason)) == 100
        eventually(
            lambda: permits[0].release_requested.is_set() and permits[-1].release_requested.is_set()
        )
        assert permits[0].release_requested.reason == permits[-1].release_requested.reason == reason
        for permit in permits:
            permit.release()

    def test_where_nobody_holds_nobody_is_asked(self, client: Any, other: Any) -> None:
        assert client.admin.request_release("a", "anybody") == ()
        with other.lock("a"):
            [gone] = client.admin.contenders("a")
        assert client.admin.request_release("a", contender=gone) == ()

    def test_the_end_of_a_grant_ends_the_wait_for_a_request(
        self, client: Any, other: Any, start: Start
    ) -> None:
        grant = client.lock("a").acquire()
        waiting = start(grant.release_requested.wait)
        called: list[Any] = []
        grant.on_release_requested(called.append)
        grant.release()
        assert waiting.result(BOUND) is False
        assert not grant.release_requested.is_set()
        evicted = client.lock("a").acquire()
        other.admin.evict_all("a")
        assert evicted.release_requested.wait() is False
        assert called == []

    def test_grants_of_every_kind_can_be_asked(self, client: Any, other: Any) -> None:
        with (
            client.multi_lock(["a", "b"]) as both,
            client.semaphore("s", 2) as permit,
            client.election("e").campaign() as term,
            client.group("g").join(b"") as member,
        ):
            for name, grant in (("b", both), ("s", permit), ("e", term), ("g", member)):
                assert not grant.release_requested.is_set()
                assert len(other.admin.request_release(name, f"for {name}")) == 1
                assert grant.release_requested.wait() is True
                assert grant.release_requested.reason == f"for {name}"

    def test_what_is_no_reason_is_refused(self, client: Any) -> None:
        with pytest.raises(TypeError, match="text"):
            client.admin.request_release("a", 3)
        with pytest.raises(ValueError, match="1000"):
            client.admin.request_release("a", "x" * 1001)
