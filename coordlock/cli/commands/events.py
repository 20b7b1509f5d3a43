"""``coordlock events``: what happens in the queue of a name, line by line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from coordlock.backend.observation import Queue
from coordlock.cli.connection import Service
from coordlock.cli.event_lines import VERSION
from coordlock.cli.text import echo, printable
from coordlock.model.admission import holders
from coordlock.model.contender import Contender, Snapshot
from coordlock.recipes.shared.observer import Observer

__all__ = ["changes", "events"]


def events(*, name: str, service: Service, as_json: bool) -> int:
    """Print a line when a client waits for NAME, holds it, or leaves.

    It begins with those that are there, and ends with Ctrl-C. A client that leaves has released the
    lock, has lost it, or has given up its wait: its own log says which. Very short waits and holds
    may be missing. For what happens to a lock of your own, see `coordlock hold --json`.
    """
    with service.connected() as client:
        engine = client._engine
        begin = lambda news: engine.backend.follow(Queue(name), news)  # noqa: E731
        observer: Observer[Snapshot] = Observer(
            engine, begin, lambda state, _: state, "queue", name
        )
        with observer:
            before: Snapshot | None = None
            for queue in observer:
                for event, contender in changes(before, queue):
                    echo(_line(name, event, contender, as_json=as_json))
                before = queue
    return 0


def changes(before: Snapshot | None, now: Snapshot) -> Iterator[tuple[str, Contender]]:
    """What has happened between two states of a queue; ``left`` comes first."""
    past = {} if before is None else {one.place: one for one in before.contenders}
    held = set() if before is None else holders(before)
    holding = holders(now)
    present = {contender.place for contender in now.contenders}
    for place, contender in past.items():
        if place not in present:
            yield "left", contender
    for contender in now.contenders:
        if contender.id in holding:
            if contender.id not in held:
                yield "held", contender
        elif contender.place not in past:
            yield "waiting", contender


def _line(name: str, event: str, contender: Contender, *, as_json: bool) -> str:
    if not as_json:
        return f"{time.strftime('%H:%M:%S')} {event:7} {printable(str(contender))}"
    owner = contender.described
    facts = {
        "version": VERSION,
        "event": event,
        "time": round(time.time(), 3),
        "name": name,
        "token": contender.token,
        "owner": None if owner is None else str(owner),
    }
    return json.dumps(facts)
