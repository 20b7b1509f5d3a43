"""``coordlock run``: a command under a lock."""

from __future__ import annotations

import contextlib
import os

import click

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.completion import complete_command
from coordlock.cli.exits import Exit, complain
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.options import acquire_options, name_argument, seconds
from coordlock.cli.supervision import Supervision
from coordlock.cli.terminal import Terminal

__all__ = ["run"]


class _Run(click.Command):
    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """With the ``--``, which click leaves out."""
        return ["NAME", "[OPTIONS]", "--", "COMMAND..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insist on the ``--``, or an option that is meant for COMMAND could be taken for ours."""
        command = args[args.index("--") + 1 :] if "--" in args else None
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in ("-c", "--command"):  # those of flock(1)
                raise
            raise click.UsageError(
                f"run has no {error.option_name}: for a shell, write -- sh -c 'COMMAND'", ctx
            ) from None
        if not ctx.resilient_parsing and command != list(ctx.params["command"]):
            raise click.UsageError(
                "write -- before the command: run NAME [OPTIONS] -- COMMAND", ctx
            )
        return rest


@click.command(cls=_Run, epilog="Example: coordlock run nightly -w 10m -- ./migrate.sh --fast")
@name_argument
@click.argument(
    "command",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    shell_complete=complete_command,
)
@acquire_options
@click.option(
    "--grace",
    callback=seconds,
    metavar="DURATION",
    default="5s",
    show_default=True,
    help="From SIGTERM to SIGKILL when the lock is lost.",
)
def run(name: str, command: tuple[str, ...], grace: float, **options: object) -> int:
    """Hold the lock NAME while COMMAND runs.

    No shell is involved. COMMAND finds COORDLOCK_NAME, COORDLOCK_TOKEN and COORDLOCK_BACKEND in
    its environment. The exit status is COMMAND's, 128+N if signal N ended it, 75 if the lock was
    not acquired, 79 if it was lost: then COMMAND and what it started are ended first.
    """
    request = LockRequest(name=name, **options)  # type: ignore[arg-type]
    # Before connecting, because that starts threads, and after that no fork is safe.
    child = Child(command)
    with contextlib.closing(child):
        settings = request.settings(label=os.path.basename(command[0]))
        # Closed twice, so that the command has ended before the lock is released.
        with request.acquired(settings) as grant, contextlib.closing(child):
            supervision = Supervision(child, grant, grace, Terminal.open(), request.warn)
            try:
                status = supervision.run(
                    {
                        "COORDLOCK_NAME": name,
                        "COORDLOCK_TOKEN": str(grant.token),
                        "COORDLOCK_BACKEND": settings.scheme,
                    }
                )
            except CommandFailed as error:
                complain(error)
                status = error.status
            released = grant.release(0.5 if supervision.lost else None)
            if supervision.lost:
                return Exit.LOST
            if not released:
                reason = grant.lost.reason
                request.warn(f"{request.what} was lost before the command ended: {reason}")
                return Exit.LOST
            request.say(f"released {request.what}, status {status}")
            return status
