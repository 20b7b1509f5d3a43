"""Options that several commands share, each once."""

from __future__ import annotations

import signal
from typing import Final

from coordlock.cli.completers import complete_name
from coordlock.cli.exits import Exit
from coordlock.cli.parser import Argument, Option, seconds, whole
from coordlock.cli.slot_options import CATCH_UP, POLICIES
from coordlock.model.claim import MAX_PERMITS, Mode
from coordlock.model.names import check_name
from coordlock.settings import REACHES

__all__ = [
    "ACQUIRING",
    "CONFLICT",
    "DATA",
    "EVENT_LINES",
    "FOLLOW",
    "GRACE",
    "HOLDING",
    "IF_VERSION",
    "LABEL",
    "MAX_HOLD",
    "NAME",
    "NAMES",
    "ON_ASK",
    "SLOTS",
    "TTL",
    "VALUE",
    "WAITING",
    "YES",
    "ZERO_IS_DONE",
    "address",
    "in_json",
]


def _signal(text: str) -> int:
    """Reads the name of a signal, such as TERM, or its number."""
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    try:
        return int(signal.Signals(int(text)) if text.isdigit() else signal.Signals[name])
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is not a signal, such as TERM or USR1") from None


def address(text: str) -> tuple[str, int]:
    """Reads a port, or a host and a port."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not a port, nor a host and a port")
    return host.strip("[]") or "127.0.0.1", int(port)


def in_json(keys: str, otherwise: str = "") -> Option:
    """The option for programs: ``keys`` are public, and those below them."""
    return Option("--json", dest="as_json", help=f"Print `{keys}`{otherwise}.")


EVENT_LINES: Final = Option("--json", dest="as_json", help="Print a line of JSON for each event.")
YES: Final = Option("--yes", help="Don't ask.")
LABEL: Final = Option(
    "--label", metavar="TEXT", help="What `ls` and `show` print beside host and pid."
)
VALUE: Final = Option(
    "--value", metavar="TEXT", help="What others know it by. Default: host and process id."
)
FOLLOW: Final = Option("-f", "--follow", help="Print changes until Ctrl-C.")
TTL: Final = Option(
    "--ttl", metavar="DURATION", help="How long the lease outlives its last heartbeat."
)
#: Of commands that wait.
WAITING: Final = (
    Option("-n", "--nonblock", group="wait", help="Don't wait: fail at once."),
    Option(
        "--timeout",
        group="wait",
        read=seconds,
        metavar="DURATION",
        help="Fail after this long, connecting included.",
    ),
)
CONFLICT: Final = Option(
    *("-E", "--conflict-exit-code"),
    read=whole(0, 255),
    metavar="N",
    default=int(Exit.NOT_ACQUIRED),
    help="The exit status if it gets nothing in time, 0 to 255. Default: 75.",
)
#: Of all commands that hold something; their fields are those of a `LockRequest`.
HOLDING: Final = (
    TTL,
    Option(
        "--reach",
        known=REACHES[1:],
        metavar="REACH",
        help="Refuse a service whose locks do not reach the whole machine or cluster.",
    ),
    Option("-q", "--quiet", help="Print nothing when it is busy or lost: the status says it."),
    Option("-v", "--verbose", help="Say what it waits for and holds."),
)
#: Of commands that acquire locks; named after those of flock(1).
ACQUIRING: Final = (
    *HOLDING,
    *WAITING,
    CONFLICT,
    LABEL,
    Option("-s", "--shared", group="mode", help="Take a read lock, shared with other readers."),
    Option(
        "--mode",
        group="mode",
        known=tuple(Mode.__members__),
        metavar="MODE",
        help="NL, CR, CW, PR, PW or EX, which is the default. PR is --shared.",
    ),
    Option(
        "--permits",
        group="mode",
        read=whole(1, MAX_PERMITS),
        metavar="N",
        help=f"Take a permit of a semaphore of N, 1 to {MAX_PERMITS}.",
    ),
)
GRACE: Final = Option(
    "--grace",
    read=seconds,
    metavar="DURATION",
    default=5.0,
    help="The time from SIGTERM to SIGKILL after a loss. Default: 5s.",
)
MAX_HOLD: Final = Option(
    "--max-hold", metavar="DURATION", help="End COMMAND if it holds NAME for this long."
)
ON_ASK: Final = Option(
    "--on-ask",
    read=_signal,
    metavar="SIGNAL",
    help="Send COMMAND this signal when another client requests the lock.",
)
ZERO_IS_DONE: Final = Option(
    "--zero-is-done", help="Status 0 means done, even after a signal to end."
)
#: Which slots of a job a command runs for.
SLOTS: Final = (
    Option(
        "--slot",
        group="slot",
        metavar="SLOT",
        help="Run job NAME once for this instant or number.",
    ),
    Option(
        "--every",
        group="slot",
        metavar="DURATION",
        help="Run job NAME once per interval of the UTC day.",
    ),
    Option(
        "--cron",
        group="slot",
        metavar="LINE",
        help="Run job NAME once per time of this cron line.",
    ),
    Option("--tz", metavar="ZONE", help="The zone of --cron and --slot. Default: UTC."),
    Option(
        "--policy",
        known=POLICIES,
        metavar="POLICY",
        help="at-most-once, the default, or at-least-once.",
    ),
    Option(
        "--catch-up",
        known=CATCH_UP,
        metavar="WHICH",
        help="Missed slots: all, or only the latest, the default.",
    ),
    Option(
        "--max-attempts",
        read=whole(1, 1_000_000),
        metavar="N",
        help="At least once: start a slot at most N times. Default: 10.",
    ),
    Option(
        "--retry-delay",
        read=seconds,
        metavar="DURATION",
        help="Wait after a failure; each time twice as long. Default: 10s.",
    ),
    Option("--keep-stderr", help="If COMMAND fails, keep its last 4 KB for `jobs show`."),
    Option("--quiet-elsewhere", help="Print nothing about slots that other hosts have run."),
    ZERO_IS_DONE,
)
IF_VERSION: Final = Option(
    "--if-version",
    read=whole(0, 2**63 - 1),
    metavar="N",
    help="Only if KEY is at version N, 0 for no value; otherwise the status is 1.",
)
NAME: Final = Argument("NAME", "name", read=check_name, completer=complete_name)
#: One lock, several of them, or subtrees.
NAMES: Final = (
    Argument("NAME", "names", read=check_name, least=0, repeats=True, completer=complete_name),
    Option(
        *("-l", "--lock"),
        dest="names",
        read=check_name,
        metavar="NAME",
        repeats=True,
        help="One more lock, acquired in the same step. May be repeated.",
        completer=complete_name,
    ),
    Option(
        "--tree",
        dest="trees",
        metavar="PATH",
        repeats=True,
        help="A subtree of locks, such as eu/orders/42. May be repeated.",
        completer=complete_name,
    ),
)
DATA: Final = Argument("DATA", "data", least=0)
