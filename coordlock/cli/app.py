"""The command group, and how its commands end."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from typing import Final

import click

from coordlock.cli.exits import Exit, complain, joined, killed_by, report
from coordlock.cli.options import connect_timeout_option, url_option
from coordlock.cli.signals import ENDING, Interrupted, interruptible

__all__ = ["run_app"]


#: Most used first.
_COMMANDS: Final = ("run", "hold", "ls", "show", "break", "doctor", "demo")


class _Commands(click.Group):
    """Imports a command when it is asked for: ``run`` starts what others wait for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In that order, instead of the alphabet's."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        command: click.Command | None = None
        match cmd_name:
            case "run":
                from coordlock.cli.run import run

                command = run
            case "hold":
                from coordlock.cli.hold import hold

                command = hold
            case "ls" | "show" | "break":
                from coordlock.cli import queue

                command = {"ls": queue.ls, "show": queue.show, "break": queue.break_}[cmd_name]
            case "doctor":
                from coordlock.cli.doctor import doctor

                command = doctor
            case "demo":
                from coordlock.cli.demo.command import demo

                command = demo
        return command


# The control character keeps click from filling the paragraph.
_HELP: Final = """Distributed locks for the shell.

\b
coordlock run nightly -- ./migrate.sh    hold a lock while a command runs
coordlock ls                             which locks are in use
coordlock doctor                         is everything in order

The service comes from --url, before or after the command, from COORDLOCK_URL, coordlock.toml or
pyproject.toml; without any of them the locks cover this machine.
"""


@click.group(
    cls=_Commands,
    help=_HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="coordlock", message="%(prog)s %(version)s")
@url_option
@connect_timeout_option
@click.pass_context
def coordlock(context: click.Context, url: str | None, connect_timeout: float | None) -> None:
    """The command line; without a command its help, as an error."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(Exit.USAGE)


def run_app() -> int:
    """Run the command that ``sys.argv`` names; its exit status."""
    _open_standard_files()
    interruptible()
    # The library's warnings are for programs; a command tells what matters in a line of its own.
    logging.getLogger("coordlock").propagate = False
    logging.getLogger("coordlock").addHandler(logging.NullHandler())
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
    try:
        result = coordlock.main(prog_name="coordlock", standalone_mode=False)
        # A command returns its status; click returns that of an early exit, and ends by itself,
        # quietly and with 1, when the reader of the output has enough.
        return result if isinstance(result, int) else Exit.OK
    except Interrupted as interrupted:
        return killed_by(interrupted.number)
    except click.UsageError as error:
        message = error.format_message()
        help_ = f"see `{error.ctx.command_path} --help`" if error.ctx else ""
        complain(joined(message, help_) if help_ else message.rstrip("."))
        return Exit.USAGE
    except click.Abort:
        complain("aborted")
        return Exit.FAILED
    except click.ClickException as error:
        complain(error.format_message())
        return Exit.FAILED
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
