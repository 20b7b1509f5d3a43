"""``coordlock hold``: a lock for a script."""

from __future__ import annotations

import contextlib
import json
import os

import click

from coordlock.cli.exits import Exit, killed_by
from coordlock.cli.options import acquire_options, as_json, seconds
from coordlock.cli.signals import ENDING, Inbox
from coordlock.cli.wanted import Wanted
from coordlock.clock import SYSTEM_CLOCK
from coordlock.grant import Grant, GrantState

__all__ = ["hold"]


@click.command(epilog="Example: coordlock hold nightly --for 30s")
@click.argument("name")
@acquire_options
@click.option(
    "--for",
    "duration",
    callback=seconds,
    metavar="DURATION",
    help="Hold it for this long, whatever stdin does.",
)
@as_json
def hold(name: str, duration: float | None, as_json: bool, **options: object) -> int:
    """Hold the lock NAME until stdin closes or a signal comes.

    Prints the fencing token, on a line of its own, as soon as the lock is held. The exit status is
    0, 128+N if signal N ended it, 75 if the lock was not acquired, 79 if it was lost.
    """
    wanted = Wanted(name=name, **options)  # type: ignore[arg-type]
    settings = wanted.settings()
    with wanted.acquired(settings) as grant:
        inbox = Inbox(ENDING)
        line = {"name": name, "token": grant.token, "backend": settings.scheme}
        click.echo(json.dumps(line) if as_json else grant.token)
        number = _wait(grant, inbox, duration)
        if not grant.release():
            wanted.warn(f"lock {name!r} is lost: {grant.lost.reason}")
            return Exit.LOST
        return killed_by(number) if number else Exit.OK


def _wait(grant: Grant, inbox: Inbox, duration: float | None) -> int:
    """Hold until the end, one way or another; the signal that ended it, or 0."""
    grant.on_lost(inbox.ring)
    end = None if duration is None else SYSTEM_CLOCK.now() + duration
    files = () if end is not None else (0,)
    while grant.state is not GrantState.LOST:
        left = None if end is None else max(0.0, end - SYSTEM_CLOCK.now())
        signals, ready = inbox.wait(left, *files)
        if signals:
            return signals[0]
        if left == 0 or (ready and not _read()):
            break
    return 0


def _read() -> bytes:
    """What came on stdin, which nobody needs; empty at its end."""
    with contextlib.suppress(OSError):
        return os.read(0, 65536)
    return b""
