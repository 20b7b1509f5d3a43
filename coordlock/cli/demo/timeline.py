"""What the demo prints: events as sentences with the seconds since the start, or as JSON lines."""

from __future__ import annotations

import json
from typing import ClassVar, Final

import click

from coordlock.cli.demo.crew import Event
from coordlock.cli.text import coloured, milliseconds, printable

__all__ = ["Timeline", "colour_of", "emphasised", "sentence"]

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
    "frozen": "is frozen (SIGSTOP) between its read and its write; it holds token {token}",
    "keeps": "still has {holder} as the holder: there is no lease that could run out, the kernel "
    "knows that it lives",
    "evicted": "is evicted from the queue, as `coordlock break` does; its token was {token}",
    "thawed": "is woken (SIGCONT), and goes on as if it held the lock",
    "refused": "is REFUSED by the ledger: token {token} is older than {highest} (StaleToken)",
    "lost": "is told that the lock is lost: {reason}",
    "done": "is done",
}


class Timeline:
    """Prints events as they come; times count from ``start`` on the system's clock."""

    #: Only of interest to programs.
    silent: ClassVar[frozenset[str]] = frozenset({"ready", "halfway"})

    def __init__(self, start: float, *, as_json: bool) -> None:
        self.start = start
        self.as_json: Final = as_json

    def say(self, text: str = "") -> None:
        """A line that is no event; not for programs."""
        if not self.as_json:
            click.echo(printable(text))

    def show(self, event: Event) -> None:
        """Print ``event``."""
        at = event["at"] - self.start
        if self.as_json:
            click.echo(json.dumps(event | {"at": round(at, 6)}))
        elif event["event"] not in self.silent:
            self._print(event, f"{at:8.3f} s  ")

    def _print(self, event: Event, at: str) -> None:
        if event["event"] in _HEADLINES:
            click.echo(f"\n{_HEADLINES[event['event']]}")
        worker = event["worker"]
        name = coloured(f"{worker:<10}", colour_of(worker))
        click.echo(f"{at}{name}  {emphasised(event, printable(sentence(event)))}")


def colour_of(worker: str) -> str:
    """The colour in which ``worker``'s name is printed: a number's, or a letter's."""
    number = worker.rpartition("-")[2]
    if number.isdecimal():
        return _COLOURS[int(number) % len(_COLOURS)]
    return _COLOURS[ord(worker) % len(_COLOURS)] if len(worker) == 1 else "white"


def emphasised(event: Event, text: str) -> str:
    """``text``, a part of the event's sentence, in red if that stands out."""
    alarming = event["event"] in _ALARMING or "over" in event
    return coloured(text, "red") if alarming and text else text


def sentence(event: Event) -> str:
    """What happened, in words, without the worker's name."""
    kind = event["event"]
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(**event)
    token = event.get("token")
    match kind:
        case "holds":
            text = f"HOLDS the lock, token {token}, waited {milliseconds(event['waited'])}"
            if "after" in event:
                text += f", {milliseconds(event['after'])} after {event['since']}"
            return text
        case "wrote":
            text = f"wrote the balance {event['balance']} with token {token}"
            if "over" in event:
                return f"{text}: the stale write is ACCEPTED, over that of token {event['over']}"
            return f"{text}, and releases"
        case "queue":
            waiting = ", ".join(event["waiting"]) or "nobody"
            return f"sees the queue: {event['holder'] or 'nobody'} holds, {waiting} waiting"
    return str(kind)
