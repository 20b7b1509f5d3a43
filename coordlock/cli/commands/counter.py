"""Add to counters, and read them.

A counter is 0 at first, and is kept when all clients have left.
"""

from __future__ import annotations

import json

from coordlock.cli.connection import Service
from coordlock.cli.text import echo

__all__ = ["add", "get"]


def add(*, name: str, number: int, service: Service, as_json: bool) -> None:
    """Add N to the counter NAME, and print the number after that.

    N is 1 by default. Write a negative N behind two dashes: counter add NAME -- -5. coordlock adds
    N exactly once, even when an answer is lost. If the service does not answer, the status is 69,
    and the message says whether N may have been added.
    """
    with service.connected() as client:
        after = client.counter(name).add(number)
    echo(json.dumps({"name": name, "number": after}) if as_json else after)


def get(*, name: str, follow: bool, service: Service, as_json: bool) -> None:
    """Print the number of the counter NAME.

    The number is 0 if nobody has added to it. With --follow, the command may leave out a number
    that lasted for a moment.
    """

    def show(number: int) -> None:
        echo(json.dumps({"name": name, "number": number}) if as_json else number)

    with service.connected() as client:
        counter = client.counter(name)
        if follow:
            with counter.observe() as numbers:
                for number in numbers:
                    show(number)
        show(counter.get())
