"""Options that several commands share, and the configuration that they make."""

from __future__ import annotations

import argparse
import signal

from coordlock.cli.completion import complete_mode, complete_name, completed_by
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit
from coordlock.cli.parser import Parser, one_of, whole
from coordlock.model.claim import MAX_PERMITS, Mode
from coordlock.settings import REACHES, duration

__all__ = [
    "acquire_options",
    "grace_option",
    "grant_options",
    "json_option",
    "name_argument",
    "name_arguments",
    "on_ask_option",
    "seconds",
    "service_options",
    "waiting_options",
    "watch_options",
]


def seconds(text: str) -> float:
    """Reads options that are durations: ``15s``, ``500ms``, ``2m`` or a number."""
    try:
        read: float = duration()(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from None
    return read


def service_options(parser: Parser) -> None:
    """Which service, and how long to try; both may also stand before the command."""
    parser.option(
        "--url", metavar="URL", help="The service. Default: COORDLOCK_URL, a file, this machine."
    )
    parser.option(
        "--connect-timeout",
        type=seconds,
        metavar="DURATION",
        help="Fail when there is no connection after this long. Default: 10s.",
    )
    parser.combine("service", Service, "url", "connect_timeout")


def watch_options(parser: Parser) -> None:
    """Which service to look at, again and again or once, and how to show it."""
    service_options(parser)
    parser.flag("--watch", dest="is_watch", help="Look every second, until Ctrl-C.")
    json_option(parser)


def name_argument(parser: Parser) -> None:
    """The name of a lock."""
    completed_by(parser.argument("name", metavar="NAME"), complete_name)


def name_arguments(parser: Parser) -> None:
    """The name of a lock, or the options for several, and for those of trees."""
    completed_by(parser.argument("name", metavar="NAME", nargs="?"), complete_name)
    lock = parser.option(
        *("-l", "--lock"),
        dest="locks",
        metavar="NAME",
        action="append",
        default=[],
        help="One more lock, acquired in the same step. May be repeated.",
    )
    completed_by(lock, complete_name)
    tree = parser.option(
        "--tree",
        dest="trees",
        metavar="PATH",
        action="append",
        default=[],
        help="A subtree of locks, such as eu/orders/42, likewise.",
    )
    completed_by(tree, complete_name)


def json_option(parser: Parser) -> None:
    """JSON for other programs."""
    parser.flag("--json", dest="as_json", help="Print JSON.")


def acquire_options(parser: Parser) -> None:
    """The options of the commands that acquire a lock; named after those of flock(1)."""
    waiting_options(parser)
    parser.flag("-s", "--shared", help="A read lock, shared with other readers.")
    mode = parser.option(
        "--mode",
        type=one_of(tuple(Mode.__members__), upper=True),
        metavar="MODE",
        help="NL, CR, CW, PR, PW or EX, which is the default. PR is --shared.",
    )
    completed_by(mode, complete_mode)
    parser.option(
        "--slots",
        type=whole(1, MAX_PERMITS),
        metavar="N",
        help=f"A semaphore: up to N, 1 to {MAX_PERMITS}, hold it at once.",
    )
    parser.option("--label", metavar="TEXT", help="What queue views show beside host and pid.")
    grant_options(parser)


def waiting_options(parser: Parser) -> None:
    """The service, and how long to wait for a turn."""
    service_options(parser)
    parser.flag("-n", "--nonblock", help="Fail at once when the lock is busy.")
    parser.option(
        *("-w", "--timeout", "--wait"),
        type=seconds,
        metavar="DURATION",
        help="Fail after this long.",
    )


def grant_options(parser: Parser) -> None:
    """What is asked of a grant, and what is told of it."""
    parser.option("--ttl", metavar="DURATION", help="How long the lease outlives its heartbeats.")
    parser.option(
        "--reach",
        type=one_of(REACHES[1:]),
        metavar="REACH",
        help="machine or cluster: refuse locks that reach less far.",
    )
    parser.option(
        *("-E", "--conflict-exit-code"),
        type=whole(0, 255),
        metavar="N",
        default=int(Exit.NOT_ACQUIRED),
        help="The exit status when the lock was not acquired, 0 to 255. Default: 75.",
    )
    parser.flag("-q", "--quiet", help="Don't say that the lock is busy or lost.")
    parser.flag("-v", "--verbose", help="Say what happens.")


def grace_option(parser: Parser) -> None:
    """How a command ends that is to end for its lock."""
    parser.option(
        "--grace",
        type=seconds,
        metavar="DURATION",
        default=5.0,
        help="From SIGTERM to SIGKILL when the lock is lost. Default: 5s.",
    )


def on_ask_option(parser: Parser) -> None:
    """The signal that a command gets when somebody asks for the lock."""
    parser.option(
        "--on-ask",
        type=_signal,
        metavar="SIGNAL",
        help="COMMAND gets it when somebody asks for the lock.",
    )


def _signal(text: str) -> int:
    """Reads the name of a signal, such as TERM, or its number."""
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    try:
        return int(signal.Signals(int(text)) if text.isdigit() else signal.Signals[name])
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is no signal, such as TERM or USR1") from None
