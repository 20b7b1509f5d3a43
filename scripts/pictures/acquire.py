"""One acquire on its way through the layers, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.pictures.canvas import WIDTH, arrow, box, path, picture, text

#: The layers, from the caller to the service, and where each is drawn.
LAYERS: Final = {
    "your code": 80,
    "lock": 232,
    "kernel": 420,
    "backend": 608,
    "service": 770,
}
TOP: Final = 56
BOTTOM: Final = 566


def _layers() -> Iterator[str]:
    below = {
        "lock": "name, claim, timeout",
        "kernel": "ticket, admission",
        "backend": "one contract",
        "service": "etcd, ZooKeeper, ...",
    }
    for name, x in LAYERS.items():
        yield box(x - 68, 10, 136, 40, "card")
        yield text(x, 27 if name in below else 35, name, bold=True)
        if name in below:
            yield text(x, 43, below[name], "muted", size=11)
        yield path(f"M{x} {TOP} V{BOTTOM}", "pale", dashes="2 5", width=1)


def _send(
    y: float, source: str, target: str, words: str, *, back: bool = False, on: str = "paper"
) -> Iterator[str]:
    begin, end = LAYERS[source], LAYERS[target]
    aside = 5 if end > begin else -5
    yield arrow(begin + aside, y, end - aside, y, "ink", dashes="5 4" if back else "")
    yield text((begin + end) / 2, y - 6, words, size=12, on=on)


def _decide(y: float, words: str, role: str) -> Iterator[str]:
    x = LAYERS["kernel"]
    yield box(x - 118, y - 15, 236, 26, role)
    yield text(x, y + 3, words, size=12)


def draw() -> str:
    return picture(
        "An acquire: one round trip adds the contender and reads the queue",
        620,
        [
            box(12, 262, WIDTH - 24, 116, "card"),
            *_layers(),
            text(26, 279, "only if somebody is before it", "muted", anchor="start", on="card"),
            *_send(86, "your code", "lock", "acquire(timeout=30)"),
            *_send(116, "lock", "kernel", "a ticket with a random id"),
            *_send(146, "kernel", "backend", "enqueue"),
            *_send(176, "backend", "service", "add and list"),
            *_send(
                206,
                "service",
                "kernel",
                "one round trip: the queue with the contender in it",
                back=True,
            ),
            *_decide(240, "admission: is anybody in the way?", "b"),
            *_send(302, "kernel", "service", "watch the contender before it", on="card"),
            text(
                LAYERS["lock"] - 76,
                326,
                "waits: no polling, and no thread in asyncio",
                "muted",
                size=12,
                on="card",
            ),
            *_send(340, "service", "kernel", "it has left", back=True, on="card"),
            *_decide(362, "admission: nobody is in the way", "b"),
            *_send(414, "kernel", "your code", "a grant, with token 34", back=True),
            *_decide(458, "session: known to live until ...", "a"),
            *_send(490, "kernel", "service", "heartbeat, each third of the time-to-live"),
            *_send(520, "your code", "kernel", "check(): looks at the deadline, asks nobody"),
            *_send(550, "your code", "service", "release(): removes the contender"),
            text(
                WIDTH / 2,
                598,
                "The caller's own thread or task runs each step, so a caller that has given up "
                "is never granted a lock.",
            ),
        ],
    )
