"""A process that runs slot 1 of a job: ``worker URL LOG POLICY [STEP [SIGNAL]]``.

It says in LOG that the work begins, which attempt that is, and how it ended. The work ends when
standard input does. A STEP is that of `tests.integration.work.worker`: the first write records the
start, the second one the end.
"""

from __future__ import annotations

import sys
from typing import Any

import coordlock
from coordlock import BackendUnavailable, JobNotRun, LockLost, SessionLost
from coordlock.errors import Evicted
from tests.integration.work.worker import Log, dying_at

JOB = "nightly"


def work(client: coordlock.Client, log: Log, policy: Any) -> None:
    try:
        with client.job(JOB, policy=policy, overlap="queue", timeout=120).run(1) as run:
            log.say("begins", run.attempt)
            sys.stdin.read()
    except JobNotRun:
        log.say("refused")
    except (LockLost, Evicted, SessionLost, BackendUnavailable):
        log.say("late")
    else:
        log.say("ends")


if __name__ == "__main__":
    url, path, policy, *step = sys.argv[1:]
    with coordlock.connect(url) as client:
        if step:
            dying_at(client, step[0], *map(int, step[1:]))
        work(client, Log(path), policy)
