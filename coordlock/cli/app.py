"""Running the command that a command line names, and how it ends."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Any

from coordlock.cli.command_table import COMMANDS, below
from coordlock.cli.completion import complete, is_asked
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain, joined, killed_by, report
from coordlock.cli.parser import (
    SERVICE,
    Aborted,
    HelpAsked,
    Lost,
    Refused,
    UsageError,
    did_you_mean,
)
from coordlock.cli.signals import ENDING, Interrupted, ReaderGone, end_with_reader, interruptible
from coordlock.cli.text import echo
from coordlock.runtime.log import mute

__all__ = ["run_app"]


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


def _call(words: list[str]) -> int:
    """Do what ``words`` say; the exit status."""
    command = COMMANDS[""]
    service: dict[str, Any] = dict.fromkeys(option.dest for option in SERVICE)
    while True:
        try:
            values, rest = command.read(words)
        except HelpAsked:
            echo(command.help(below(command)), end="")
            return Exit.OK
        service |= {name: value for name in service if (value := values.pop(name)) is not None}
        if not (commands := below(command)) or not rest:
            break
        name, *words = rest
        if any(
            values.get(option.dest, option.default) != option.default for option in command.options
        ):
            command.error(f"write the options of {name} after it")
        if (path := f"{command.path} {name}".lstrip()) not in COMMANDS:
            known = [one.path.rpartition(" ")[2] for one in commands]
            near = did_you_mean(name, known) or f"there are {', '.join(known)}"
            command.error(f"no such command: {name}; {near}")
        command = COMMANDS[path]
    if not callable(do := command.subject):
        echo(command.help(commands), end="", err=True)
        return Exit.USAGE
    if command.runs_command:
        if not rest and not command.rest.endswith("]"):
            command.error(f"there is no COMMAND: {command.path} NAME [OPTIONS] -- COMMAND")
        values["command"] = tuple(rest)
    if values.get("follow"):
        end_with_reader()
    return do(service=Service(**service), **values) or Exit.OK


def _run() -> int:
    if is_asked():
        complete(COMMANDS[""], below)
    try:
        return _call(sys.argv[1:])
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
