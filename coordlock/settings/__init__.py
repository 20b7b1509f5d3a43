"""What can be configured: options, how they are parsed, and a client's settings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Literal, SupportsFloat, get_args

from coordlock.errors import ConfigurationError

__all__ = [
    "COMMON_OPTIONS",
    "DEFAULT",
    "REACHES",
    "REACH_OPTION",
    "TLS_OPTIONS",
    "Default",
    "Duration",
    "Option",
    "Reach",
    "Settings",
    "Timeout",
    "boolean",
    "choice",
    "duration",
    "number",
    "optional",
    "seconds_of",
    "short_text",
    "text",
    "timeout_of",
]

#: Parses a value from a URL (always text) or from a file (text, number, bool). Raises ValueError
#: with the accepted form.
Parser = Callable[[object], Any]

#: Between whom locks exclude: threads of a process, processes of a machine, clients of a cluster.
Reach = Literal["process", "machine", "cluster"]
#: From the nearest to the farthest.
REACHES: Final[tuple[Reach, ...]] = get_args(Reach)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, how to parse it, its default, and a line for the table.

    ``secret`` options never appear in reprs, logs or errors.
    """

    name: str
    parse: Parser
    default: Any
    doc: str
    secret: bool = False

    def read(self, value: object) -> Any:
        """Parse ``value``. Raises `ConfigurationError`, which names the option."""
        try:
            return self.parse(value)
        except ValueError as error:
            shown = "" if self.secret else f" {value!r}"
            raise ConfigurationError(f"option {self.name!r}:{shown} is not {error}") from None


#: Seconds: a number, a text such as ``500ms``, ``15s`` or ``2m``, or a `timedelta`.
Duration = float | str | timedelta


class Default(Enum):
    """The type of `DEFAULT`."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return "DEFAULT"


#: Stands for the client's option of the same name, because None means for ever.
DEFAULT: Final = Default.DEFAULT

Timeout = Duration | None | Default

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|)")
_UNITS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


#: What surrounds a value by accident: blanks, line ends and byte order marks.
_SURROUNDING: Final = re.compile(r"\A[\s\ufeff]+|[\s\ufeff]+\Z")


def trimmed(value: str, *, is_secret: bool = False) -> str:
    """``value`` without the white space around it; a secret only loses the line ends behind it.

    Variables and files often end with a newline that is not meant.
    """
    return value.rstrip("\r\n") if is_secret else _SURROUNDING.sub("", value)


def hidden_in(value: str) -> str | None:
    """The code point of the first character that nobody sees in ``value``, such as ``U+000A``.

    Those are control and format characters, and all white space but the plain blank.
    """
    for character in value:
        if not character.isprintable() and character != " ":
            return f"U+{ord(character):04X}"
    return None


def seconds_of(value: object) -> float:
    """The seconds of a number, a text such as ``500ms`` or ``2m``, or a `timedelta`.

    Accepts any number, also infinity. Raises ValueError with the accepted form.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        if match := _DURATION.fullmatch(value.strip().lower()):
            return float(match[1]) * _UNITS[match[2]]
    elif isinstance(value, SupportsFloat) and not isinstance(value, bool):
        with suppress(TypeError, ValueError, OverflowError):
            return float(value)
    raise ValueError("a number of seconds, a text such as 15s, 500ms or 2m, or a timedelta")


def timeout_of(call: str, value: object) -> float | None:
    """The seconds of the timeout that ``call`` is given; None for no bound, also for infinity.

    Raises ValueError, which names ``call`` and the accepted forms.
    """
    try:
        seconds = math.inf if value is None else seconds_of(value)
    except ValueError as error:
        raise ValueError(f"timeout of {call}: {value!r} is neither None nor {error}") from None
    if not seconds >= 0:  # nor is NaN
        raise ValueError(f"timeout of {call}: {value!r} is neither None nor 0 or more")
    return None if seconds == math.inf else seconds


def label_of(value: object) -> str | None:
    """The label that a call is given, as the option ``label`` takes it; None for none."""
    label: str | None = None if value is None else _given("label", "None or", _LABEL, value)
    return label


def max_hold_of(value: object) -> float | None:
    """The seconds of ``max_hold`` that a call is given; None for no limit."""
    seconds: float | None = _given("max_hold", "None or", _MAX_HOLD, value)
    return seconds


def _given(name: str, besides: str, parser: Parser, value: object) -> Any:
    try:
        return parser(value)
    except ValueError as error:
        accepted = f"{besides} {error}".lstrip()
        raise ValueError(f"{name}: {value!r} is not {accepted}") from None


def duration(low: float = 0.0, high: float = 86_400.0) -> Parser:
    """Parses what `seconds_of` takes, from ``low`` to ``high`` seconds."""

    def parse(value: object) -> float:
        with suppress(ValueError):
            if low <= (seconds := seconds_of(value)) <= high:
                return seconds
        raise ValueError(f"a duration from {low:.12g}s to {high:.12g}s, such as 15s, 500ms or 2m")

    return parse


def optional(parser: Parser) -> Parser:
    """Parses what ``parser`` takes, and None from None or the text ``none``."""

    def parse(value: object) -> Any:
        return None if value is None or str(value).strip().lower() == "none" else parser(value)

    return parse


def number(low: int, high: int) -> Parser:
    """Parses an integer from ``low`` to ``high``."""

    def parse(value: object) -> int:
        plain = str(value).strip()
        if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,18}", plain, re.ASCII):
            raise ValueError(f"an integer from {low} to {high}")
        if not low <= int(plain) <= high:
            raise ValueError(f"an integer from {low} to {high}")
        return int(plain)

    return parse


def choice(*accepted: str) -> Parser:
    """Parses one of a few words."""

    def parse(value: object) -> str:
        if str(value) not in accepted:
            raise ValueError(f"one of {', '.join(accepted)}")
        return str(value)

    return parse


def boolean(value: object) -> bool:
    """Parses ``true`` or ``false``, ``1`` or ``0``, ``yes`` or ``no``, ``on`` or ``off``."""
    word = str(value).strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise ValueError("true or false")


def text(value: object) -> str:
    """Parses any text but the empty one."""
    if not isinstance(value, str) or not value:
        raise ValueError("a non-empty text")
    return value


def short_text(limit: int) -> Parser:
    """Parses any text but the empty one, of at most ``limit`` bytes in UTF-8."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "replace")) <= limit:
            raise ValueError(f"a non-empty text of at most {limit} bytes")
        return value

    return parse


_LABEL: Final = short_text(255)
_MAX_HOLD: Final = optional(duration(0.1, 2_592_000))

REACH_OPTION: Final = Option(
    "reach", choice(*REACHES), "process", "Refuse a backend whose locks reach less far than this."
)

#: The options of every backend.
COMMON_OPTIONS: Final = (
    Option("ttl", duration(1, 3600), 15.0, "How long the session outlives its last heartbeat."),
    Option(
        "timeout",
        optional(duration()),
        None,
        "Default timeout of calls that wait for other clients; none waits forever.",
    ),
    Option(
        "max_hold",
        _MAX_HOLD,
        None,
        "How long a lock may be held before it is lost; none for as long as the session lives.",
    ),
    Option("connect_timeout", duration(0.1, 600), 10.0, "How long connect may take."),
    Option("request_timeout", duration(0.1, 600), 5.0, "How long one request may take."),
    Option(
        "fail_fast",
        boolean,
        False,
        "Refuse requests at once while the service is known to be away.",
    ),
    Option(
        "deadlock_delay",
        optional(duration(0.1, 3600)),
        1.0,
        "How long a caller that holds others waits before it looks for a deadlock; none for never.",
    ),
    Option("label", _LABEL, "", "What queue views show beside host and pid as the owner."),
    REACH_OPTION,
)

#: For backends that speak TLS.
TLS_OPTIONS: Final = (
    Option("tls", boolean, False, "Connect with TLS, and verify the server's certificate."),
    Option("ca", text, None, "File of the certificate authority (PEM); the system's by default."),
    Option("cert", text, None, "File of the client's certificate (PEM)."),
    Option("key", text, None, "File of the client's private key (PEM)."),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """A client's configuration, parsed and checked.

    Attributes:
        scheme: names the backend.
        hosts: ``host:port`` each, the port filled in; IPv6 addresses in brackets. For ``local``
            empty, for ``memory`` the name of the shared service.
        root: the path under which queues live; starts with a slash, and ends without one unless it
            is ``/``.
        username, password: credentials; the password is never shown.
        ttl: seconds that a session outlives its last heartbeat, as asked of the service.
        timeout: default of acquire in seconds; None waits forever.
        max_hold: for how many seconds a lock may be held; None for as long as the session lives.
        connect_timeout, request_timeout: bounds in seconds.
        fail_fast: whether requests are refused at once while the service is known to be away.
        deadlock_delay: after how many seconds a waiter that holds other locks looks for a deadlock;
            None for never.
        label: shown beside host and pid as the owner.
        reach: how far locks must reach at least; other backends are refused.
        options: the backend's own options, all of them, parsed; defaults filled in.
        origin: the variable or file that names the backend, or ``the default``; empty where the
            program names it. Does not count in comparisons.
    """

    scheme: str
    hosts: tuple[str, ...] = ()
    root: str = "/coordlock"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ttl: float = 15.0
    timeout: float | None = None
    max_hold: float | None = None
    connect_timeout: float = 10.0
    request_timeout: float = 5.0
    fail_fast: bool = False
    deadlock_delay: float | None = 1.0
    label: str = ""
    reach: Reach = "process"
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    origin: str = field(default="", compare=False)

    def __str__(self) -> str:
        """The URL without credentials and options, for logs and errors."""
        return f"{self.scheme}://{','.join(self.hosts)}{self.root}"
