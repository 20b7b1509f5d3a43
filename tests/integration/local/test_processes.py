"""Processes that hold, wait, fork, stop and die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from coordlock_local.slots import Slot

import coordlock
from coordlock.errors import BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Snapshot
from coordlock.runtime.promise import Promise
from coordlock.testing.waiting import eventually
from tests.integration.local.conftest import BOUND, OWNER, Party, Worker


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_places_of_the_dead_are_free_again_those_of_the_evicted_too(
    party: Callable[..., Party], worker: Callable[..., Worker]
) -> None:
    one = party()
    one.enqueue()
    holders = [worker("hold", "q") for _ in range(3)]
    for holder in holders:
        holder.line()
    [_, second, *_] = one.backend.snapshot("q").result(BOUND).contenders
    assert one.backend.evict(second).result(BOUND)
    for holder in holders:
        holder.end()
    two = party()  # sweeps
    assert [Slot.of(two.enqueue()[1]).number for _ in range(3)] == [1, 2, 3]


def test_a_stopped_holder_keeps_the_lock(
    party: Callable[..., Party], worker: Callable[..., Worker]
) -> None:
    holder = worker("hold", "q")
    holder.line()
    one = party()
    _, me, snapshot = one.enqueue()
    [ahead] = snapshot.before(me)
    told = one.departure(ahead)
    holder.signal(signal.SIGSTOP)
    os.waitpid(holder.pid, os.WUNTRACED)
    assert one.backend.snapshot("q", me).result(BOUND).before(me) == (ahead,)
    assert not told.wait(1.5)  # longer than the interval at which everybody is looked at
    holder.signal(signal.SIGKILL)
    assert told.wait(BOUND)


def test_twenty_waiting_processes_are_served_in_order_and_sleep_meanwhile(
    party: Callable[..., Party], worker: Callable[..., Worker]
) -> None:
    one = party()
    entry, _, _ = one.enqueue()
    waiters = [worker("wait", "q") for _ in range(20)]
    tokens = {int(waiter.line()): waiter for waiter in waiters}
    before = sum(_processor_seconds(waiter.pid) for waiter in waiters)
    time.sleep(3)  # not to synchronize but to measure
    used = sum(_processor_seconds(waiter.pid) for waiter in waiters) - before
    print(f"20 waiters used {used / 3:.1%} of one processor")
    assert used < 0.4
    one.backend.withdraw([entry]).result(BOUND)
    moments = [float(tokens[token].line().split()[1]) for token in sorted(tokens)]
    assert moments == sorted(moments)
    print(f"a handoff took {(moments[-1] - moments[0]) / 19 * 1000:.2f} ms on average")
    eventually(lambda: one.ids() == [])


def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(
    party: Callable[..., Party], worker: Callable[..., Worker]
) -> None:
    one = party()
    parent = worker("fork", "q")
    _, child = parent.line().split()
    try:
        assert parent.line().startswith("enqueued")  # a client of its own works in the child
        [holder] = one.backend.snapshot("q").result(BOUND).contenders
        told = one.departure(holder)
        assert not told.is_set()
        parent.signal(signal.SIGKILL)
        assert told.wait(BOUND)
        os.kill(int(child), 0)  # it lives
        assert one.ids() == []
        assert len(one.ids("another")) == 1
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)


def test_a_process_stopped_inside_the_counter_is_named_and_nobody_blocks(
    party: Callable[..., Party], worker: Callable[..., Worker]
) -> None:
    one = party(request_timeout=0.5)
    entry, _, _ = one.enqueue()
    stopped = worker("stop")
    assert stopped.line() == "inside"
    os.waitpid(stopped.pid, os.WUNTRACED)

    late = Entry("q", "f" * 32, Mode.EX, OWNER)

    requests: list[Promise[tuple[Snapshot, ...]]] = []

    def goes_on_elsewhere() -> bool:
        began = time.monotonic()
        requests.append(one.backend.enqueue([late]))
        return time.monotonic() - began < 0.5

    eventually(goes_on_elsewhere)
    with pytest.raises(BackendUnavailable, match=f"process {stopped.pid} keeps .*counter locked"):
        requests[-1].result(BOUND)
    # Who is in the queue can be seen and can leave.
    assert one.ids() == [entry.id]
    assert one.backend.withdraw([entry]).result(0) is True

    future = one.backend.enqueue([late])
    stopped.signal(signal.SIGCONT)
    [snapshot] = future.result(BOUND)
    assert snapshot.find(late.id) is not None
    assert one.ids() == [late.id]


PERMIT = """
import sys, coordlock
import coordlock_local.listening

coordlock_local.listening._INTERVAL_S = 300.0  # so that only a message wakes it in time
with coordlock.connect(sys.argv[1]) as client, client.semaphore("s", permits=3).acquire():
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""


def test_a_release_reaches_a_waiter_behind_a_holder_that_has_died(tmp_path: Path) -> None:
    url = f"local://{tmp_path}/state?request_timeout=30s"
    with ExitStack() as stack, coordlock.connect(url) as client:

        def started(size: int) -> subprocess.Popen[str]:
            command, pipe = [sys.executable, "-c", PERMIT, url], subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            eventually(lambda: len(client.admin.contenders("s")) == size, within=BOUND)
            return process

        first, dies, *others = (started(size + 1) for size in range(5))
        dies.kill()
        dies.wait(BOUND)
        for process in (first, *others[:2]):
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
        assert first.stdin is not None
        first.stdin.write("\n")
        first.stdin.flush()
        assert others[2].stdout is not None
        assert others[2].stdout.readline() == "held\n"
