"""Work that several processes share, one of which is killed at it: every item is done.

Run it as it is: it uses a work queue of this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import signal

import coordlock


def work(name: str) -> None:
    """Take items until there is one that says to stop."""
    with coordlock.connect(ttl=5) as client:
        queue = client.work_queue(name)
        while True:
            with queue.take() as job:
                item = job.data.decode()
                if item == "stop":
                    return
                if item == "item 3" and job.attempt == 1:
                    print("a worker is killed at", item, flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)
                print(f"{item}, attempt {job.attempt}", flush=True)


def main() -> None:
    name = f"pictures-{os.getpid()}"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(name,)) for _ in range(3)]
    with coordlock.connect() as client:
        queue = client.work_queue(name)
        for number in range(10):
            queue.put(b"item %d" % number)
        for worker in workers:
            worker.start()
        for _ in range(2):  # who is left
            queue.put(b"stop")
        for worker in workers:
            worker.join()
        left = queue.stats()
        print(f"{left.waiting} items wait, {left.taken} are taken")


if __name__ == "__main__":
    main()
