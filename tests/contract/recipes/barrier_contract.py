"""What gates and barriers promise on every backend that keeps data, sync and async.

Subclass `BarrierContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from coordlock.errors import (
    CoordlockError,
    Evicted,
    NameConflict,
    WaitTimeout,
)
from coordlock.testing.client_suite import BOUND, ClientSuite, Start
from coordlock.testing.waiting import eventually

__all__ = ["BarrierContract"]


class BarrierContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("data", "publishing")

    @pytest.fixture
    def name(self) -> str:
        """A name that no other test uses: records stay."""
        return f"t-{uuid.uuid4().hex[:12]}"

    # Gates

    def test_a_gate_lets_pass_while_it_is_open(self, client: Any, other: Any, name: str) -> None:
        gate = client.gate(name)
        assert gate.is_open()
        gate.wait(0)
        assert gate.open() is False
        assert gate.shut() is True
        assert other.gate(name).shut() is False
        assert not other.gate(name).is_open()
        assert other.gate(name).open() is True
        gate.wait(BOUND)

    def test_whoever_waits_at_a_gate_goes_on_when_it_opens(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        for _ in range(3):
            client.gate(name).shut()
            waiting = [start(one.gate(name).wait, BOUND) for one in (client, other, other)]
            with pytest.raises(WaitTimeout, match=r"gate .* did not open"):
                other.gate(name).wait(0)
            assert not any(one.done() for one in waiting)
            other.gate(name).open()
            for one in waiting:
                one.result(BOUND)

    # Barriers

    def standing(self, client: Any, name: str) -> int:
        """How many stand in the queue."""
        return len(client.admin.contenders(name))

    def test_parties_wait_for_each_other_again_and_again(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        reached = [0, 0, 0]

        def work(me: int, one: Any) -> None:
            barrier = one.barrier(name, 3)
            for number in range(1, 11):
                reached[me] = number
                barrier.wait(BOUND)
                # The others are here or in the next round, never behind.
                assert set(reached) <= {number, number + 1}

        working = [start(work, me, one) for me, one in enumerate((client, other, client))]
        for one in working:
            one.result(2 * BOUND)
        assert reached == [10, 10, 10]
        eventually(lambda: self.standing(client, name) == 0)

    def test_a_single_party_waits_for_nobody(self, client: Any, name: str) -> None:
        for timeout in (None, 0, BOUND):
            client.barrier(name, 1).wait(timeout)

    # A stall of the machine may outlast a second before the party is there.
    @pytest.mark.parametrize(("timeout", "there"), [(0, "2"), (1, "[12]")])
    def test_a_party_that_waits_in_vain_hears_how_many_were_there_and_leaves(
        self, client: Any, other: Any, name: str, start: Start, timeout: float, there: str
    ) -> None:
        waiting = start(other.barrier(name, 3).wait, BOUND)
        eventually(lambda: self.standing(client, name) == 1)
        with pytest.raises(WaitTimeout, match=f"was reached by {there} of 3 parties"):
            client.barrier(name, 3).wait(timeout)
        eventually(lambda: self.standing(client, name) == 1)
        again = start(client.barrier(name, 3).wait, BOUND)
        client.barrier(name, 3).wait(BOUND)
        again.result(BOUND)
        waiting.result(BOUND)

    def test_a_party_without_time_passes_where_the_others_are_there(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        waiting = start(other.barrier(name, 2).wait, BOUND)
        eventually(lambda: self.standing(client, name) == 1)
        client.barrier(name, 2).wait(0)
        waiting.result(BOUND)

    def test_an_evicted_party_does_not_count(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        waiting = start(client.barrier(name, 2).wait, BOUND)
        eventually(lambda: self.standing(other, name) == 1)
        other.admin.evict_all(name)
        with pytest.raises(Evicted):
            waiting.result(BOUND)
        with pytest.raises(WaitTimeout, match="1 of 2"):
            other.barrier(name, 2).wait(0)

    def test_parties_that_disagree_hear_of_it(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        waiting = start(client.barrier(name, 2).wait, BOUND)
        eventually(lambda: self.standing(other, name) == 1)
        with pytest.raises(NameConflict, match=r"a barrier of 2 .* be a barrier of 3"):
            other.barrier(name, 3).wait(BOUND)
        with pytest.raises(NameConflict, match="be a double barrier of 2"):
            other.double_barrier(name, 2).enter(BOUND)
        eventually(lambda: self.standing(other, name) == 1)  # it leaves in the background
        other.barrier(name, 2).wait(BOUND)
        waiting.result(BOUND)
        for group, value in ((f"{name} g", b"member"), (f"{name} h", b"[" * 50_000)):
            client.group(group).join(value)
            with pytest.raises(NameConflict, match="something else"):
                other.barrier(group, 2).wait(BOUND)

    def test_short_waits_at_a_barrier_that_was_used_often_end_as_at_a_new_one(
        self, client: Any, name: str
    ) -> None:
        for _ in range(300):
            client.barrier(name, 1).wait(BOUND)
        # Some end before the first look at the record, which no longer lists the first trips.
        for number in range(20):
            with pytest.raises(CoordlockError) as caught:
                client.barrier(name, 2).wait(0.0003 * 1.3**number)
            assert "unknown" not in str(caught.value)
        with pytest.raises(WaitTimeout, match="1 of 2"):
            client.barrier(name, 2).wait(0.5)

    def test_a_number_of_parties_that_cannot_be_is_refused(self, client: Any, name: str) -> None:
        for make in (client.barrier, client.double_barrier):
            for wrong in (0, 101, -1, 1.0, "2", True):
                with pytest.raises(ValueError, match="from 1 to 100"):
                    make(name, wrong)

    def test_as_many_parties_as_there_may_be_pass(self, client: Any, name: str) -> None:
        with ThreadPoolExecutor(100) as pool:
            waiting = [pool.submit(client.barrier(name, 100).wait, 4 * BOUND) for _ in range(100)]
            for one in waiting:
                one.result(4 * BOUND)
        eventually(lambda: self.standing(client, name) == 0)

    # Double barriers

    def test_parties_enter_and_leave_together(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        inside: list[int] = []
        left: list[int] = []

        def are_in(number: int) -> bool:
            return len(inside) >= 3 * (number + 1)

        def work(me: int, one: Any) -> None:
            for number in range(3):
                with one.double_barrier(name, 3, timeout=BOUND):
                    inside.append(me)
                    eventually(partial(are_in, number))
                    left.append(me)
                assert len(left) >= 3 * (number + 1)

        working = [start(work, me, one) for me, one in enumerate((client, other, client))]
        for one in working:
            one.result(2 * BOUND)
        assert sorted(inside) == sorted(left) == sorted([0, 1, 2] * 3)
        assert self.standing(client, name) == 0

    def test_whoever_leaves_first_waits_for_the_others(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        mine, theirs = client.double_barrier(name, 2), other.double_barrier(name, 2)
        entering = start(theirs.enter, BOUND)
        mine.enter(BOUND)
        entering.result(BOUND)
        with pytest.raises(WaitTimeout, match="not left by 1 of 2"):
            mine.leave(0.5)
        theirs.leave(BOUND)
        for one in (mine, theirs):
            with pytest.raises(RuntimeError, match="not entered"):
                one.leave()

    def test_a_double_barrier_in_vain_is_not_entered(self, client: Any, name: str) -> None:
        barrier = client.double_barrier(name, 2, timeout=0)
        with pytest.raises(WaitTimeout, match=r"double barrier .* 1 of 2"):
            barrier.enter()
        with pytest.raises(RuntimeError, match="not entered"):
            barrier.leave()
        assert self.standing(client, name) == 0

    def test_a_body_that_fails_leaves_without_waiting(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        theirs = other.double_barrier(name, 2)
        entering = start(theirs.enter, BOUND)
        with pytest.raises(ZeroDivisionError), client.double_barrier(name, 2, timeout=BOUND):
            entering.result(BOUND)
            raise ZeroDivisionError
        theirs.leave(BOUND)

    def test_a_party_that_was_lost_inside_has_left(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        mine, theirs = client.double_barrier(name, 2), other.double_barrier(name, 2)
        entering = start(theirs.enter, BOUND)
        mine.enter(BOUND)
        with pytest.raises(RuntimeError, match="entered already"):
            mine.enter()
        entering.result(BOUND)
        client.admin.evict_all(name)
        for one in (mine, theirs):
            with pytest.raises(Evicted):
                one.leave(BOUND)
