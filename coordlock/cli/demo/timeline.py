"""What the demo prints: events as sentences with the seconds since the start, or as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import ClassVar, Final

from coordlock.cli.demo.crew import Event
from coordlock.cli.text import (
    coloured,
    echo,
    folded,
    milliseconds,
    printable,
    terminal_width,
)

__all__ = ["HANGING", "TIME", "Paint", "Timeline", "hang", "in_words"]

#: Colours the line of that number of a text.
Paint = Callable[[str, int], str]

#: The columns that an event's time takes.
TIME: Final = len("   0.000 s  ")
#: How far the further lines of a text are indented.
HANGING: Final = 3

_COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue")
#: What stands out, in red.
_ALARMING: Final = frozenset({"killed", "frozen", "evicted", "refused", "lost"})
#: Where a chapter of the story begins.
_HEADLINES: Final = {
    "killed": "A crash: a worker is killed while it holds the lock.",
    "frozen": "A freeze: a worker stands still while it holds the lock.",
}
_SENTENCES: Final = {
    "waits": "waits for the lock",
    "halfway": "read the balance {balance}",
    "killed": "is killed (SIGKILL) between its read and its write; it held token {token}",
    "frozen": "is frozen (SIGSTOP) between its read and its write; it holds the lock{by}",
    "keeps": "still has {holder} as the holder: there is no lease that could run out, the kernel "
    "knows that it lives",
    "evicted": "is evicted from the queue, as `coordlock break` does; its token was {token}",
    "thawed": "is woken (SIGCONT), and goes on as if it held the lock",
    "refused": "is REFUSED by the ledger: token {token} is older than {newest} (StaleToken)",
    "lost": "is told that the lock is lost: {reason}",
    "done": "is done",
    "jumped": "lets the key expire on {servers} of {of} servers, as it does when their clocks are "
    "set forward; nobody tells A",
    "replaced": "puts a server without data in the place of the first one, as a failover to a "
    "replica that lags does; its clock is {clock}",
    "counted": "counts: {acknowledged} updates were acknowledged, and the balance is {balance}",
}


class Timeline:
    """Prints events as they come; times count from ``start`` on the system's clock."""

    #: Only of interest to programs.
    silent: ClassVar[frozenset[str]] = frozenset({"ready", "halfway"})

    def __init__(self, start: float, *, as_json: bool) -> None:
        self.start = start
        self.as_json: Final = as_json

    @property
    def width(self) -> int:
        """In how many columns to print."""
        return terminal_width()

    def say(self, text: str = "", colour: str = "white") -> None:
        """A paragraph that is no event; not for programs."""
        if not self.as_json:
            for line in folded(printable(text), self.width) or [""]:
                echo(coloured(line, colour, bold=True) if colour != "white" else line)

    def show(self, event: Event) -> None:
        """Print ``event``."""
        at = event["at"] - self.start
        if self.as_json:
            echo(json.dumps(event | {"at": round(at, 6)}))
        elif event["event"] not in self.silent:
            self._print(event, f"{at:8.3f} s  ")

    def _print(self, event: Event, at: str) -> None:
        if event["event"] in _HEADLINES:
            self.say()
            self.say(_HEADLINES[event["event"]])
        hang(at, *in_words(event, 10), self.width, TIME)


def hang(head: str, text: str, paint: Paint, width: int, margin: int) -> None:
    """Print ``text`` behind ``head``; what does not fit goes on a little right of ``margin``."""
    indent = margin + HANGING
    for number, line in enumerate(folded(text, width, taken=len(head), indent=indent)):
        echo((" " * indent if number else head) + paint(line, number))


def in_words(event: Event, name: int = 0) -> tuple[str, Paint]:
    """A line of the timeline, and its colours; the worker's name takes ``name`` columns or more."""
    worker = f"{event['worker']:<{name}}"

    def paint(line: str, number: int) -> str:
        split = 0 if number else len(worker)
        return coloured(line[:split], _colour_of(event["worker"])) + _emphasised(
            event, line[split:]
        )

    return printable(f"{worker}  {_sentence(event)}"), paint


def _colour_of(worker: str) -> str:
    """The colour in which ``worker``'s name is printed: a number's, or a letter's."""
    number = worker.rpartition("-")[2]
    if number.isdecimal():
        return _COLOURS[int(number) % len(_COLOURS)]
    return _COLOURS[ord(worker) % len(_COLOURS)] if len(worker) == 1 else "white"


def _emphasised(event: Event, text: str) -> str:
    """``text``, a part of the event's sentence, in red if that stands out."""
    alarming = event["event"] in _ALARMING or "over" in event
    return coloured(text, "red") if alarming and text else text


def _sentence(event: Event) -> str:
    """What happened, in words, without the worker's name."""
    kind = event["event"]
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(**event, by=_by(event.get("token")))
    token = event.get("token")
    match kind:
        case "holds":
            text = f"HOLDS the lock{_by(token)}, waited {milliseconds(event['waited'])}"
            if "after" in event:
                text += f", {milliseconds(event['after'])} after {event['since']}"
            return text
        case "wrote":
            text = f"wrote the balance {event['balance']}"
            if not token:
                return f"{text}; its grant says {event['state']}"
            text += f" with token {token}"
            if "over" in event:
                return f"{text}: the stale write is ACCEPTED, over that of token {event['over']}"
            return f"{text}, and releases"
        case "queue":
            waiting = ", ".join(event["waiting"]) or "nobody"
            return f"sees the queue: {event['holder'] or 'nobody'} holds, {waiting} waiting"
    return str(kind)


def _by(token: int | None) -> str:
    """The token as a part of a sentence; nothing where the service has none."""
    return f", token {token}" if token else ""
