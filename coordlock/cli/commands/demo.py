"""``coordlock demo``: what a lock does when a process crashes or freezes, and what a fence does."""

from __future__ import annotations

from contextlib import ExitStack

from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit
from coordlock.cli.stage import Stage, Worker
from coordlock.cli.text import coloured, echo

__all__ = ["demo", "split_brain"]


def demo(*, ttl: str, service: Service) -> int:
    """Watch processes share a ledger: one crashes, one freezes.

    Each worker raises the balance of a shared file, under one lock. One is killed while it holds
    the lock. Another is frozen until somebody else has the lock, wakes up, and writes: the ledger
    refuses its stale token. The exit status is 0 if the ledger has every update once.
    """
    with ExitStack() as stack:
        stage = Stage(service, ttl, stack)
        echo(f"Three processes share a ledger under one lock, at {stage.settings}.")
        one, two, three = (Worker(stage, f"worker-{number}") for number in (1, 2, 3))
        one.do("acquire")
        for number, worker in enumerate((two, three), 2):
            worker.order("acquire")
            stage.wait_for_queue(number)
            worker.tell("waits for the lock")
        one.do("read", "write", "release")
        echo("A crash: a worker is killed while it holds the lock.")
        two.answered()
        two.do("read")
        two.kill()
        three.answered(", after the crash")
        echo("A freeze: a worker stands still while it holds the lock.")
        three.do("read")
        three.freeze()
        one.order("acquire")
        stage.evict_frozen(three)
        one.answered(", after the freeze")
        one.do("read", "write", "release")
        three.thaw()
        stale = three.do("write")
        three.do("release", "acquire", "read", "write", "release")
        if stage.is_corrupt() or stale != "refused":
            return Exit.FAILED
        echo(coloured("All is well: no update was lost, the stale one was refused.", "green"))
        return Exit.OK


def split_brain(*, ttl: str, service: Service) -> int:
    """Watch a stale write, with and without a fence.

    A takes the lock, reads a balance, and is stopped (SIGSTOP) past its lease. B takes the lock,
    reads and writes. A goes on, and writes what it computed. The story runs twice at the same
    time. The exit status is 0 if the ledger without a fence got corrupt, and the one with a fence
    refused the stale write and lost nothing.
    """
    with ExitStack() as stack:
        without = Stage(service, ttl, stack, "without", is_fenced=False)
        fenced = Stage(service, ttl, stack, "with")
        echo(f"One story, twice at the same time, at {fenced.settings}.")
        pairs = [(stage, Worker(stage, "A"), Worker(stage, "B")) for stage in (without, fenced)]
        for _, a, _ in pairs:
            a.do("acquire", "read")
            a.freeze()
        for stage, a, b in pairs:
            b.order("acquire")
            stage.evict_frozen(a)
        for _, _, b in pairs:
            b.answered(", after the freeze")
            b.do("read", "write", "release")
        stale = []
        for _, a, _ in pairs:
            a.thaw()
            stale.append(a.do("write"))
            a.do("release")
        pairs[1][1].do("acquire", "read", "write", "release")
        is_corrupt, is_wrong = without.is_corrupt(), fenced.is_corrupt()
        if is_wrong or not is_corrupt or stale != ["accepted", "refused"]:
            return Exit.FAILED
        echo(coloured("The same stale write, twice: only the fence kept a ledger right.", "green"))
        return Exit.OK
