"""What groups promise on every backend that publishes values and can be observed, sync and async.

Subclass `GroupContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from coordlock import GrantState, LockLost, WaitTimeout
from coordlock.testing.client_suite import BOUND, ClientSuite, Start
from coordlock.testing.waiting import eventually

__all__ = ["GroupContract"]


def values(client: Any, name: str = "g") -> list[bytes]:
    """What the members of the group publish, in the order in which they joined."""
    return [one.value for one in client.group(name).members()]


class GroupContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("publishing",)

    # Joining and leaving

    def test_members_are_listed_in_the_order_in_which_they_joined(
        self, client: Any, other: Any
    ) -> None:
        assert client.group("g").members() == ()
        with client.group("g").join(b"one") as one, other.group("g", label="second").join(b"two"):
            again = client.group("g").join(bytes(range(256)))
            members = other.group("g").members()
            assert [member.value for member in members] == [b"one", b"two", bytes(range(256))]
            assert members[0].token == one.token < members[1].token < members[2].token
            assert len({member.id for member in members}) == 3
            assert [member.owner.label for member in members] == ["", "second", ""]
            assert again.release()
            assert values(other) == [b"one", b"two"]
        assert values(client) == values(other) == []

    def test_members_keep_nobody_waiting(self, client: Any, other: Any) -> None:
        with client.group("g").join(b"one") as one, other.lock("g", timeout=BOUND):
            assert values(other) == [b"one"]
            with client.group("g").join(b"two"):
                assert values(other) == [b"one", b"two"]
                assert [one.value for one in other.admin.contenders("g")] == [b"one", b"", b"two"]
            one.check()
            assert one.state is GrantState.HELD

    def test_an_evicted_member_hears_of_it(self, client: Any, other: Any) -> None:
        membership = client.group("g").join(b"one")
        other.admin.evict_all("g")
        eventually(lambda: membership.lost.is_set())
        with pytest.raises(LockLost):
            membership.publish(b"two")
        assert membership.release() is False
        assert values(client) == []

    # Values

    def test_a_member_publishes_another_value_in_its_place(self, client: Any, other: Any) -> None:
        with client.group("g").join(b"one") as one, client.group("g").join(b"two"):
            token = one.token
            for value in (b"", b"x" * 65_536, b"last"):
                one.publish(value)
                assert one.value == value
                first, second = other.group("g").members()
                assert (first.value, first.token, second.value) == (value, token, b"two")

    def test_a_value_that_cannot_be_published_is_refused(self, client: Any) -> None:
        group = client.group("g")
        with pytest.raises(TypeError, match="encode it"):
            group.join("text")
        with pytest.raises(ValueError, match="65536"):
            group.join(b"x" * 65_537)
        with group.join(b"one") as one:
            with pytest.raises(TypeError, match="bytes"):
                one.publish(None)
            with pytest.raises(ValueError, match="65536"):
                one.publish(b"x" * 65_537)
            with pytest.raises(AttributeError):  # an assignment cannot wait for the service
                one.value = b"two"
            assert values(client) == [b"one"]
        with pytest.raises(LockLost):
            one.publish(b"two")

    # Observing

    def test_an_observer_sees_who_comes_changes_and_goes(self, client: Any, other: Any) -> None:
        with other.group("g").observe() as views:
            assert views.next(BOUND).members == ()
            first = client.group("g").join(b"one")
            view = views.next(BOUND)
            assert view.values == (b"one",)
            assert view.joined == view.members
            assert view.left == view.changed == ()
            second = client.group("g").join(b"two")
            view = views.next(BOUND)
            assert view.values == (b"one", b"two")
            assert view.joined == view.members[1:]
            first.publish(b"uno")
            view = views.next(BOUND)
            assert view.changed == view.members[:1]
            assert view.joined == view.left == ()
            assert view.values == (b"uno", b"two")
            assert views.state == view
            first.release()
            view = views.next(BOUND)
            assert (view.values, [one.value for one in view.left]) == ((b"two",), [b"uno"])
            second.release()
            assert views.next(BOUND).members == ()

    def test_an_observer_that_is_slow_gets_the_newest_view_and_all_differences(
        self, client: Any, other: Any
    ) -> None:
        with other.group("g").observe() as views:
            assert views.next(BOUND).members == ()
            for number in range(20):
                with client.group("g").join(b"%d" % number):
                    pass
            stays = client.group("g").join(b"stays")
            eventually(lambda: views.state.values == (b"stays",))
            view = views.next(BOUND)
            assert view.values == (b"stays",)
            assert (view.joined, view.left) == (view.members, ())
            stays.release()

    def test_an_observer_with_no_news_waits_as_long_as_it_may(self, client: Any) -> None:
        with client.group("g").observe() as views:
            assert views.next(BOUND).members == ()
            with pytest.raises(WaitTimeout, match=r"group 'g' showed nothing new within 0\.05 s"):
                views.next(0.05)
            with client.group("g").join(b"one"):
                assert views.next(BOUND).values == (b"one",)

    def test_an_observer_is_iterated_until_it_is_closed(
        self, client: Any, other: Any, start: Start
    ) -> None:
        views = other.group("g").observe()
        seen: list[tuple[bytes, ...]] = []

        def follow() -> None:
            seen.extend(view.values for view in views)

        following = start(follow)
        eventually(lambda: seen == [()])
        with client.group("g").join(b"one"):
            eventually(lambda: seen == [(), (b"one",)])
            views.close()
            following.result(BOUND)
        assert seen == [(), (b"one",)]
        assert views.closed
        with pytest.raises(ValueError, match="closed"):
            views.next()
        assert views.stale_for is not None

    def test_a_closed_observer_ends_its_iteration_also_when_the_client_is_closed(
        self, connect: Callable[..., Any]
    ) -> None:
        ending = connect()
        views = ending.group("g").observe()
        assert views.next(BOUND).members == ()
        views.close()
        ending.close()
        assert [view.values for view in views] == []

    def test_nothing_is_followed_for_an_observer_that_was_dropped(self, client: Any) -> None:
        views = client.group("g").observe()
        assert views.next(BOUND).members == ()
        observer = getattr(views, "_target", views)
        observation = observer._observation
        del views, observer

        def is_over() -> bool:
            gc.collect()
            return bool(observation._over)

        eventually(is_over)

    # Staying

    def test_who_stays_is_a_member_again_after_a_loss(self, client: Any, other: Any) -> None:
        with client.group("g").keep_joined(b"one") as presence:
            assert presence.is_member
            [first] = other.group("g").members()
            other.admin.evict_all("g")
            eventually(
                lambda: [one.token > first.token for one in other.group("g").members()] == [True]
            )
            [again] = other.group("g").members()
            assert (again.id, again.value) == (first.id, b"one")
            eventually(lambda: presence.is_member)
        assert values(other) == []
        assert not presence.is_member

    def test_a_grace_that_cannot_be_is_refused(self, client: Any) -> None:
        for wrong in (-1, float("nan"), float("inf"), None, "soon"):
            with pytest.raises(ValueError, match="grace"):
                client.group("g").observe(grace=wrong)
