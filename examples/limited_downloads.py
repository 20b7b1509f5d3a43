"""At most three downloads at a time, over all processes that ask for the same semaphore.

Run it as it is: it uses the locks of this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import asyncio

import coordlock

PERMITS = 3


class Meter:
    """How many are at it, and how many were at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def __aenter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    async def __aexit__(self, *_: object) -> None:
        self.now -= 1


async def download(client: coordlock.AsyncClient, number: int, meter: Meter) -> None:
    async with client.semaphore("downloads", permits=PERMITS, timeout=60), meter:
        await asyncio.sleep(0.01)  # here the bytes would come in
        print("downloaded", number)


async def main() -> None:
    meter = Meter()
    async with coordlock.connect_async() as client, asyncio.TaskGroup() as tasks:
        for number in range(12):
            tasks.create_task(download(client, number, meter))
    print(f"never more than {meter.most} at a time")
    assert meter.most <= PERMITS


if __name__ == "__main__":
    asyncio.run(main())
