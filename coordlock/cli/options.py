"""Options that several commands share, and the configuration that they make."""

from __future__ import annotations

import argparse
import signal

from coordlock.cli.completion import (
    Completer,
    complete_mode,
    complete_name,
    complete_url,
    completed_by,
    one_word_of,
)
from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit
from coordlock.cli.parser import Parser, one_of, whole
from coordlock.cli.slot_options import CATCH_UP, OPTIONS, POLICIES, SlotOptions
from coordlock.model.claim import MAX_PERMITS, Mode
from coordlock.settings import REACHES, duration

__all__ = [
    "acquire_options",
    "follow_option",
    "grace_option",
    "grant_options",
    "json_option",
    "label_option",
    "look_options",
    "max_hold_option",
    "name_argument",
    "name_arguments",
    "on_ask_option",
    "seconds",
    "service_options",
    "slot_options",
    "timeout_option",
    "ttl_option",
    "waiting_options",
    "zero_is_done_option",
]


def seconds(text: str, most: float = 86_400) -> float:
    """Reads options that are durations: ``15s``, ``500ms``, ``2m`` or a number; ``most`` a day."""
    try:
        read: float = duration(0, most)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from None
    return read


def service_options(parser: Parser) -> None:
    """Which service, and how long to try; both may also stand before the command."""
    url = parser.option(
        "--url", metavar="URL", help="The service. Default: COORDLOCK_URL, a file, this machine."
    )
    completed_by(url, complete_url)
    parser.option(
        "--connect-timeout",
        type=seconds,
        metavar="DURATION",
        help="Fail when there is no connection after this long. Default: 10s.",
    )
    parser.combine("service", Service, "url", "connect_timeout")


def look_options(parser: Parser) -> None:
    """Which service to look at, once or again and again, and how to show it."""
    service_options(parser)
    follow_option(parser, "Look again every second, until Ctrl-C.")
    json_option(parser)


def follow_option(parser: Parser, help: str) -> None:
    """To go on after what is there now."""
    parser.flag("-f", "--follow", help=help)


def name_argument(parser: Parser, completer: Completer = complete_name) -> None:
    """The name of a lock, or of what ``completer`` offers."""
    completed_by(parser.argument("name", metavar="NAME"), completer)


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
        help="A subtree of locks, such as eu/orders/42. May be repeated.",
    )
    completed_by(tree, complete_name)


def json_option(parser: Parser) -> None:
    """JSON for other programs."""
    parser.flag("--json", dest="as_json", help="Print JSON.")


def acquire_options(parser: Parser) -> None:
    """The options of the commands that acquire a lock; named after those of flock(1)."""
    waiting_options(parser)
    parser.flag("-s", "--shared", help="Take a read lock, shared with other readers.")
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
        help=f"Take a permit of a semaphore of N, 1 to {MAX_PERMITS}.",
    )
    label_option(parser)
    grant_options(parser)


def label_option(parser: Parser) -> None:
    """What others see of this process."""
    parser.option("--label", metavar="TEXT", help="What ls and show print beside host and pid.")


def waiting_options(parser: Parser, busy: str = "the lock is busy") -> None:
    """The service, and how long to wait while it is ``busy``."""
    service_options(parser)
    parser.flag("-n", "--nonblock", help=f"Fail at once when {busy}.")
    timeout_option(parser, "Fail after this long, connecting included.")


def timeout_option(parser: Parser, help: str) -> None:
    """How long to wait."""
    parser.option("--timeout", type=seconds, metavar="DURATION", help=help)


def grant_options(parser: Parser, refused: str = "the lock is not acquired") -> None:
    """What is asked of a grant, and what is told of it."""
    ttl_option(parser)
    reach = parser.option(
        "--reach",
        type=one_of(REACHES[1:]),
        metavar="REACH",
        help="Refuse a service whose locks do not reach the whole machine or cluster.",
    )
    completed_by(reach, one_word_of(REACHES[1:]))
    parser.option(
        *("-E", "--conflict-exit-code"),
        type=whole(0, 255),
        metavar="N",
        default=int(Exit.NOT_ACQUIRED),
        help=f"The exit status if {refused}, 0 to 255. Default: 75.",
    )
    parser.flag("-q", "--quiet", help="Print nothing when it is busy or lost; see the status.")
    parser.flag("-v", "--verbose", help="Say what it waits for, and what it holds.")


def ttl_option(parser: Parser) -> None:
    """The time-to-live."""
    parser.option(
        "--ttl", metavar="DURATION", help="How long the lease outlives its last heartbeat."
    )


def grace_option(parser: Parser) -> None:
    """How a command ends that is to end for its lock."""
    parser.option(
        "--grace",
        type=seconds,
        metavar="DURATION",
        default=5.0,
        help="The time from SIGTERM to SIGKILL after a loss. Default: 5s.",
    )


def on_ask_option(parser: Parser) -> None:
    """The signal that a command gets when somebody asks for the lock."""
    parser.option(
        "--on-ask",
        type=_signal,
        metavar="SIGNAL",
        help="Send COMMAND this signal when another client requests the lock.",
    )


def slot_options(parser: Parser) -> None:
    """Which slots of a job a command runs for."""
    parser.option("--slot", metavar="SLOT", help="Run job NAME once for this instant or number.")
    parser.option(
        "--every",
        metavar="DURATION",
        help="Run job NAME once per interval of the UTC day.",
    )
    parser.option("--cron", metavar="LINE", help="Run job NAME once per time of this cron line.")
    parser.option("--tz", metavar="ZONE", help="The zone of --cron and --slot. Default: UTC.")
    parser.option(
        "--policy",
        type=one_of(POLICIES),
        metavar="POLICY",
        help="at-most-once, the default, or at-least-once.",
    )
    parser.option(
        "--catch-up",
        type=one_of(CATCH_UP),
        metavar="WHICH",
        help="Missed slots: all, or only the latest, the default.",
    )
    parser.option(
        "--max-attempts",
        type=whole(1, 1_000_000),
        metavar="N",
        help="At least once: start a slot at most N times. Default: 10.",
    )
    parser.option(
        "--retry-delay",
        type=seconds,
        metavar="DURATION",
        help="Wait after a failure; each time twice as long. Default: 10s.",
    )
    parser.flag("--keep-stderr", help="If COMMAND fails, keep its last 4 KB for `jobs show`.")
    parser.flag("--quiet-elsewhere", help="Print nothing about slots that other hosts have run.")
    zero_is_done_option(parser)
    names = (option.removeprefix("--").replace("-", "_") for option in OPTIONS)
    parser.combine("slots_of_job", SlotOptions, *names)


def max_hold_option(parser: Parser) -> None:
    """How long a command may run."""
    parser.option(
        "--max-hold", metavar="DURATION", help="End COMMAND if it holds NAME for this long."
    )


def zero_is_done_option(parser: Parser) -> None:
    """What the status of a command says that was told to end."""
    parser.flag("--zero-is-done", help="Status 0 means done, even after a signal to end.")


def _signal(text: str) -> int:
    """Reads the name of a signal, such as TERM, or its number."""
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    try:
        return int(signal.Signals(int(text)) if text.isdigit() else signal.Signals[name])
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a signal, such as TERM or USR1"
        ) from None
