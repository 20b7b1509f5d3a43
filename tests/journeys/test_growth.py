"""A client that works for weeks: what it keeps in memory is bounded, however much it has done."""

from __future__ import annotations

import gc
import os
import threading
import uuid
from pathlib import Path

import pytest

import coordlock

pytestmark = pytest.mark.faults

#: Every cache of a client is full after so many batches.
MAX_BATCHES = 30
BATCH = 50


@pytest.fixture(
    params=[
        "local",
        *(
            pytest.param(name, marks=getattr(pytest.mark, name.removesuffix("ql")))
            for name in ("etcd", "postgresql", "redis", "zookeeper")
        ),
    ]
)
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    if request.param == "local":
        return f"local://{tmp_path}?request_timeout=30s"
    url: str = request.getfixturevalue(request.param).url_for(root, ttl="60s")
    return url


def use(client: coordlock.Client, other: coordlock.Client, number: int) -> None:
    """A bit of everything that leaves nothing behind."""
    name = uuid.uuid4().hex
    with client.lock(name):
        assert other.lock(name).try_acquire() is None
        waiting = threading.Thread(target=lambda: other.lock(name).acquire().release())
        waiting.start()
        with pytest.raises(coordlock.WaitError):  # a slow service has not even answered by then
            client.lock(name).acquire(timeout=0.01)
    waiting.join()
    with client.multi_lock([name, "other"]), client.semaphore("permits", permits=2):
        pass
    with client.election("leader", b"here").campaign(), other.election("leader").observe() as views:
        assert views.next(timeout=60)
    with client.group("members").keep_joined(b"here"):
        client.value("/limit").set(b"%d" % number)
    queue = client.work_queue("mails")
    queue.put(b"mail")
    with queue.take(timeout=60) as item:
        assert item.data
    with client.job("night").run(number):
        pass


@pytest.mark.long
def test_what_a_client_keeps_is_bounded_however_long_it_works(url: str) -> None:
    number = 0
    seen: list[int] = []
    with coordlock.connect(url) as client, coordlock.connect(url) as other:
        for _ in range(MAX_BATCHES):
            for _ in range(BATCH):
                number += 1
                use(client, other, number)
            gc.collect()
            descriptors = len(os.listdir("/proc/self/fd"))
            seen.append(len(gc.get_objects()) + descriptors + threading.active_count())
            # A leak of one object in a round would make each batch the largest by 50.
            if len(seen) > 3 and max(seen[-2:]) < max(seen[:-2]) + BATCH // 2:
                return
    pytest.fail(f"objects after each {BATCH} rounds: {seen}")
