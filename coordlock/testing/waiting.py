"""Waiting for a condition, the only way in which tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["eventually"]


def eventually(condition: Callable[[], object], what: str = "", *, within: float = 50.0) -> None:
    """Return when ``condition`` gives something true; TimeoutError after ``within`` seconds.

    The bound outlasts what a loaded machine takes. It is below the minute after which the sessions
    of tests expire and some backends read again, so neither can make the condition true.
    """
    deadline = time.monotonic() + within
    pause = 0.001
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within:g} s: {what or condition}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
