"""Ctrl-C at every moment in elections, groups and observers."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

import coordlock
from coordlock import Client, Term
from coordlock.testing.waiting import eventually
from coordlock.types import Membership, Presence
from tests.unit.clients import Service
from tests.unit.signals import moments

every_moment = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
pytestmark = pytest.mark.usefixtures("generators_end_unheard", "sweeps_often")


def test_ctrl_c_in_run_leaves_nobody_who_leads(service: Service, client: Client) -> None:
    def lead(term: Term) -> None:
        raise ZeroDivisionError

    def run() -> None:
        with pytest.raises(ZeroDivisionError):
            client.election("q").run(lead)

    for strike in moments(50):
        strike(run)
        eventually(lambda: service.size("q") == 0)


def test_ctrl_c_while_joining_leaves_no_member(service: Service, client: Client) -> None:
    for strike in moments(30):
        joined: list[Membership] = []
        strike(lambda: joined.append(client.group("q").join(b"1")))  # noqa: B023
        for one in joined:
            one.release()
        eventually(lambda: service.size("q") == 0)


def test_ctrl_c_while_coming_to_stay_leaves_no_member(service: Service, client: Client) -> None:
    for strike in moments(30):
        present: list[Presence] = []
        strike(lambda: present.append(client.group("q").keep_joined(b"1")))  # noqa: B023
        for one in present:
            one.leave()
        eventually(lambda: service.size("q") == 0)


def test_a_producer_that_ctrl_c_struck_goes_on(client: Client) -> None:
    queue = client.work_queue("q")
    for strike in moments(30):
        strike(lambda: queue.put(b"1"))
        queue.put(b"2")


@every_moment
@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_ctrl_c_while_taking_hides_no_item(delay: float, every: int) -> None:
    for strike in moments(50, every=every):
        with coordlock.connect(f"memory://{uuid.uuid4().hex}") as client:
            queue = client.work_queue("q")
            for _ in range(2):
                queue.put(b"1", delay=delay)
            time.sleep(2 * delay)
            items: list[coordlock.Item] = []
            strike(lambda: items.append(queue.take(60)))  # noqa: B023
            while len(items) < 2:
                items.append(queue.take(60))
            assert [one.deliveries for one in items] == [1, 1]
            for one in items:
                one.ack()


@every_moment
def test_an_item_whose_end_ctrl_c_struck_is_taken_again_or_done(every: int) -> None:
    # The first two moments are open for grants of all kinds: nothing knows of the statement yet.
    for strike in moments(30, first=3, every=every):
        with coordlock.connect(f"memory://{uuid.uuid4().hex}") as client:
            queue = client.work_queue("q")
            queue.put(b"1")
            items = [queue.take(60)]

            def work() -> None:
                with items.pop():  # noqa: B023
                    pass

            strike(work)
            while queue.stats() != coordlock.types.WorkQueueStats(0, 0, 0, 0):
                if (again := queue.try_take()) is not None:  # or it is done by now
                    again.ack()


def test_a_leader_that_ctrl_c_struck_while_it_published_can_publish_again(client: Client) -> None:
    for strike in moments(20):
        with client.election("q", b"first").campaign() as term:
            strike(lambda: term.publish(b"second"))
            term.publish(b"third")
            [leader] = client.election("q").candidates()
            assert leader.value == b"third"


def test_who_stays_publishes_the_newest_value_though_ctrl_c_struck_an_update(
    client: Client,
) -> None:
    def values() -> list[bytes]:
        return [one.value for one in client.group("q").members()]

    for strike in moments(5):
        with client.group("q").keep_joined(b"first") as presence:
            strike(lambda: presence.publish(b"second"))
            presence.publish(b"third")
            eventually(lambda: values() == [b"third"])


def test_an_observer_that_ctrl_c_struck_tells_the_present_state(
    client: Client, service: Service
) -> None:
    with service.client() as other:
        for strike in moments(10):
            with client.group("q").observe() as views:
                assert views.next(30).members == ()
                seen: list[Any] = []
                with other.group("q").join(b"one"):
                    came = strike(lambda: seen.append(views.next(30)))  # noqa: B023
                    if came:
                        seen.append(views.next(30))
                    assert seen[0].values == (b"one",)
