"""A client process of a run: threads and tasks that use locks, and write down what happens.

``python -m testbed.clients.client --url U --journal FILE --name c3 --seed 7 --workload W
--resource SOCKET`` has one client for threads and one for asyncio, and prints "ready" when both are
connected. It obeys lines on its input:

* "go": go to work.
* "prove": be granted a lock with either client, print "proven".
* "drain": begin nothing new, wait until every call is answered and all that was given up is
  withdrawn, print "drained". It may go on to hold one lock that nobody else uses.
* "agree": let those who observe go on until they are shown what the service tells, print "agreed".
* "stop", or the end of the input: close both clients and exit.

Whatever is not to be expected of faults ends it with a traceback and status 1.
"""

from __future__ import annotations

import testbed.clients.sleeping  # noqa: F401

# isort: split

import argparse
import asyncio
import contextlib
import faulthandler
import logging
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import coordlock_etcd.watcher
from coordlock_faults.journal import Journal

import coordlock
from coordlock.model.claim import Mode
from coordlock.runtime.driver import completion
from testbed.clients.alarm import alarm, install, watch_loop
from testbed.clients.attempt_log import THREADS
from testbed.clients.scribe import Scribe
from testbed.clients.steps import Steps, run, run_async
from testbed.clients.worker import EXPECTED, Patience, Worker
from testbed.clients.workloads import WORKLOADS
from testbed.resource.remote import AsyncRemote, Remote

__all__ = ["ClientProcess"]

log = logging.getLogger("testbed")


class Hands:
    """Threads and tasks that come to an end by themselves."""

    def __init__(self) -> None:
        self.threads: Final[list[threading.Thread]] = []
        self.tasks: Final[list[asyncio.Task[None]]] = []

    async def join(self) -> None:
        """Wait until all have ended."""
        await asyncio.gather(*self.tasks)
        for thread in self.threads:
            thread.join()


class ClientProcess:
    """Two clients, one for threads and one for asyncio, and those who use them."""

    def __init__(
        self,
        client: coordlock.Client,
        other: coordlock.AsyncClient,
        journal: Journal,
        options: argparse.Namespace,
    ) -> None:
        self._client = client
        self._async_client = other
        self._options = options
        self._scribe = Scribe(journal)
        self._workload = WORKLOADS[options.workload](options.locks)
        self._draining = threading.Event()
        self._parting = threading.Event()
        self._workers = Hands()
        self._observers = Hands()
        self._leaving = False

    def begin(self) -> None:
        """Set everybody to work."""
        dice = random.Random(self._options.seed)
        if self._workload.observes:
            self._start("observer", self._workload.follow, self._observers)
            self._begin("observer", self._workload.follow, self._observers)
        for number in range(self._workload.threads):
            self._start(f"thread{number}", self._workload.work)
        for number in range(self._workload.tasks):
            self._begin(f"task{number}", self._workload.work)
        if dice.random() < 0.7:
            dice.choice([self._start, self._begin])("keeper", self._keep)

    async def prove(self) -> None:
        """Be granted a lock that nobody else uses, with either client, however often it takes."""
        loop, proven = asyncio.get_running_loop(), asyncio.Event()

        def prove_and_tell(worker: Worker) -> Steps[None]:
            yield from self._prove(worker)
            loop.call_soon_threadsafe(proven.set)

        self._start("prover", prove_and_tell)
        await self._begin("prover", self._prove)
        await proven.wait()

    async def drain(self) -> None:
        """Begin nothing new, and wait until all workers have ended."""
        self._draining.set()
        await self._workers.join()

    async def agree(self) -> None:
        """Wait until all observers have been shown what the service tells, or wait in vain."""
        self._parting.set()
        await self._observers.join()

    async def settle(self) -> None:
        """Wait until the service has answered all withdrawals: nobody else waits for these.

        A member of etcd may leave a request without an answer whose way to the leader broke.
        """
        engines = (self._client._engine, self._async_client._engine)
        withdrawals = [
            ticket.withdraw()
            for engine in engines
            for ticket in list(engine.tickets)
            if ticket.is_leaving
        ]
        await asyncio.gather(*map(completion, withdrawals))

    def leave(self) -> None:
        """The run is over, or given up: the clients are going to be closed.

        What is still held is written down no more. Who is still at work ends when he is told.
        """
        self._leaving = True
        for kept in self._scribe.kept:
            kept.forget()

    def _start(
        self,
        name: str,
        work: Callable[[Worker], Steps[None]],
        among: Hands | None = None,
    ) -> None:
        remote = Remote(self._options.resource)
        worker = self._worker(name, self._client, remote)

        def take_steps() -> None:
            with self._closing_expected():
                run(work(worker))
            remote.close()

        self._run(name, take_steps, among)

    def _run(self, name: str, target: Callable[[], None], among: Hands | None = None) -> None:
        thread = threading.Thread(target=target, name=f"{THREADS}-{name}", daemon=True)
        (among or self._workers).threads.append(thread)
        thread.start()

    def _begin(
        self,
        name: str,
        work: Callable[[Worker], Steps[None]],
        among: Hands | None = None,
    ) -> asyncio.Task[None]:
        remote = AsyncRemote(self._options.resource)
        worker = self._worker(name, self._async_client, remote)

        async def take_steps() -> None:
            with self._closing_expected():
                await run_async(work(worker))
            await remote.close()

        task = asyncio.create_task(take_steps(), name=name)
        task.add_done_callback(_check)
        (among or self._workers).tasks.append(task)
        return task

    @contextlib.contextmanager
    def _closing_expected(self) -> Iterator[None]:
        try:
            yield
        except coordlock.errors.ClientClosed:
            if not self._leaving:
                raise

    def _worker(
        self,
        name: str,
        client: coordlock.Client | coordlock.AsyncClient,
        remote: Remote | AsyncRemote,
    ) -> Worker:
        stages, seed = (self._draining, self._parting), self._options.seed
        return Worker(name, client, self._scribe, stages, remote, seed)

    def _keep(self, worker: Worker) -> Steps[None]:
        """Hold a lock of one's own, again and again, and at last through quiescence."""
        while not self._draining.is_set():
            kept = yield from worker.acquire(f"own-{self._scribe.name}", Mode.EX, Patience(10.0))
            if kept is None:
                yield from worker.pause(0.05)
                continue
            end = time.monotonic() + worker.dice.uniform(0, 10)
            while not (kept.lost or self._draining.is_set()) and time.monotonic() < end:
                yield from worker.pause(0.1)
            if self._draining.is_set() and not kept.lost:
                worker.keep(kept)
            else:
                yield from worker.release(kept)

    def _prove(self, worker: Worker) -> Steps[None]:
        kind = "task" if worker.is_async else "thread"
        while True:
            proof = yield from worker.acquire(
                f"proof-{self._scribe.name}-{kind}", Mode.EX, Patience(10.0)
            )
            if proof is not None:
                yield from worker.release(proof)
                return
            yield from worker.pause(0.1)


def _check(task: asyncio.Task[None]) -> None:
    if error := task.exception():
        alarm(f"in {task.get_name()}", error)


async def obey(process: ClientProcess) -> None:
    """Do what the lines on standard input say, until they end or say "stop"."""
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: protocol, sys.stdin)
    with contextlib.closing(transport):
        print("ready", flush=True)
        async for line in lines:
            match line.decode().strip():
                case "go":
                    process.begin()
                case "prove":
                    await process.prove()
                    print("proven", flush=True)
                case "drain":
                    await process.drain()
                    await process.settle()
                    print("drained", flush=True)
                case "agree":
                    await process.agree()
                    print("agreed", flush=True)
                case "stop":
                    return
                case other:
                    raise ValueError(f"no such order: {other!r}")


async def connect(url: str) -> tuple[coordlock.Client, coordlock.AsyncClient]:
    """Both clients, each of which has held a lock: as soon as no fault prevents it."""
    client = other = None
    while True:
        try:
            client = client or coordlock.connect(url)
            other = other or await coordlock.connect_async(url)
            client.lock("warm").acquire(20).release()
            await (await other.lock("warm").acquire(20)).release()
        except (*EXPECTED, TimeoutError) as error:
            log.warning("once more: %s", error)
            await asyncio.sleep(0.1)
        else:
            return client, other


async def serve(options: argparse.Namespace) -> None:
    """The whole life of the process."""
    watch_loop(asyncio.get_running_loop())
    with Journal(options.journal, options.name) as journal:
        client, other = await connect(options.url)
        process = ClientProcess(client, other, journal, options)
        await obey(process)
        process.leave()
        await other.close()
        client.close()
        await process.agree()
        await process.drain()
        await process.settle()


def main() -> None:
    """Be the client that the command line says."""
    # It reads all that it watches now and then, which would hide events that it has missed.
    vars(coordlock_etcd.watcher)["_RECHECK"] = math.inf
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--resource", required=True)
    parser.add_argument("--locks", type=int, default=3)
    install()
    # For whoever wonders what it is waiting for: see `Crew.activities`.
    faulthandler.register(signal.SIGUSR1)
    logging.getLogger("coordlock").setLevel(logging.DEBUG)
    # A child of a process whose threads are in gRPC may crash: see docs/backends/etcd.md.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    options = parser.parse_args()
    try:
        asyncio.run(serve(options))
    except Exception as error:
        alarm("in the main thread", error)


if __name__ == "__main__":
    main()
