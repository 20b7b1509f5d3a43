"""Ctrl-C at every moment in elections, groups and observers."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

import coordlock
from coordlock import Client, Term
from coordlock.testing.waiting import eventually
from coordlock.types import Membership, Presence
from tests.unit.clients import Service
from tests.unit.signals import interrupted

pytestmark = pytest.mark.usefixtures("generators_end_unheard", "sweeps_often")


def test_ctrl_c_in_run_leaves_nobody_who_leads(service: Service, client: Client) -> None:
    def lead(term: Term) -> None:
        raise ZeroDivisionError

    def run() -> None:
        with pytest.raises(ZeroDivisionError):
            client.election("q").run(lead)

    for number in itertools.count(1):
        came = interrupted(run, number)
        eventually(lambda: service.size("q") == 0)
        if not came:
            break
    assert number > 50


def test_ctrl_c_while_joining_leaves_no_member(service: Service, client: Client) -> None:
    for number in itertools.count(1):
        joined: list[Membership] = []
        came = interrupted(lambda: joined.append(client.group("q").join(b"1")), number)  # noqa: B023
        for one in joined:
            one.release()
        eventually(lambda: service.size("q") == 0)
        if not came:
            break
    assert number > 30


def test_ctrl_c_while_coming_to_stay_leaves_no_member(service: Service, client: Client) -> None:
    for number in itertools.count(1):
        present: list[Presence] = []
        came = interrupted(lambda: present.append(client.group("q").keep_joined(b"1")), number)  # noqa: B023
        for one in present:
            one.leave()
        eventually(lambda: service.size("q") == 0)
        if not came:
            break
    assert number > 30


def test_a_producer_that_ctrl_c_struck_goes_on(client: Client) -> None:
    queue = client.work_queue("q")
    for number in itertools.count(1):
        came = interrupted(lambda: queue.put(b"1"), number)
        queue.put(b"2")
        if not came:
            break
    assert number > 30


@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_ctrl_c_while_taking_hides_no_item(root: str, delay: float) -> None:
    for number in itertools.count(1):
        with coordlock.connect(f"memory://{root}-{number}") as client:
            queue = client.work_queue("q")
            for _ in range(2):
                queue.put(b"1", delay=delay)
            time.sleep(2 * delay)
            items: list[coordlock.Item] = []
            came = interrupted(lambda: items.append(queue.take(5)), number)  # noqa: B023
            while len(items) < 2:
                items.append(queue.take(5))
            assert [one.deliveries for one in items] == [1, 1]
            for one in items:
                one.ack()
        if not came:
            break
    assert number > 50


def test_an_item_whose_end_ctrl_c_struck_is_taken_again_or_done(root: str) -> None:
    # The first two moments are open for grants of all kinds: nothing knows of the statement yet.
    for number in itertools.count(3):
        with coordlock.connect(f"memory://{root}-{number}") as client:
            queue = client.work_queue("q")
            queue.put(b"1")
            items = [queue.take(5)]

            def work() -> None:
                with items.pop():  # noqa: B023
                    pass

            came = interrupted(work, number)
            while queue.stats() != coordlock.types.WorkQueueStats(0, 0, 0, 0):
                if (again := queue.try_take()) is not None:  # or it is done by now
                    again.ack()
        if not came:
            break
    assert number > 30


def test_a_leader_that_ctrl_c_struck_while_it_published_can_publish_again(client: Client) -> None:
    for number in itertools.count(1):
        with client.election("q", b"first").campaign() as term:
            came = interrupted(lambda: term.publish(b"second"), number)
            term.publish(b"third")
            [leader] = client.election("q").candidates()
            assert leader.value == b"third"
        if not came:
            break
    assert number > 20


def test_who_stays_publishes_the_newest_value_though_ctrl_c_struck_an_update(
    client: Client,
) -> None:
    def values() -> list[bytes]:
        return [one.value for one in client.group("q").members()]

    for number in itertools.count(1):
        with client.group("q").keep_joined(b"first") as presence:
            came = interrupted(lambda: presence.publish(b"second"), number)
            presence.publish(b"third")
            eventually(lambda: values() == [b"third"])
        if not came:
            break
    assert number > 5


def test_an_observer_that_ctrl_c_struck_tells_the_present_state(
    client: Client, service: Service
) -> None:
    with service.client() as other:
        for number in itertools.count(1):
            with client.group("q").observe() as views:
                assert views.next(30).members == ()
                seen: list[Any] = []
                with other.group("q").join(b"one"):
                    came = interrupted(lambda: seen.append(views.next(30)), number)  # noqa: B023
                    if came:
                        seen.append(views.next(30))
                    assert seen[0].values == (b"one",)
            if not came:
                break
    assert number > 10
