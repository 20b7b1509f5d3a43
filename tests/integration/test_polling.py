"""Programs that poll for a lock on real services: the lock is held, and not free, most of the time.

Each measures by the clock of its own holds, while a service of this machine answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import coordlock
from coordlock.model.claim import Mode

# A machine that stands still for a while makes a lock look free.
pytestmark = pytest.mark.long

#: For how many seconds they poll.
RUN = 5.0


@pytest.fixture(
    params=[
        "memory",
        "local",
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ]
)
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{root}"
    if request.param == "local":
        return f"local://{tmp_path}{root}"
    server = urlsplit(request.getfixturevalue(request.param).url)
    return f"{request.param}://{server.netloc}{root}?ttl=60"


#: A moment at which something began, and one at which it ended.
Span = tuple[float, float]


@dataclass
class Poller:
    """What one poller has seen."""

    mode: Mode
    #: From the grant to the release.
    holds: list[Span] = field(default_factory=list)
    #: The same, from before the try to after the release: others may be refused meanwhile.
    around: list[Span] = field(default_factory=list)
    refusals: list[Span] = field(default_factory=list)

    async def poll(self, client: coordlock.AsyncClient, until: float, hold: float) -> None:
        lock = client.lock("q", mode=self.mode)
        while (asked := time.monotonic()) < until:
            grant = await lock.try_acquire()
            answered = time.monotonic()
            if grant is None:
                self.refusals.append((asked, answered))
                await asyncio.sleep(0)  # an answer may come without a wait
                continue
            await asyncio.sleep(hold)
            self.holds.append((answered, time.monotonic()))
            await grant.release()
            self.around.append((asked, time.monotonic()))


def polled(url: str, modes: Sequence[Mode], hold: float) -> list[Poller]:
    """Pollers with these modes that have polled by a few clients, and held for ``hold`` seconds."""

    async def main() -> list[Poller]:
        pollers = [Poller(mode) for mode in modes]
        clients = [await coordlock.connect_async(url) for _ in range(4)]
        for client in clients:
            await (await client.lock("warm").acquire()).release()
        until = time.monotonic() + RUN
        async with asyncio.TaskGroup() as group:
            for number, poller in enumerate(pollers):
                group.create_task(poller.poll(clients[number % 4], until, hold))
        for client in clients:
            await client.close()
        return pollers

    return asyncio.run(main())


def free(pollers: Sequence[Poller]) -> float:
    """For which share of the time nobody held the lock, from the first hold to the last."""
    holds = sorted(hold for poller in pollers for hold in poller.holds)
    assert len(holds) > 3, "hardly anybody was granted"
    end, gaps = holds[0][0], 0.0
    for start, stop in holds:
        gaps += max(0.0, start - end)
        end = max(end, stop)
    return gaps / (end - holds[0][0])


# Twenty keep a machine so busy that an answer takes them a few hundredths of a second.
@pytest.mark.parametrize(("many", "hold"), [(4, 0.2), (20, 0.5)])
def test_a_lock_that_is_polled_is_held_nine_tenths_of_the_time(
    url: str, many: int, hold: float
) -> None:
    pollers = polled(url, [Mode.EX] * many, hold)
    assert free(pollers) < 0.1


def test_a_polling_writer_refuses_no_reader(url: str) -> None:
    *readers, writer = polled(url, [Mode.PR] * 3 + [Mode.EX], 0.5)
    assert free([*readers, writer]) < 0.1
    refusals = [span for reader in readers for span in reader.refusals]
    by_nobody = [one for one in refusals if not any(meet(one, other) for other in writer.around)]
    # Where a try reads first, what comes between its reading and its place may be refused.
    most = len(refusals) // 20 + 3 if url.startswith("zookeeper") else 0
    assert len(by_nobody) <= most


def meet(one: Span, other: Span) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
