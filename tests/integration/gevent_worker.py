"""An application of gevent's: `python -m gevent.monkey`, this file, and a URL.

It fails if one of its greenlets stops the others, and ends by itself otherwise. The lock "outside"
is held by another process, which lets it go when it reads "waiting".
"""

from __future__ import annotations

import faulthandler
import sys
from contextlib import ExitStack

import gevent
import pytest
from gevent import monkey

import coordlock
from coordlock.testing.client_suite import error_of

#: Some other greenlet's steps, during which a waiter must not be alone.
STEPS = 20


class Others:
    """The other greenlets of the application."""

    def __init__(self) -> None:
        self.steps = 0
        gevent.spawn(self._run)

    def _run(self) -> None:
        while True:
            gevent.sleep(0.01)
            self.steps += 1

    def go_on(self) -> None:
        """Wait until they have gone on for a while."""
        until = self.steps + STEPS
        while self.steps < until:
            gevent.sleep(0.01)


def contend(clients: list[coordlock.Client], crowd: int) -> None:
    """All are granted the lock, one at a time, in the order of the queue."""
    tokens: list[int] = []
    inside = 0

    def work(client: coordlock.Client) -> None:
        nonlocal inside
        with client.lock("orders", timeout=120) as grant:
            inside += 1
            assert inside == 1
            tokens.append(grant.token)
            gevent.sleep(0.001)
            grant.check()
            inside -= 1

    jobs = [gevent.spawn(work, clients[number % len(clients)]) for number in range(crowd)]
    gevent.joinall(jobs, raise_error=True)
    assert len(tokens) == crowd
    assert tokens == sorted(tokens)


def wait(one: coordlock.Client, other: coordlock.Client, others: Others) -> None:
    """Who waits stops nobody, gives up in time, and is told."""
    holding = one.lock("stock").acquire()
    assert other.lock("stock").try_acquire() is None
    error_of(lambda: other.lock("stock").acquire(timeout=0.2), coordlock.AcquireTimeout)
    waiting = gevent.spawn(other.lock("stock").acquire, 120)
    others.go_on()
    assert not waiting.ready()
    assert holding.release()
    assert waiting.get().release()


def lose(one: coordlock.Client, other: coordlock.Client, others: Others) -> None:
    """Who loses a lock is told: by the signal, the callback and the check."""
    grant, told = one.lock("bills").acquire(), list[coordlock.Grant]()
    grant.on_lost(told.append)
    waiting = gevent.spawn(grant.lost.wait)
    others.go_on()
    [standing] = other.admin.contenders("bills")
    assert other.admin.evict(standing)
    assert waiting.get()
    while not told:
        gevent.sleep(0.01)
    with pytest.raises(coordlock.LockLost):
        grant.check()


def wait_in_a_circle(one: coordlock.Client, other: coordlock.Client, others: Others) -> None:
    """One of two gives up, and the search stops nobody."""
    ends: list[str] = []
    held = 0

    def work(client: coordlock.Client, first: str, second: str) -> None:
        nonlocal held
        with client.lock(first, timeout=120):
            held += 1
            while held < 2:
                gevent.sleep(0.01)
            try:
                with client.lock(second, timeout=120):
                    ends.append("both")
            except coordlock.DeadlockDetected:
                ends.append("victim")

    jobs = [gevent.spawn(work, one, "left", "right"), gevent.spawn(work, other, "right", "left")]
    others.go_on()
    gevent.joinall(jobs, raise_error=True)
    assert sorted(ends) == ["both", "victim"]


def outside(client: coordlock.Client, others: Others) -> None:
    """The lock of another process comes, and nobody is stopped meanwhile."""
    waiting = gevent.spawn(client.lock("outside").acquire, 120)
    others.go_on()
    assert not waiting.ready()
    print("waiting", flush=True)
    assert waiting.get().release()


def main(url: str) -> None:
    assert monkey.is_module_patched("threading")
    faulthandler.dump_traceback_later(240, exit=True)  # native: it runs whatever stands still
    others = Others()
    with ExitStack() as stack:

        def connect() -> coordlock.Client:
            return stack.enter_context(coordlock.connect(url))

        one, other = connect(), connect()
        contend([one, other], 2)
        contend([one], 2)
        contend([one, other], 50)
        wait(one, other, others)
        lose(one, other, others)
        wait_in_a_circle(one, other, others)
        if not url.startswith("memory"):
            outside(one, others)
        # More than gevent's pool has threads.
        contend([one, other, *(connect() for _ in range(10))], 24)
    print("closed", flush=True)


main(sys.argv[1])
