"""What happens to a lock that a command holds, as lines of JSON: for supervisors."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Final

from coordlock.cli.text import echo
from coordlock.client import Client
from coordlock.model.events import AcquireStarted, AcquireWaiting, Lost, Released, SessionChanged
from coordlock.runtime.recorder import Event, Subscription

__all__ = ["VERSION", "EventLines"]

#: The version of the lines. Fields may be added; a change of others makes it grow.
VERSION: Final = 1
#: Seconds to wait for lines that are yet to be printed.
_PATIENCE_S: Final = 5.0


class EventLines:
    """Prints a line for each event, in order: waiting, held, suspect, lost, released.

    ``docs/reference/hold-events.schema.json`` describes them.
    """

    def __init__(self) -> None:
        self._subscription: Subscription | None = None
        #: The line about what is held; empty while nothing is.
        self._held: dict[str, object] = {}
        self._is_suspect = self._is_lost = False

    def listen(self, client: Client) -> None:
        """Print what happens to ``client``."""
        self._subscription = client.on_event(self._listen)

    def held(self, facts: dict[str, object]) -> None:
        """What ``facts`` describe is held from now on."""
        self.flush()  # it may have been waited for
        if not self._is_lost:
            self._held, self._is_suspect = facts, False
            self._print("held", facts)

    def flush(self) -> None:
        """Print what is yet to be printed."""
        if self._subscription is not None:
            self._subscription.flush(_PATIENCE_S)

    def _listen(self, event: Event) -> None:
        match event:
            case AcquireStarted():
                self._is_lost = False
            case AcquireWaiting(name=name, position=position):
                self._print("waiting", {"name": name, "position": position})
            case Lost(name=name, token=token, text=text, held=held):
                self._held, self._is_lost = {}, True
                facts = {"name": name, "token": token or None, "reason": text, "held": held}
                self._print("lost", facts)
            case Released(name=name, token=token, held=held) if self._held:
                self._held = {}
                self._print("released", {"name": name, "token": token or None, "held": held})
            case SessionChanged(state="in doubt", text=text) if self._held:
                self._is_suspect = True
                self._print("suspect", {"name": self._held["name"], "reason": text})
            case SessionChanged(state="connected") if self._held and self._is_suspect:
                self._is_suspect = False
                self._print("held", self._held)

    def _print(self, event: str, facts: Mapping[str, object]) -> None:
        line = {"version": VERSION, "event": event, "time": round(time.time(), 3), **facts}
        echo(json.dumps(line))
