"""The command line: ``coordlock run NAME -- COMMAND`` and the tools around it."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

# Type checkers take this name for true; an import of `typing` takes longer than the lock.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main", "script"]


def main() -> int:
    """Run the command line on ``sys.argv``; its exit status.

    It needs no extra but for completion in the shell.
    """
    if sys.platform == "win32":
        sys.stderr.write(
            "coordlock: the command line needs a POSIX system; on Windows, programs can use "
            "coordlock with every service but local files\n"
        )
        return 78
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while the rest is loaded
    # What is loaded stays until the end: not to be looked through for garbage.
    gc.set_threshold(50_000)
    from coordlock.cli.app import run_app

    return run_app()


def script() -> NoReturn:
    """`main` as a process: the entry point of the console script.

    The process ends there, after what is to be done at the exit, such as closing clients. Python
    would then take apart what it holds, which takes longer than the lock.
    """
    status = main()
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except (OSError, ValueError):
            status = status or 74
    os._exit(status)
