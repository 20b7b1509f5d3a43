"""Many waiters of one lock, in one asyncio process; run as a worker."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar

import coordlock
from coordlock.kernel.ticket import Ticket
from testbed.order import is_told_in_order

__all__ = ["Crowd"]

T = TypeVar("T")


class _Counted:
    """A coroutine, and how often it was resumed."""

    def __init__(self, body: Coroutine[Any, Any, T]) -> None:
        self._body = body
        self.resumed = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._body.__await__()
        sent: Any = None
        while True:
            try:
                awaited = steps.send(sent)
            except StopIteration as stop:
                return stop.value
            try:
                sent = yield awaited
            except BaseException as error:  # a cancellation
                awaited = steps.throw(error)
                sent = yield awaited
            self.resumed += 1


class Crowd:
    """The asyncio client that is measured, under the orders of a worker."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._open: Final = AsyncExitStack()
        self._url = url
        self._tasks: list[asyncio.Task[None]] = []
        self._resumed = 0
        self._client: coordlock.AsyncClient = self._runner.run(self._connect())

    async def _connect(self) -> coordlock.AsyncClient:
        client = await self._open.enter_async_context(coordlock.connect_async(self._url))
        await (await client.lock("warm").acquire()).release()
        return client

    def line_up(self, name: str, waiters: int, settle: float, at_once: int) -> dict[str, float]:
        """Let so many tasks wait for ``name``, which is held elsewhere; what each takes.

        They come ``at_once``, and then the next so many.
        """

        async def wait() -> None:
            counted = _Counted(self._client.lock(name).acquire(timeout=None))
            grant: coordlock.AsyncGrant = await counted
            self._resumed += counted.resumed
            await grant.release()

        async def main() -> dict[str, float]:
            before, cpu = _resident(), time.process_time()
            self._tasks = await self._come(name, waiters, at_once, wait)
            await self._watch(name)
            cpu = time.process_time() - cpu
            await asyncio.sleep(settle)
            gc.collect()
            return {
                "resident": (_resident() - before) / waiters,
                "threads": threading.active_count(),
                "cpu": cpu / waiters,
            }

        return self._runner.run(main())

    def idle(self, seconds: float) -> float:
        """The CPU, in seconds per second, that this process takes while its tasks wait."""

        async def main() -> float:
            started, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(seconds)
            return (time.process_time() - cpu) / (time.perf_counter() - started)

        return self._runner.run(main())

    def drain(self) -> dict[str, float]:
        """Return when all who lined up have had the lock."""

        async def main() -> None:
            await asyncio.gather(*self._tasks)

        cpu, switches = time.process_time(), _switches()
        self._runner.run(main())
        waiters = len(self._tasks)
        self._tasks = []
        resumed, self._resumed = self._resumed, 0
        return {
            "done": time.monotonic(),
            "cpu": (time.process_time() - cpu) / waiters,
            "switches": (_switches() - switches) / waiters,
            "resumed": resumed / waiters,
        }

    async def _come(
        self, name: str, waiters: int, at_once: int, wait: Callable[[], Coroutine[Any, Any, None]]
    ) -> list[asyncio.Task[None]]:
        """Start so many tasks that ``wait`` for ``name``; they stand in its queue."""
        tasks: list[asyncio.Task[None]] = []
        try:
            while len(tasks) < waiters:
                wave = min(at_once, waiters - len(tasks))
                tasks += [asyncio.create_task(wait()) for _ in range(wave)]
                await self._stand(name, tasks)
        except BaseException:
            # One of them tells why; thousands would fill the log.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return tasks

    async def _stand(self, name: str, waiters: Sequence[asyncio.Task[None]]) -> None:
        """Return when all of ``waiters`` stand in the queue on the service, behind its holder.

        Raises what the first one raised that ended instead. Nothing is asked, which would cost
        what is measured: a ticket has a contender when the service has answered that it stands
        there, and keeps it until it is withdrawn or lost.
        """
        link = self._client._engine
        standing, took = 0, 0.0
        while standing < len(waiters):
            await asyncio.sleep(max(0.02, 20 * took))
            started = time.perf_counter()
            for ended in filter(asyncio.Task.done, waiters):
                ended.result()
                raise RuntimeError("a waiter was granted the lock: its holder has lost it")
            standing = sum(_stands(one) for one in link.tickets if one.entries[0].queue == name)
            took = time.perf_counter() - started

    async def _watch(self, name: str) -> None:
        """Return when those who wait for ``name`` are told in order, or after a minute.

        All but one, or one in a hundred: what shows it of the last may be yet to come.
        """
        link = self._client._engine
        for _ in range(600):
            tickets = [one for one in link.tickets if one.entries[0].queue == name]
            known = [contender for one in tickets for contender in one.contenders]
            late = sum(not is_told_in_order(link.backend, one) for one in known)
            if late <= max(1, len(known) / 100):
                return
            await asyncio.sleep(0.1)

    def memory(self, name: str, waiters: int, at_once: int) -> float:
        """Bytes of Python's memory for each of ``waiters``, beyond a bare task and a future.

        ``name`` is held elsewhere. They give up at the end.
        """

        async def traced(tasks: int, waiting: bool) -> float:
            futures: list[asyncio.Future[None]] = []

            async def bare() -> None:
                futures.append(asyncio.get_running_loop().create_future())
                await futures[-1]

            async def wait() -> None:
                await self._client.lock(name).acquire(timeout=None)

            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            if waiting:
                running = await self._come(name, tasks, at_once, wait)
                await self._watch(name)  # or what is on its way would count
                await asyncio.sleep(1)
            else:
                running = [asyncio.create_task(bare()) for _ in range(tasks)]
                await asyncio.sleep(0)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            return (after - before) / tasks

        async def main() -> float:
            await traced(10, waiting=True)
            tracemalloc.start()
            bare = await traced(waiters, waiting=False)
            taken = await traced(waiters, waiting=True)
            tracemalloc.stop()
            return taken - bare

        return self._runner.run(main())

    def close(self) -> None:
        self._runner.run(self._open.aclose())
        self._runner.close()


def _stands(ticket: Ticket) -> bool:
    return bool(ticket.contenders) and not ticket.end.done()


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as sizes:
        return int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _switches() -> int:
    with open("/proc/self/status", encoding="ascii") as lines:
        # Of the main thread: how often it gave up the processor to wait.
        return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
