"""Processes that compute in rounds, of which one is killed and replaced.

Run it as it is: they meet on this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection

import coordlock

ROUNDS = 5


def compute(name: str, first: int, reports: Connection) -> None:
    """Take part in the rounds from the ``first`` on."""
    with coordlock.connect(ttl=5) as client:
        barrier = client.barrier(name, 3)
        for number in range(first, ROUNDS):
            reports.send(number)
            barrier.wait(timeout=60)


def main() -> None:
    name = f"rounds-{os.getpid()}"
    context = multiprocessing.get_context("spawn")
    # Not a queue, whose lock would stay taken if its owner was killed.
    reports, reporting = context.Pipe(duplex=False)

    def start(first: int) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=compute, args=(name, first, reporting))
        process.start()
        return process

    def report() -> int:
        assert reports.poll(60)
        number: int = reports.recv()
        return number

    workers = [start(0), start(0)]
    reached = [report() for _ in workers]
    assert reached == [0, 0]  # they wait for the third
    killed = workers.pop()
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    with coordlock.connect() as client:
        while len(client.admin.contenders(name)) > 1:
            time.sleep(0.05)  # the service has not noticed yet
    workers += [start(0), start(0)]
    reached = [report() for _ in range(2 + 3 * (ROUNDS - 1))]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert reached == sorted(reached)
    print(f"{ROUNDS} rounds, each begun by all, though one process was killed and replaced")


if __name__ == "__main__":
    main()
