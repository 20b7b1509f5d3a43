"""Count latches down, and wait until they are open.

All clients must give a latch the same COUNT. Counted down COUNT times, it opens for good.
`coordlock show` says how often it is still to be counted down.
"""

from __future__ import annotations

import json

from coordlock.cli.connection import Service
from coordlock.cli.text import echo

__all__ = ["down", "wait"]


def down(*, name: str, count: int, service: Service, as_json: bool) -> None:
    """Count the latch NAME of COUNT down by one.

    Prints how often it must still be counted down: 0 once it is open. coordlock counts it down
    exactly once, even when an answer is lost.
    """
    with service.connected() as client:
        left = client.latch(name, count).count_down()
    document = {"name": name, "count": count, "remaining": left}
    echo(json.dumps(document) if as_json else left)


def wait(*, name: str, count: int, nonblock: bool, timeout: float | None, service: Service) -> None:
    """Wait until the latch NAME was counted down COUNT times.

    The exit status is 75 if it is still closed after --timeout, or at once with -n.
    """
    with service.connected(timeout) as client:
        client.latch(name, count).wait(0 if nonblock else timeout)
