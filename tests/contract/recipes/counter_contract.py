"""What counters and latches promise on every backend that keeps data, sync and async.

And that what they and others keep is found by its name.

Subclass `CounterContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from coordlock.backend import Put
from coordlock.errors import NameConflict, WaitTimeout
from coordlock.testing.client_suite import BOUND, ClientSuite, Start
from coordlock.testing.waiting import eventually
from coordlock.types import Record

__all__ = ["CounterContract"]


class CounterContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("data",)

    @pytest.fixture
    def name(self) -> str:
        """A name that no other test uses: records stay."""
        return f"t-{uuid.uuid4().hex[:12]}"

    # Counters

    def test_a_counter_adds_up(self, client: Any, other: Any, name: str) -> None:
        assert client.counter(name).get() == 0
        assert client.counter(name).add() == 1
        assert other.counter(name).add(41) == 42
        assert client.counter(name).add(-50) == -8
        assert client.counter(name).add(0) == other.counter(name).get() == -8
        assert client.counter(name).add(2**70) == 2**70 - 8
        assert other.counter(f"{name} x").get() == 0

    def test_each_addition_gives_a_number_of_its_own(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        def work(one: Any) -> list[int]:
            return [one.counter(name).add() for _ in range(10)]

        working = [start(work, one) for one in (client, other, client, other)]
        numbers = [number for one in working for number in one.result(BOUND)]
        assert sorted(numbers) == list(range(1, 41))
        assert client.counter(name).get() == 40

    def test_an_observer_of_a_counter_sees_the_newest(
        self, client: Any, other: Any, name: str
    ) -> None:
        with other.counter(name).observe() as numbers:
            assert numbers.next(BOUND) == 0
            for number in (1, 2, 3):
                client.counter(name).add()
                assert numbers.next(BOUND) == numbers.state == number

    def test_what_is_no_number_is_not_added(self, client: Any, name: str) -> None:
        for wrong in (1.0, "1", None, True):
            with pytest.raises(TypeError, match="int"):
                client.counter(name).add(wrong)
        assert client.counter(name).get() == 0

    # Latches

    def test_a_latch_opens_for_all_and_for_good_when_it_was_counted_down(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        waiting = [start(one.latch(name, 3).wait, BOUND) for one in (client, other, client)]
        assert client.latch(name, 3).remaining() == 3
        assert client.latch(name, 3).count_down() == 2
        assert other.latch(name, 3).count_down() == 1
        assert other.latch(name, 3).remaining() == 1
        assert not any(one.done() for one in waiting)
        assert client.latch(name, 3).count_down() == 0
        for one in waiting:
            one.result(BOUND)
        assert client.latch(name, 3).count_down() == other.latch(name, 3).remaining() == 0
        for timeout in (None, 0, BOUND):
            other.latch(name, 3).wait(timeout)

    @pytest.mark.parametrize("timeout", [0, 0.2])
    def test_whoever_waits_for_a_latch_in_vain_hears_how_far_it_is(
        self, client: Any, name: str, timeout: float
    ) -> None:
        latch = client.latch(name, 3)
        with client.counter(name).observe() as numbers:
            numbers.next(BOUND)  # there is a connection, and an answer comes in time
        latch.count_down()
        with pytest.raises(WaitTimeout, match=r"latch .* counted down 1 of 3 times") as caught:
            latch.wait(timeout)
        error = caught.value
        assert (error.kind, error.name) == ("latch", name)
        assert error.waited >= timeout

    def test_clients_that_disagree_on_the_count_hear_of_it(
        self, client: Any, other: Any, name: str
    ) -> None:
        client.latch(name, 3).count_down()
        wrong = other.latch(name, 2)
        for call in (wrong.count_down, wrong.remaining, wrong.wait):
            with pytest.raises(NameConflict, match="latch of 3, so it can't be a latch of 2"):
                call()
        assert client.latch(name, 3).remaining() == 2

    def test_a_count_that_cannot_be_is_refused(self, client: Any, name: str) -> None:
        for wrong in (0, -1, 1.0, "1", True, 2**31):
            with pytest.raises(ValueError, match="count"):
                client.latch(name, wrong)

    # What is kept

    def test_what_is_kept_is_told_by_name_and_kind(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        assert client.admin.records(name) == ()
        client.counter(name).add(42)
        client.latch(name, 3).count_down()
        client.gate(name).shut()
        for passing in [start(client.barrier(name, 1).wait, BOUND) for _ in range(2)]:
            passing.result(BOUND)
        client.work_queue(name).put(b"an item")
        client.work_queue(f"{name}/é").put(b"later", delay=60)
        mine = (
            Record(name, "barrier", {"generations": 2}),
            Record(name, "counter", {"number": 42}),
            Record(name, "gate", {"open": False}),
            Record(name, "latch", {"remaining": 2, "count": 3}),
            Record(name, "work queue", {}),
        )
        assert other.admin.records(name) == mine
        beside = Record(f"{name}/é", "work queue", {})
        found = other.admin.records()
        assert [one for one in found if one.name.startswith(name)] == [*mine, beside]

    def test_who_only_looks_at_a_name_keeps_nothing_there(self, client: Any, name: str) -> None:
        assert client.counter(name).get() == 0
        assert client.gate(name).is_open()
        assert client.latch(name, 2).remaining() == 2
        assert client.work_queue(name).try_take() is None
        assert client.work_queue(name).depth() == 0
        assert client.admin.records(name) == ()

    def test_what_was_deleted_begins_anew(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        client.counter(name).add(42)
        for left in (1, 0):
            assert client.latch(name, 2).count_down() == left
        client.gate(name).shut()
        start(client.barrier(name, 1).wait, BOUND).result(BOUND)
        queue = client.work_queue(name)
        queue.put(b"an item")
        grant = client.lock(name).acquire(BOUND)
        assert other.admin.request_release(name, "please")
        grant.release()
        eventually(lambda: not client.admin.contenders(name))
        kinds = [one.kind for one in other.admin.records(name)]
        assert len(kinds) == 6
        for kind in ("gate", "work queue"):
            with pytest.raises(NameConflict):
                other.admin.delete(name, kind)
        client.gate(name).open()
        queue.purge()
        for kind in kinds:
            assert other.admin.delete(name, kind)
            assert not other.admin.delete(name, kind)
        assert other.admin.records(name) == ()
        assert client.counter(name).add() == 1
        assert client.latch(name, 3).count_down() == 2
        assert client.gate(name).is_open()
        queue.put(b"another")
        item = other.work_queue(name).take(BOUND)
        assert item.data == b"another"
        item.ack()
        kinds = [one.kind for one in other.admin.records(name)]
        assert kinds == ["counter", "latch", "work queue"]

    @pytest.mark.parametrize(
        "data", [b"42", b'{"format":1,"value":1e999,"last":[]}', b"[" * 100_000]
    )
    def test_what_another_program_has_written_is_kept_without_a_state(
        self, client: Any, name: str, data: bytes
    ) -> None:
        engine = client._access.engine
        engine.backend.write([Put(f"{engine.data_root}/@counters/{name}", data)]).result(BOUND)
        assert client.admin.records(name) == (Record(name, "counter", None),)

    def test_what_another_program_has_written_under_a_name_that_none_can_have_is_not_kept(
        self, client: Any, name: str
    ) -> None:
        engine = client._access.engine
        key = f"{engine.data_root}/@counters/{name}{'n' * 255}"
        engine.backend.write([Put(key, b"")]).result(BOUND)
        assert not [one for one in client.admin.records() if one.name.startswith(name)]
