"""The command line: ``coordlock run NAME -- COMMAND`` and the tools around it."""

from __future__ import annotations

import gc
import signal
import sys
from importlib.util import find_spec

__all__ = ["main"]


def main() -> int:
    """Run the command line on ``sys.argv``; its exit status.

    The entry point of the console script. Importing it needs no extra; using it needs ``cli``.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while the rest is loaded
    # What is loaded stays until the end: not to be looked through for garbage, then neither.
    gc.set_threshold(50_000)
    # Only found: a command that shows no table does not import rich.
    if missing := [name for name in ("click", "rich") if find_spec(name) is None]:
        sys.stderr.write(
            f"coordlock: the command line needs {missing[0]}; "
            "install it with: pip install 'coordlock[cli]'\n"
        )
        return 78
    from coordlock.cli.app import run_app

    try:
        return run_app()
    finally:
        gc.freeze()
