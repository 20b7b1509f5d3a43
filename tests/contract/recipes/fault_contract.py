"""What clients promise on every backend though answers are lost, links are cut or processes die.

The services under virtual time are in ``tests/simulation``; here are the real ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest

import coordlock
from coordlock.errors import AlreadyFailed, Evicted, WaitUnavailable
from coordlock.testing.backend_contract import Party
from coordlock.testing.disturbed_suite import DisturbedSuite
from coordlock.testing.waiting import eventually
from coordlock.types import Convertible, VersionedValue

__all__ = ["FaultContract", "KillContract"]

#: No answer takes longer on a healthy service, however loaded the machine is.
BOUND: Final = 60.0

Start = Callable[..., Future[Any]]
Connect = Callable[..., coordlock.Client]


def held_and_awaited(
    holder: coordlock.Client, waiter: coordlock.Client, start: Start
) -> tuple[coordlock.Grant, Future[Any]]:
    """A lock that the first client holds and the second waits for: the grant, and the wait."""
    holding = holder.lock("q").acquire()
    waiting = start(waiter.lock("q").acquire, BOUND)
    eventually(lambda: length(waiter) == 2)
    return holding, waiting


def length(client: coordlock.Client, name: str = "q") -> int:
    return len(client.admin.contenders(name))


class Disturbed(Party):
    """A client in a network that fails on demand."""

    def __init__(self, client: coordlock.Client) -> None:
        self.client = client
        self.backend = client._access.engine.backend


class FaultContract(DisturbedSuite):
    """``mine`` is disturbed, ``other`` is not."""

    needs = ("ordered", "publishing", "data")

    @pytest.fixture
    def start(self) -> Iterator[Start]:
        with ThreadPoolExecutor(4) as pool:
            yield pool.submit

    @pytest.fixture
    def mine(self, start: Start, connect: Connect) -> coordlock.Client:
        """It is closed before the threads of ``start`` are waited for."""
        client = connect()
        client.lock("warm").acquire().release()
        return client

    @pytest.fixture
    def other(self, connect: Connect) -> coordlock.Client:
        return connect()

    # An answer is lost

    def test_an_acquire_whose_answer_was_lost_has_one_contender(
        self, mine: coordlock.Client, other: coordlock.Client
    ) -> None:
        self.lose_reply(Disturbed(mine), "enqueue")
        grant = mine.lock("q").acquire(BOUND)
        assert [one.token for one in other.admin.contenders("q")] == [grant.token]
        assert grant.release()
        assert length(other) == 0

    def test_a_release_whose_answer_was_lost_is_a_release(
        self, mine: coordlock.Client, other: coordlock.Client
    ) -> None:
        grant = mine.lock("q").acquire(BOUND)
        self.lose_reply(Disturbed(mine), "withdraw")
        grant.release()
        eventually(lambda: length(other) == 0)

    def test_an_addition_whose_answer_was_lost_is_made_once(
        self, mine: coordlock.Client, other: coordlock.Client
    ) -> None:
        name = f"t-{uuid.uuid4().hex[:12]}"
        self.lose_reply(Disturbed(mine), "write")
        assert mine.counter(name).add() == 1
        assert other.counter(name).add() == 2
        assert other.latch(name, 2).count_down() == 1
        assert mine.latch(name, 2).remaining() == 1

    def test_a_write_whose_answer_was_lost_is_made_once_and_its_outcome_unknown(
        self, mine: coordlock.Client, other: coordlock.Client
    ) -> None:
        key = f"/t-{uuid.uuid4().hex[:12]}/key"
        self.lose_reply(Disturbed(mine), "write")
        with pytest.raises(coordlock.BackendUnavailable, match="may have been made"):
            mine.value(key).set(b"once")
        assert other.value(key).get() == VersionedValue(b"once", 1)

    def test_an_upgrade_whose_answer_was_lost_is_made_once(
        self, mine: coordlock.Client, other: coordlock.Client
    ) -> None:
        with mine.upgradeable_lock("q") as grant:
            self.lose_reply(Disturbed(mine), "publish")
            grant.upgrade(BOUND)
            [standing] = other.admin.contenders("q")
            assert standing.contender.claim == Convertible(coordlock.Mode.EX)
            grant.check()

    # The link is cut

    def test_a_caller_that_gives_up_while_it_is_cut_off_leaves_no_contender(
        self, mine: coordlock.Client, other: coordlock.Client
    ) -> None:
        self.needs_network()
        with self.cut_off(Disturbed(mine)), pytest.raises(WaitUnavailable, match="unavailable"):
            mine.lock("q").acquire(timeout=1)
        with other.lock("q", timeout=BOUND):
            eventually(lambda: length(other) == 1)

    def test_a_release_while_it_is_cut_off_is_made_up_for(
        self, mine: coordlock.Client, other: coordlock.Client
    ) -> None:
        self.needs_network()
        grant = mine.lock("q").acquire(BOUND)
        with self.cut_off(Disturbed(mine)):
            grant.release(timeout=0.5)
        eventually(lambda: length(other) == 0)

    def test_a_waiter_sees_a_departure_that_happened_while_it_was_cut_off(
        self, mine: coordlock.Client, other: coordlock.Client, start: Start
    ) -> None:
        self.needs_network()
        holding, waiting = held_and_awaited(other, mine, start)
        with self.cut_off(Disturbed(mine)):
            assert holding.release()
        assert waiting.result(BOUND).release()

    def test_a_waiter_that_was_evicted_while_it_was_cut_off_is_not_granted(
        self, mine: coordlock.Client, other: coordlock.Client, start: Start
    ) -> None:
        self.needs_network()
        holding, waiting = held_and_awaited(other, mine, start)
        with self.cut_off(Disturbed(mine)):
            assert other.admin.evict(other.admin.contenders("q")[1])
            assert holding.release()
        try:
            grant = waiting.result(BOUND)
        except Evicted:
            return
        # It did not yet know that it was queued, and so stood in the queue anew.
        assert grant.token > holding.token
        assert [one.token for one in other.admin.contenders("q")] == [grant.token]

    def test_a_holder_that_is_cut_off_stops_before_the_next_one_starts(
        self, start: Start, connect: Connect, other: coordlock.Client
    ) -> None:
        if not self.backend.capabilities.leased:
            # No lease can run out here; the service itself says so by its capabilities.
            pytest.skip("a session lives as long as its process")
        mine = connect(ttl=2, request_timeout=1)
        holding, waiting = held_and_awaited(mine, other, start)
        with self.cut_off(Disturbed(mine)):
            grant = waiting.result(BOUND)
            assert holding.state is coordlock.GrantState.LOST
            with pytest.raises(coordlock.LockLost):
                holding.check()
            with pytest.raises(WaitUnavailable):
                mine.lock("q").acquire(timeout=0.3)
            assert grant.token > holding.token
        assert holding.release() is False
        assert grant.release()
        assert mine.lock("q").acquire(BOUND).token > grant.token

    def test_an_observer_says_that_it_is_stale_and_is_up_to_date_again_by_itself(
        self, mine: coordlock.Client, other: coordlock.Client
    ) -> None:
        folder = f"/t-{uuid.uuid4().hex[:12]}"
        other.value(f"{folder}/a").set(b"1")
        with mine.values(folder).observe() as views:
            eventually(lambda: views.next(BOUND).values)
            with self.cut_off(Disturbed(mine)):
                eventually(lambda: views.stale_for is not None)
                other.transaction().delete(f"{folder}/a").put(f"{folder}/b", b"2").commit()
            view = views.next(BOUND)
            assert view.values == view.added == {f"{folder}/b": VersionedValue(b"2", 1)}
            assert view.removed == {f"{folder}/a": VersionedValue(b"1", 1)}
            eventually(lambda: views.stale_for is None)

    def needs_network(self) -> None:
        """`cut_off` of files stops what is followed, and no request."""
        if self.backend.capabilities.reach == "machine":
            # Not a missing server: clients of files have no connection to cut.
            pytest.skip("there is no network")


#: What a process does with its first argument's client, until it is killed.
PROGRAMS: Final = {
    "wait": "client.lock('q').acquire()",
    "hold several": "client.multi_lock(['q', 'r', 's']).acquire(); print('holds', flush=True)",
    "convert": (
        "grant = client.upgradeable_lock('q').acquire(); print('reads', flush=True);grant.upgrade()"
    ),
    "wait at a barrier": "client.barrier('q', 3).wait()",
    "enter": "client.double_barrier('q', 2).enter(); print('inside', flush=True)",
    "add": "while True: print(client.counter('q').add(), flush=True)",
    "look": (
        "grant = client.lock('q').acquire(); print(grant.token, flush=True);"
        "sys.stdin.readline(); print(grant.state.name, flush=True)"
    ),
    "take": (
        "item = client.work_queue('w').take(); print('takes', flush=True); sys.stdin.readline()\n"
        "try: item.ack()\n"
        "except coordlock.LockLost: print('late', flush=True)"
    ),
    "run": "client.job('j', policy={!r}).run(1).__enter__(); print('begins', flush=True)",
}

#: Runs a program of these, again where its session was lost.
PERSISTENT: Final = """
import sys, coordlock
client = coordlock.connect(sys.argv[1])
while True:
    try:
        exec(sys.argv[2])
    except coordlock.SessionLost:
        continue
    sys.stdin.read()
"""


class KillContract:
    """Processes that are killed, or stand still, in the middle of something."""

    backend: type[Any]
    needs = ("ordered", "sets", "publishing", "data")

    @pytest.fixture
    def client(self, url: str) -> Iterator[coordlock.Client]:
        if self.backend.capabilities.reach == "process":
            # In memory there is one process, and killing that would end the test.
            pytest.skip("no other process reaches this service")
        with coordlock.connect(url) as client:
            yield client

    @contextmanager
    def process(self, url: str, program: str) -> Iterator[subprocess.Popen[str]]:
        """A process that runs it; killed in the end. Its session outlives it by two seconds.

        Where a stall of the machine has ended its session, the process begins again.
        """
        if self.backend.capabilities.leased:
            url += ("&" if "?" in url else "?") + "ttl=2s"
        with subprocess.Popen(
            [sys.executable, "-c", PERSISTENT, url, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @staticmethod
    def line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def test_a_waiter_that_was_killed_is_passed_over(
        self, client: coordlock.Client, url: str
    ) -> None:
        holding = client.lock("q").acquire()
        with self.process(url, PROGRAMS["wait"]) as waiter:
            eventually(lambda: length(client) == 2)
            waiter.kill()
            holding.release()
            assert client.lock("q").acquire(BOUND).release()

    def test_what_a_killed_process_held_goes_together(
        self, client: coordlock.Client, url: str
    ) -> None:
        with self.process(url, PROGRAMS["hold several"]) as holder:
            assert self.line(holder) == "holds"
            holder.kill()
            assert client.multi_lock(["s", "r", "q"]).acquire(BOUND).release()

    def test_a_process_that_is_killed_while_it_converts_keeps_nobody_out(
        self, client: coordlock.Client, url: str
    ) -> None:
        reader = client.read_lock("q").acquire()
        with self.process(url, PROGRAMS["convert"]) as converting:
            assert self.line(converting) == "reads"

            def converts() -> bool:
                claims = [one.contender.claim for one in client.admin.contenders("q")]
                return any(isinstance(one, Convertible) and one.target for one in claims)

            eventually(converts)
            converting.kill()
            # The first reader holds the lock all the time; in this thread, it would be a deadlock.
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(client.read_lock("q").acquire, BOUND).result().release()
        assert reader.release()

    def test_a_party_that_was_killed_does_not_count(
        self, client: coordlock.Client, url: str
    ) -> None:
        with self.process(url, PROGRAMS["wait at a barrier"]) as party:
            eventually(lambda: length(client) == 1)
            party.kill()
            eventually(lambda: length(client) == 0)
            with pytest.raises(coordlock.WaitTimeout, match="1 of 3"):
                client.barrier("q", 3).wait(0)

    def test_a_party_that_was_killed_inside_has_left(
        self, client: coordlock.Client, url: str
    ) -> None:
        barrier = client.double_barrier("q", 2)
        with self.process(url, PROGRAMS["enter"]) as party:
            barrier.enter(BOUND)
            assert self.line(party) == "inside"
            party.kill()
            barrier.leave(BOUND)

    def test_processes_that_are_killed_while_they_add_give_no_number_twice(
        self, client: coordlock.Client, url: str
    ) -> None:
        numbers: list[int] = []
        with self.process(url, PROGRAMS["add"]) as one, self.process(url, PROGRAMS["add"]) as two:
            for adder in (one, two):
                numbers += [int(self.line(adder)) for _ in range(5)]
            for adder in (one, two):
                adder.kill()
                assert adder.stdout is not None
                lines = adder.stdout.read().splitlines(keepends=True)
                numbers += [int(line) for line in lines if line.endswith("\n")]
        assert len(set(numbers)) == len(numbers)
        # Each may have added once more, and not said so.
        assert len(numbers) <= client.counter("q").get() <= len(numbers) + 2

    def test_an_item_of_a_killed_worker_is_taken_by_another(
        self, client: coordlock.Client, url: str
    ) -> None:
        queue = client.work_queue("w")
        queue.put(b"one")
        with self.process(url, PROGRAMS["take"]) as worker:
            assert self.line(worker) == "takes"
            [seen] = queue.items()
            assert (seen.state, str(worker.pid) in seen.worker) == ("taken", True)
            worker.kill()
            # Nobody takes anything meanwhile.
            eventually(lambda: queue.stats().waiting == 1, within=BOUND)
            [seen] = queue.items()
            assert (seen.state, seen.failures) == ("waiting", 1)
            with queue.take(BOUND) as item:
                assert (item.data, item.deliveries) == (b"one", 2)

    @pytest.mark.parametrize("policy", ["at-most-once", "at-least-once"])
    def test_a_run_of_a_killed_process_is_made_up_for_as_the_policy_says(
        self, client: coordlock.Client, url: str, policy: Any
    ) -> None:
        job = client.job("j", policy=policy, overlap="queue", timeout=BOUND)
        with self.process(url, PROGRAMS["run"].format(policy)) as process:
            assert self.line(process) == "begins"
            process.kill()
            if policy == "at-least-once":
                with job.run(1) as run:
                    assert run.attempt == 2
            else:
                with pytest.raises(AlreadyFailed), job.run(1):
                    pytest.fail("it was started before")
                eventually(lambda: job.info().slots[0].state == "interrupted", within=BOUND)

    def test_a_worker_that_stood_still_past_its_lease_is_refused(
        self, client: coordlock.Client, url: str
    ) -> None:
        if not self.backend.capabilities.leased:
            # The promise of leases; without them the opposite is promised, and tested for local.
            pytest.skip("a process that stands still is alive, and keeps its items")
        queue = client.work_queue("w")
        queue.put(b"one")
        with self.process(url, PROGRAMS["take"]) as worker:
            assert self.line(worker) == "takes"
            os.kill(worker.pid, signal.SIGSTOP)
            with queue.take(BOUND) as item:
                assert (item.data, item.deliveries) == (b"one", 2)
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
            os.kill(worker.pid, signal.SIGCONT)
            assert self.line(worker) == "late"
        assert queue.stats() == coordlock.types.WorkQueueStats(0, 0, 0, 0)

    def test_a_process_that_stood_still_past_its_lease_knows_as_soon_as_it_looks(
        self, client: coordlock.Client, url: str
    ) -> None:
        if not self.backend.capabilities.leased:
            # The promise of leases; without them the opposite is promised, and tested for local.
            pytest.skip("a process that stands still is alive, and keeps its locks")
        with self.process(url, PROGRAMS["look"]) as process:
            token = int(self.line(process))
            os.kill(process.pid, signal.SIGSTOP)
            grant = client.lock("q").acquire(BOUND)
            assert grant.token > token
            # The line is there before the process runs again: it looks before its threads do.
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            os.kill(process.pid, signal.SIGCONT)
            assert self.line(process) == "LOST"
            grant.check()
