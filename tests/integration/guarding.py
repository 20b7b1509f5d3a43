"""A process that uses a `FileFence`: its arguments are a command, the directory, and more.

``guard TOKEN`` says that it is inside, and ends its block when a line comes on stdin. ``fork
TOKEN`` leaves a child behind in the block, which leaves it by itself when a line comes; the parent
never does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

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


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"guard": guard, "fork": fork}
    commands[sys.argv[1]](*sys.argv[2:])
