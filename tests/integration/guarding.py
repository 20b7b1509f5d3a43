"""A process that uses a `FileFence`: its arguments are a command, the directory, and more.

``guard TOKEN`` says that it is inside, and ends its block when a line comes on stdin. ``fork
TOKEN`` leaves a child behind in the block, which leaves it by itself when a line comes; the parent
never does. ``race FIRST STEP TIMES`` raises the integer in a file, under a new token each time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from coordlock.errors import StaleToken
from coordlock.fencing.files import FileFence

RESOURCE = "alice"


def say(*words: object) -> None:
    print(*words, flush=True)


def guard(directory: str, token: str) -> None:
    try:
        with FileFence(directory).guard(RESOURCE, int(token)):
            say("inside")
            sys.stdin.readline()
    except StaleToken as stale:
        say("refused", stale.token, stale.newest)
    except KeyboardInterrupt:
        say("interrupted", len(os.listdir("/proc/self/fd")))
    else:
        say("outside")
    sys.stdin.readline()


def fork(directory: str, token: str) -> None:
    with FileFence(directory).guard(RESOURCE, int(token)):
        child = os.fork()
        if child:
            say(child)
            signal.pause()
        sys.stdin.readline()
    say("the child is outside")
    signal.pause()


def race(directory: str, file: str, first: str, step: str, times: str) -> None:
    fence, integer = FileFence(directory), Path(file)
    acknowledged = 0
    for number in range(int(times)):
        token = int(first) + number * int(step)
        try:
            with fence.guard(RESOURCE, token):
                value = int(integer.read_text() or 0)
            with fence.guard(RESOURCE, token):
                integer.write_text(str(value + 1))
        except StaleToken:
            continue
        acknowledged += 1
    say(acknowledged)


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"guard": guard, "fork": fork, "race": race}
    commands[sys.argv[1]](*sys.argv[2:])
