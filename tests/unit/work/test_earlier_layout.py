"""A work queue that an earlier release has begun, in another layout, is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import coordlock
from coordlock.backend import Put
from coordlock.errors import BackendError, NameConflict

BOUND = 30.0
#: What layout 1 has stored for two items that were put, and one that is at work.
RECORDS = {
    "": b"",
    "/state/bell": b"",
    "/state/head": b'{"layout": 1, "next": 2}',
    "/state/tail": b'{"layout": 1, "next": 4, "delayed": 1, "last": {"b24574de2706": [3, 3, 1]}}',
    "/items/0/1": b'{"put_at": 1795546398.798627}\ntaken',
    "/items/0/2": b'{"put_at": 1795546398.798819}\nnew',
    "/items/0/3": b'{"put_at": 1795546398.798933}\nnewer',
    "/claims/1.1": b'{"key": "@work-q/nl-98a086409152", "order": 1, "token": 1, "since": 1.5}',
}
CALLS: dict[str, Callable[[coordlock.WorkQueue], object]] = {
    "put": lambda queue: queue.put(b"one"),
    "take": lambda queue: queue.take(BOUND),
    "try_take": lambda queue: queue.try_take(),
    "consume": lambda queue: next(queue.consume(timeout=BOUND)),
    "depth": lambda queue: queue.depth(),
    "stats": lambda queue: queue.stats(),
    "items": lambda queue: queue.items(),
    "dead": lambda queue: queue.dead(),
    "retry": lambda queue: queue.retry("1"),
    "evict": lambda queue: queue.evict("1"),
    "remove": lambda queue: queue.remove("1"),
    "purge": lambda queue: queue.purge(),
}


def begin(client: coordlock.Client) -> None:
    """Store what the earlier release did."""
    engine = client._access.engine
    base = f"{engine.data_root}/@work/q"
    engine.backend.write([Put(base + key, data) for key, data in RECORDS.items()]).result(BOUND)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_on_it_is_refused(root: str, call: str) -> None:
    with coordlock.connect(f"memory://{root}") as client:
        begin(client)
        with pytest.raises(NameConflict, match=r"'q' .*of another release"):
            CALLS[call](client.work_queue("q"))


def test_a_queue_whose_records_are_gone_is_no_empty_queue(root: str) -> None:
    with coordlock.connect(f"memory://{root}") as client:
        engine = client._access.engine
        engine.backend.write([Put(f"{engine.data_root}/@work/q", b'{"format": 1}')]).result(BOUND)
        for call in ("put", "take", "stats"):
            with pytest.raises(BackendError, match="@work/q' is there"):
                CALLS[call](client.work_queue("q"))


def test_a_later_format_is_refused_before_anything_is_put(root: str) -> None:
    with coordlock.connect(f"memory://{root}") as client:
        engine = client._access.engine
        engine.backend.write([Put(f"{engine.data_root}/@work/q", b'{"format": 2}')]).result(BOUND)
        for call in ("put", "try_take", "stats"):
            with pytest.raises(NameConflict, match="another release"):
                CALLS[call](client.work_queue("q"))
