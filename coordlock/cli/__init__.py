"""The command line: ``coordlock run NAME -- COMMAND`` and the tools around it."""

from __future__ import annotations

import gc
import signal

__all__ = ["main"]


def main() -> int:
    """Run the command line on ``sys.argv``; its exit status.

    The entry point of the console script. It needs no extra but for tables on a terminal.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while the rest is loaded
    # What is loaded stays until the end: not to be looked through for garbage, then neither.
    gc.set_threshold(50_000)
    from coordlock.cli.app import run_app

    try:
        return run_app()
    finally:
        gc.freeze()
