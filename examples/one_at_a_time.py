"""Several processes, one job: each waits its turn, in the order of arrival.

Run it as it is: it uses the locks of this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import multiprocessing
import time

import coordlock


def work(number: int) -> None:
    # Each process connects for itself: a session is never shared with a child.
    client = coordlock.connect(label=f"worker {number}")
    with client, client.lock("job", timeout=60) as grant:
        print(f"worker {number} begins, token {grant.token}", flush=True)
        time.sleep(0.1)
        print(f"worker {number} is done", flush=True)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers)


if __name__ == "__main__":
    main()
