"""Work that ends when its lock is lost, instead of going on beside its successor.

Run it as it is: it uses the locks of this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import asyncio

import coordlock


async def operator(name: str) -> None:
    """Take the lock away from its holder, as ``coordlock evict`` does."""
    async with coordlock.connect_async() as client:
        for contender in await client.admin.contenders(name):
            await client.admin.evict(contender)


async def work(started: asyncio.Event) -> None:
    for step in range(1_000_000):
        if step == 3:
            started.set()
        await asyncio.sleep(0.01)


async def main() -> None:
    started = asyncio.Event()
    async with coordlock.connect_async() as client, asyncio.TaskGroup() as tasks:

        async def guarded() -> None:
            grant = await client.lock("job").acquire(timeout=30)
            try:
                async with grant.cancel_on_loss():
                    await work(started)
            except coordlock.LockLost as error:
                print("stopped:", error)

        tasks.create_task(guarded())
        await started.wait()
        tasks.create_task(operator("job"))


if __name__ == "__main__":
    asyncio.run(main())
