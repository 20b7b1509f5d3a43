"""Work that several processes share, one of which is killed at it: every item is done.

Run it as it is: it uses a work queue of this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import coordlock


def work(name: str) -> None:
    """Take items until there is one that says to stop."""
    with coordlock.connect(ttl=5) as client:
        queue = client.work_queue(name)
        for item in queue.consume():
            with item:
                text = item.data.decode()
                if text == "stop":
                    return
                if text == "item 3" and item.deliveries == 1:
                    print("a worker is killed at", text, flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)
                print(f"{text}, delivery {item.deliveries}", flush=True)


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
        while (left := queue.stats()).waiting or left.taken:
            time.sleep(0.1)
        for _ in range(2):  # those that are left
            queue.put(b"stop")
        for worker in workers:
            worker.join()
        left = queue.stats()
        print(f"{left.waiting} items wait, {left.taken} are taken")


if __name__ == "__main__":
    main()
