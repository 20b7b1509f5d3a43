"""A process that campaigns for good, and says when it led: ``python candidate.py URL VALUE``.

It prints ``TOKEN SECONDS`` for each moment at which it acted as the leader: of the monotonic clock,
which all processes of a machine share, read before the check that the term goes on.
"""

from __future__ import annotations

import sys
import time

import coordlock


def lead(term: coordlock.Term) -> None:
    while True:
        now = time.monotonic()
        term.check()
        print(term.token, now, flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    with coordlock.connect(sys.argv[1]) as client:
        client.election("leader", sys.argv[2].encode()).run(lead)
