"""The command group, and how its commands end."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final

from coordlock.cli.completion import SHELLS, complete, is_asked, script
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain, joined, killed_by, report
from coordlock.cli.options import service_options
from coordlock.cli.parser import Aborted, Group, Lost, Parser, Refused, UsageError, one_of
from coordlock.cli.signals import ENDING, Interrupted, ReaderGone, interruptible
from coordlock.cli.text import echo
from coordlock.runtime.log import mute

__all__ = ["COMMANDS", "parser", "run_app"]


#: With the first lines of their helps. Most used first.
COMMANDS: Final = {
    "run": "Hold the lock NAME while COMMAND runs.",
    "hold": "Hold the lock NAME until stdin closes or a signal comes.",
    "ls": "List the locks that are in use.",
    "show": "Show who holds the lock NAME, and who waits for it.",
    "break": "Evict the holder of the lock NAME.",
    "elect": "Campaign in the election NAME, and run COMMAND while leading.",
    "leader": "Show who leads in the election NAME.",
    "group": "Join groups, and see who is in them.",
    "queue": "Put and take items of work queues.",
    "jobs": "List jobs, check them, show their slots, and let slots start again.",
    "value": "Read, change and follow values, such as a configuration.",
    "counter": "Add to counters, and read them.",
    "gate": "Shut and open gates, and wait at them.",
    "latch": "Count latches down, and wait until they are open.",
    "delete": "Delete what is kept under NAMEs.",
    "deadlocks": "Show clients that wait for each other in a cycle.",
    "doctor": "Check the configuration, the service, a lock and data.",
    "demo": "Watch processes share a ledger: one crashes, one freezes.",
}


def _load(name: str) -> Parser:
    """Import a command when it is called: ``run`` starts what others wait for."""
    module = "break_" if name == "break" else name  # a word of Python's
    make: Callable[[], Parser] = import_module(f"coordlock.cli.commands.{module}").parser
    return make()


def _coordlock(*, service: Service, version: bool, completion: str | None) -> int:
    """Distributed locks for the shell.

      coordlock run nightly ./migrate.sh    hold a lock while a command runs
      coordlock ls                          which locks are in use
      coordlock doctor                      is everything in order

    The service comes from --url, before or after the command, from COORDLOCK_URL, coordlock.toml or
    pyproject.toml; without any of them the locks cover this machine.
    """
    if version:
        from importlib.metadata import version as version_of

        echo(f"coordlock {version_of('coordlock')}")
    elif completion is not None:
        echo(script(completion), end="")
    else:
        echo(parser().format_help(), end="", err=True)
        return Exit.USAGE
    return Exit.OK


class _Coordlock(Group):
    def passed_on(
        self,
        arguments: dict[str, object],
        words: Sequence[str],
        name: str,
        inherited: Mapping[str, object],
    ) -> Mapping[str, object]:
        """The service."""
        return {option: arguments[option] for option in ("url", "connect_timeout")}


def parser() -> Group:
    """The parser of the whole command line."""
    group = _Coordlock(
        "coordlock",
        _coordlock,
        usage="[OPTIONS] [COMMAND] [ARGS]...",
        commands=COMMANDS,
        load=_load,
    )
    service_options(group)
    group.flag("--version", help="Show the version and exit.")
    group.option(
        "--completion",
        type=one_of(SHELLS),
        metavar="SHELL",
        help="Print what bash, zsh or fish needs to complete commands and names of locks.",
    )
    return group.finished()


def run_app() -> int:
    """Run the command that ``sys.argv`` names; its exit status."""
    _open_standard_files()
    interruptible()
    # The library's warnings are for programs; a command tells what matters in a line of its own.
    mute()
    try:
        status = _run()
    finally:
        # Nothing is left that a second Ctrl-C could spoil.
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
    return status


def _open_standard_files() -> None:
    """Occupy the standard descriptors that the caller closed, or a pipe of ours would be stdin.

    The command finds them closed again. Here they are an empty input, and output that is dropped,
    where Python has left None.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names and labels are others', and may be what this terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")


def _run() -> int:
    group = parser()
    if is_asked():
        complete(group)
    try:
        return group.call(sys.argv[1:], {})
    except SystemExit as end:  # of --help
        return end.code if isinstance(end.code, int) else Exit.OK
    except Interrupted as interrupted:
        return killed_by(interrupted.number)
    except Refused as refused:
        return refused.status
    except Lost:
        return Exit.LOST
    except UsageError as error:
        help_ = f"see `{error.command} --help`" if error.command else ""
        complain(joined(error, help_) if help_ else error)
        return Exit.USAGE
    except Aborted:
        complain("aborted")
        return Exit.FAILED
    except (BrokenPipeError, ReaderGone):
        _give_up_output()
        return Exit.FAILED  # quietly: the reader of the output has enough
    except Exception as error:
        status = report(error)
        _give_up_output()
        return status


def _give_up_output() -> None:
    """Drop what could not be written, or the interpreter tries again at its exit, and fails."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
