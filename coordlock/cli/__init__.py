"""The command line: ``coordlock run NAME -- COMMAND`` and the tools around it."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line on ``sys.argv``; its exit status.

    The entry point of the console script. Importing it needs no extra; using it needs ``cli``.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while the rest is loaded
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        sys.stderr.write(
            f"coordlock: the command line needs {error.name}; "
            "install it with: pip install 'coordlock[cli]'\n"
        )
        return 78
    from coordlock.cli.app import run_app

    return run_app()
