"""Barriers whose parties are processes that are killed, or stopped for longer than they may."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from tests.integration.test_several_locks import BOUND, started

#: Waits at the barrier of three, says when it has its place, and how the wait has ended.
WAITING = """
import sys, threading, coordlock
from coordlock.testing.waiting import eventually
client = coordlock.connect(sys.argv[1])
barrier = client.barrier("start", 3)
def tell():
    eventually(lambda: client.admin.contenders("start"))
    print("waits", flush=True)
threading.Thread(target=tell, daemon=True).start()
try:
    barrier.wait()
except coordlock.CoordlockError as error:
    print(type(error).__name__, flush=True)
else:
    print("passed", flush=True)
"""
#: Enters the double barrier of three, and stays there until stdin ends.
INSIDE = """
import sys, coordlock
barrier = coordlock.connect(sys.argv[1]).double_barrier("work", 3)
barrier.enter()
print("inside", flush=True)
sys.stdin.read()
try:
    barrier.leave()
except coordlock.CoordlockError as error:
    print(type(error).__name__, flush=True)
else:
    print("left", flush=True)
"""
ENDS = pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "paused"])


def lost(url: str, what: signal.Signals) -> str:
    """The URL with a time-to-live after which who stops is lost, where that is so."""
    if what is signal.SIGSTOP and url.startswith("local"):
        pytest.skip("local: a paused process is alive, and keeps its places by design")
    return url.replace("ttl=60", "ttl=2")


@ENDS
def test_a_party_that_stops_while_it_waits_is_not_counted(
    shared_url: str, what: signal.Signals
) -> None:
    url = lost(shared_url, what)
    with coordlock.connect(url) as client, ThreadPoolExecutor(2) as pool:
        with started(WAITING, url) as party:
            assert party.stdout
            assert party.stdout.readline() == "waits\n"
            party.send_signal(what)
            try:
                eventually(lambda: client.admin.contenders("start") == ())
                with pytest.raises(coordlock.WaitTimeout, match="1 of 3"):
                    client.barrier("start", 3).wait(0)
                others = [pool.submit(client.barrier("start", 3).wait, BOUND) for _ in range(2)]
                eventually(lambda: len(client.admin.contenders("start")) == 2)
                if what is signal.SIGSTOP:
                    party.send_signal(signal.SIGCONT)
                    assert party.stdout.readline() == "SessionLost\n"
                assert not any(one.done() for one in others)
                client.barrier("start", 3).wait(BOUND)
                for one in others:
                    one.result(BOUND)
            finally:
                party.kill()
        eventually(lambda: client.admin.contenders("start") == ())


@ENDS
def test_a_party_that_stops_inside_has_left(shared_url: str, what: signal.Signals) -> None:
    url = lost(shared_url, what)
    with coordlock.connect(url) as client, ThreadPoolExecutor(2) as pool:
        with started(INSIDE, url) as party:
            barriers = [client.double_barrier("work", 3) for _ in range(2)]
            entering = [pool.submit(one.enter, BOUND) for one in barriers]
            for one in entering:
                one.result(BOUND)
            assert party.stdout
            assert party.stdout.readline() == "inside\n"
            party.send_signal(what)
            try:
                leaving = [pool.submit(one.leave, BOUND) for one in barriers]
                for one in leaving:
                    one.result(BOUND)
                if what is signal.SIGSTOP:
                    party.send_signal(signal.SIGCONT)
                    output, _ = party.communicate(timeout=BOUND)
                    assert output in ("SessionLost\n", "Evicted\n")
            finally:
                with suppress(ProcessLookupError):
                    party.kill()
        eventually(lambda: client.admin.contenders("work") == ())
