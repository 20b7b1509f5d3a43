"""``coordlock demo``: what a lock does when a process crashes or freezes, and what a fence does."""

from __future__ import annotations

from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit
from coordlock.cli.stage import Run, Worker, staged
from coordlock.cli.text import coloured, echo

__all__ = ["demo", "split_brain"]


def demo(*, ttl: str, service: Service) -> int:
    """Watch processes share a ledger: one crashes, one freezes.

    Each worker raises the balance of a shared file, under one lock. One is killed while it holds
    the lock. Another is frozen until somebody else has the lock, wakes up, and writes: the ledger
    refuses its stale token. The exit status is 0 if the ledger has every update once.
    """
    with staged(service, ttl) as stage:
        echo(f"Three processes share a ledger under one lock, at {stage.settings}.")
        run = Run(stage)
        one, two, three = (Worker(run, f"worker-{number}") for number in (1, 2, 3))
        one.do("acquire")
        for number, worker in enumerate((two, three), 2):
            worker.order("acquire")
            run.wait_for_queue(number)
            worker.tell("waits for the lock")
        one.do("read", "write", "release")
        echo("A crash: a worker is killed while it holds the lock.")
        two.told()
        two.do("read")
        two.kill()
        three.told(", after the crash")
        echo("A freeze: a worker stands still while it holds the lock.")
        three.do("read")
        three.freeze()
        one.order("acquire")
        run.evict_frozen(three)
        one.told(", after the freeze")
        one.do("read", "write", "release")
        three.thaw()
        three.do("write", "release", "acquire", "read", "write", "release")
        if run.verdict() or not run.refused:
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
    with staged(service, ttl) as stage:
        echo(f"One story, twice at the same time, at {stage.settings}.")
        without, fenced = Run(stage, "without", is_fenced=False), Run(stage, "with")
        pairs = [(run, Worker(run, "A"), Worker(run, "B")) for run in (without, fenced)]
        for _, a, _ in pairs:
            a.do("acquire", "read")
            a.freeze()
        for run, a, b in pairs:
            b.order("acquire")
            run.evict_frozen(a)
        for _, _, b in pairs:
            b.told(", after the freeze")
            b.do("read", "write", "release")
        for _, a, _ in pairs:
            a.thaw()
            a.do("write", "release")
        pairs[1][1].do("acquire", "read", "write", "release")
        is_corrupt, is_wrong = bool(without.verdict()), bool(fenced.verdict())
        if is_wrong or not is_corrupt or (without.refused, fenced.refused) != (0, 1):
            return Exit.FAILED
        echo(coloured("The same stale write, twice: only the fence kept a ledger right.", "green"))
        return Exit.OK
