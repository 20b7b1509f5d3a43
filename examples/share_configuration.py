"""A fleet of processes that follow a configuration, and never see half of a change.

Run it as it is: it keeps its values on this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.queues import Queue

import coordlock

#: The last version of the configuration, at which a process ends.
LAST = 20


def follow(folder: str, reports: Queue[tuple[int, int]]) -> None:
    """Work by the newest configuration: its host and its password belong together."""
    seen = torn = 0
    with coordlock.connect() as client, client.values(folder).observe() as views:
        for view in views:
            if not view.values:
                reports.put((0, 0))  # it is there
                continue
            host = view.values[f"{folder}/host"].data.removeprefix(b"db")
            password = view.values[f"{folder}/password"].data.removeprefix(b"secret")
            seen += 1
            torn += host != password
            if int(host) == LAST:
                break
    reports.put((seen, torn))


def main() -> None:
    folder = f"/example-{os.getpid()}"
    context = multiprocessing.get_context("spawn")
    reports = context.Queue()
    fleet = [context.Process(target=follow, args=(folder, reports)) for _ in range(4)]
    for process in fleet:
        process.start()
    for _ in fleet:
        reports.get(timeout=60)
    with coordlock.connect() as client:
        for number in range(1, LAST + 1):
            change = client.transaction()
            change.put(f"{folder}/host", b"db%d" % number)
            change.put(f"{folder}/password", b"secret%d" % number)
            change.commit()
        ends = [reports.get(timeout=60) for _ in fleet]
        client.transaction().delete(f"{folder}/host").delete(f"{folder}/password").commit()
    for process in fleet:
        process.join()
    assert all(seen for seen, _ in ends)
    assert not any(torn for _, torn in ends)
    print(f"{len(ends)} processes have come to version {LAST}, and none saw half of a change")


if __name__ == "__main__":
    main()
