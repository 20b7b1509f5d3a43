"""Looking again and again, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from coordlock.cli.signals import Interrupted
from coordlock.cli.text import can_redraw, echo

__all__ = ["poll"]

T = TypeVar("T")

#: Seconds from one look to the next.
_INTERVAL: Final = 1.0


def poll(
    look: Callable[[], T],
    show: Callable[[T], None],
    *,
    essence: Callable[[T], object],
    redraw: bool,
) -> NoReturn:
    """Look every second, and show what has changed; never returns.

    A terminal is drawn anew each time, if ``redraw`` says so, ages included. Elsewhere a look is
    shown when its ``essence`` differs from the last one's.
    """
    redraw = redraw and can_redraw(sys.stdout)
    last: object = None
    is_first = True
    try:
        while True:
            found = look()
            if redraw:
                echo("\x1b[2J\x1b[1;1H", end="")
                echo(f"every {_INTERVAL:g} s, now {time.strftime('%H:%M:%S')}; Ctrl-C ends")
                show(found)
            elif is_first or essence(found) != last:
                show(found)
            last, is_first = essence(found), False
            time.sleep(_INTERVAL)
    except Interrupted:
        if redraw:
            echo()  # the terminal shows ^C in this line
        raise
