"""What the demo prints: events as sentences with the seconds since the start, or as JSON lines."""

from __future__ import annotations

import json
from typing import Final

import click

from coordlock.cli.demo.crew import Event
from coordlock.cli.text import coloured, milliseconds, printable

__all__ = ["Timeline"]

_COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue")
#: What stands out, in red.
_ALARMING: Final = frozenset({"killed", "frozen", "evicted", "refused", "lost"})
#: Where a chapter of the story begins.
_HEADLINES: Final = {
    "killed": "A crash: a worker is killed while it holds the lock.",
    "frozen": "A freeze: a worker stands still while it holds the lock.",
}
#: Only of interest to programs.
_SILENT: Final = frozenset({"ready", "halfway"})


class Timeline:
    """Prints events as they come; times count from ``start`` on the system's clock."""

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
        elif event["event"] not in _SILENT:
            if event["event"] in _HEADLINES:
                click.echo(f"\n{_HEADLINES[event['event']]}")
            worker = event["worker"]
            name = coloured(f"{worker:<10}", _colour(worker))
            text = printable(_sentence(event))
            if event["event"] in _ALARMING:
                text = coloured(text, "red")
            click.echo(f"{at:8.3f} s  {name}  {text}")


def _colour(worker: str) -> str:
    number = worker.rpartition("-")[2]
    return _COLOURS[int(number) % len(_COLOURS)] if number.isdecimal() else "white"


def _sentence(event: Event) -> str:
    token = event.get("token")
    match event["event"]:
        case "waits":
            return "waits for the lock"
        case "holds":
            text = f"HOLDS the lock, token {token}, waited {milliseconds(event['waited'])}"
            if "after" in event:
                text += f", {milliseconds(event['after'])} after {event['since']}"
            return text
        case "wrote":
            return f"wrote the balance {event['balance']} with token {token}, and releases"
        case "queue":
            waiting = ", ".join(event["waiting"]) or "nobody"
            return f"sees the queue: {event['holder'] or 'nobody'} holds, {waiting} waiting"
        case "killed":
            return f"is killed (SIGKILL) between its read and its write; it held token {token}"
        case "frozen":
            return f"is frozen (SIGSTOP) between its read and its write; it holds token {token}"
        case "keeps":
            return (
                f"still has {event['holder']} as the holder: there is no lease that could run "
                "out, the kernel knows that it lives"
            )
        case "evicted":
            return f"is evicted from the queue, as `coordlock break` does; its token was {token}"
        case "thawed":
            return "is woken (SIGCONT), and goes on as if it held the lock"
        case "refused":
            return f"is REFUSED by the ledger: token {token} is older than {event['highest']}"
        case "lost":
            return f"is told that the lock is lost: {event['reason']}"
        case "done":
            return "is done"
    return str(event["event"])
