"""Threads of one client that pass one lock round: ``python -m bench.passing URL THREADS SECONDS``.

Prints the grants per second.
"""

from __future__ import annotations

import sys
import threading
import time

import coordlock

__all__ = ["passing"]


def passing(url: str, threads: int, seconds: float) -> float:
    """The grants per second while ``threads`` of one client acquire and release the same lock."""
    with coordlock.connect(url) as client:
        lock = client.lock("passed")
        grants = [0] * threads
        began = time.perf_counter()

        def work(number: int) -> None:
            while time.perf_counter() < began + seconds:
                with lock:
                    grants[number] += 1

        workers = [threading.Thread(target=work, args=[number]) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(grants) / (time.perf_counter() - began)


if __name__ == "__main__":
    print(passing(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
