"""`WorkQueue.run`: handlers that fail, take their time, or are none."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from coordlock.types import WorkQueueStats

BOUND = 30.0


class Unprintable(Exception):
    """An error of an application, whose text can't be made."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.fixture
def client(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root}") as client:
        yield client


def test_an_exception_is_a_failure_of_that_item_and_the_loop_goes_on(
    client: coordlock.Client,
) -> None:
    queue = client.work_queue("q", max_failures=2)
    done: list[bytes] = []

    def handle(item: coordlock.Item) -> None:
        if item.data == b"bad":
            raise Unprintable
        done.append(item.data)

    for data in (b"one", b"bad", b"two"):
        queue.put(data)
    assert queue.run(handle, timeout=0.3) == 2
    assert done == [b"one", b"two"]
    [dead] = queue.dead()
    assert (dead.failures, dead.reason) == (
        2,
        "Unprintable: its text can't be made: ZeroDivisionError",
    )


def test_so_many_are_at_work_and_no_more_are_claimed(client: coordlock.Client) -> None:
    queue, all_there, go_on = client.work_queue("q"), threading.Semaphore(0), threading.Event()
    for number in range(5):
        queue.put(b"%d" % number)

    def handle(_: coordlock.Item) -> None:
        all_there.release()
        assert go_on.wait(BOUND)

    with ThreadPoolExecutor() as pool:
        running = pool.submit(lambda: queue.run(handle, concurrency=3, timeout=0.3))
        for _ in range(3):
            assert all_there.acquire(timeout=BOUND)
        assert queue.stats() == WorkQueueStats(waiting=2, taken=3, delayed=0, dead=0)
        go_on.set()
        assert running.result(BOUND) == 5


@pytest.mark.parametrize("grace", [BOUND, 0.05])
def test_when_it_is_to_stop_handlers_have_their_grace_and_the_rest_goes_back_without_blame(
    client: coordlock.Client, grace: float
) -> None:
    queue, stop, begun, go_on = (
        client.work_queue("q"),
        coordlock.Cancellation(),
        threading.Event(),
        threading.Event(),
    )
    queue.put(b"one")
    queue.put(b"two")

    def handle(_: coordlock.Item) -> None:
        begun.set()
        assert go_on.wait(BOUND)

    with ThreadPoolExecutor() as pool:
        running = pool.submit(lambda: queue.run(handle, grace=grace, cancellation=stop))
        assert begun.wait(BOUND)
        stop.cancel()
        if grace == BOUND:
            go_on.set()
        assert running.result(BOUND) == (grace == BOUND)
        go_on.set()
    left = [(one.data, one.state, one.failures) for one in queue.items()]
    assert left == [(b"one", "waiting", 0)] * (grace != BOUND) + [(b"two", "waiting", 0)]


def test_a_run_that_was_stopped_ends_well_where_its_client_is_closed_at_once(root: str) -> None:
    with ThreadPoolExecutor() as pool:
        for _ in range(50):  # the close must strike a run before it has seen the stop
            client, stop = coordlock.connect(f"memory://{root}"), coordlock.Cancellation()
            queue, done = client.work_queue("q"), threading.Semaphore(0)
            queue.put(b"one")

            def handle(_: coordlock.Item, done: threading.Semaphore = done) -> None:
                done.release()

            running = pool.submit(queue.run, handle, concurrency=2, cancellation=stop)
            assert done.acquire(timeout=BOUND)
            stop.cancel()
            client.close()
            assert running.result(BOUND) in (0, 1)


def test_tasks_are_cancelled_after_their_grace_and_with_the_run(root: str) -> None:
    async def main() -> list[Any]:
        async with coordlock.connect_async(f"memory://{root}") as client:
            queue, stop = client.work_queue("q"), coordlock.Cancellation()
            ended: list[bytes] = []
            await queue.put(b"one")

            async def handle(item: coordlock.AsyncItem) -> None:
                if ended:
                    running.cancel()
                else:
                    stop.cancel()
                try:
                    await asyncio.sleep(1000)
                finally:
                    ended.append(item.data)

            running = asyncio.create_task(queue.run(handle, grace=0.05, cancellation=stop))
            assert await running == 0
            running = asyncio.create_task(queue.run(handle))
            with pytest.raises(asyncio.CancelledError):
                await running
            return [*ended, *((one.state, one.failures) for one in await queue.items())]

    assert asyncio.run(main()) == [b"one", b"one", ("waiting", 0)]


async def a_coroutine(item: object) -> None:
    pytest.fail("it is not to run")


def a_generator(item: object) -> Iterator[None]:
    yield pytest.fail("it is not to run")


async def an_async_generator(item: object) -> AsyncIterator[None]:
    yield pytest.fail("it is not to run")


@pytest.mark.parametrize("is_hidden", [False, True])
@pytest.mark.parametrize("function", [a_coroutine, a_generator, an_async_generator])
def test_a_handler_whose_body_would_not_run_is_refused_and_costs_no_item(
    client: coordlock.Client, function: Callable[[object], object], is_hidden: bool
) -> None:
    queue = client.work_queue("q", max_failures=1)
    queue.put(b"one")
    handler = (lambda item: function(item)) if is_hidden else function
    with pytest.raises(TypeError, match="whose body would not run before"):
        queue.run(handler, timeout=1)
    eventually(lambda: queue.stats() == WorkQueueStats(waiting=1, taken=0, delayed=0, dead=0))


def test_what_is_no_coroutine_function_is_refused_in_tasks(root: str) -> None:
    async def main() -> None:
        async with coordlock.connect_async(f"memory://{root}") as client:
            await client.work_queue("q").put(b"one")
            with pytest.raises(TypeError, match="run calls a handler, not None"):
                await client.work_queue("q").run(None, timeout=1)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="is not a coroutine function"):
                await client.work_queue("q").run(lambda item: None)  # type: ignore[arg-type,return-value]

    asyncio.run(main())


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"grace": -1}, {"cancellation": "stop"}])
def test_what_makes_no_sense_is_refused(client: coordlock.Client, wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        client.work_queue("q").run(print, **wrong)


def test_what_ends_a_program_ends_the_run(client: coordlock.Client) -> None:
    queue = client.work_queue("q")
    queue.put(b"one")
    with pytest.raises(SystemExit):
        queue.run(lambda item: sys.exit(3))
    assert [(one.state, one.failures) for one in queue.items()] == [("waiting", 0)]


def test_what_ends_a_program_ends_the_run_of_tasks(root: str) -> None:
    class Stop(BaseException):
        pass

    async def handle(_: coordlock.AsyncItem) -> None:
        raise Stop

    async def main() -> list[tuple[str, int]]:
        async with coordlock.connect_async(f"memory://{root}") as client:
            queue = client.work_queue("q")
            await queue.put(b"one")
            with pytest.raises(Stop):
                await asyncio.wait_for(queue.run(handle), BOUND)
            return [(one.state, one.failures) for one in await queue.items()]

    assert asyncio.run(main()) == [("waiting", 0)]


def test_a_handler_that_raises_cancelled_error_of_its_own_has_failed(root: str) -> None:
    async def handle(_: coordlock.AsyncItem) -> None:
        raise asyncio.CancelledError

    async def main() -> list[tuple[int, int]]:
        async with coordlock.connect_async(f"memory://{root}") as client:
            queue = client.work_queue("q", max_failures=2)
            await queue.put(b"one")
            assert await asyncio.wait_for(queue.run(handle, timeout=0.3), BOUND) == 0
            return [(one.failures, one.deliveries) for one in await queue.dead()]

    assert asyncio.run(main()) == [(2, 2)]


def test_a_task_that_swallows_its_cancellation_has_not_done_its_item(root: str) -> None:
    async def main() -> list[tuple[str, int]]:
        async with coordlock.connect_async(f"memory://{root}") as client:
            queue, stop = client.work_queue("q"), coordlock.Cancellation()
            await queue.put(b"one")

            async def handle(_: coordlock.AsyncItem) -> None:
                stop.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(1000)

            assert await queue.run(handle, grace=0.05, cancellation=stop) == 0
            return [(one.state, one.failures) for one in await queue.items()]

    assert asyncio.run(main()) == [("waiting", 0)]


def test_a_thread_that_cannot_be_started_ends_the_run_at_once(
    client: coordlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = client.work_queue("q")
    queue.put(b"one")
    queue.depth()  # the client's own threads are there

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    began = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            queue.run(print, grace=BOUND)
    assert time.monotonic() - began < BOUND / 2
    eventually(lambda: [(one.state, one.failures) for one in queue.items()] == [("waiting", 0)])


SIGTERM_IN_THREADS = """
import coordlock, os, signal, sys, time
def handle(item):
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
with coordlock.connect("memory://") as client:
    queue = client.work_queue("q")
    queue.put(b"one")
    print(queue.run(handle))
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""
SIGTERM_IN_TASKS = """
import asyncio, coordlock, os, signal
async def handle(item):
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.2)
async def main():
    async with coordlock.connect_async("memory://") as client:
        queue = client.work_queue("q")
        await queue.put(b"one")
        print(await queue.run(handle))
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
asyncio.run(main())
"""
SIGTERM_FOR_TWO_RUNS = """
import asyncio, coordlock, os, signal
async def handle(item):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.2)
async def main():
    async with coordlock.connect_async("memory://") as client:
        queues = [client.work_queue(name) for name in ("a", "b")]
        await queues[0].put(b"one")
        print(sum(await asyncio.gather(*(queue.run(handle) for queue in queues))))
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
asyncio.run(main())
"""
SIGTERM_FOR_A_CHILD = """
import coordlock, multiprocessing, signal, time
def work(begun):
    begun.set()
    time.sleep(60)
def handle(item):
    fork = multiprocessing.get_context("fork")
    begun = fork.Event()
    child = fork.Process(target=work, args=[begun])
    child.start()
    begun.wait(20)
    child.terminate()
    child.join(20)
    assert child.exitcode == -signal.SIGTERM
with coordlock.connect("memory://") as client:
    queue = client.work_queue("q")
    queue.put(b"one")
    print(queue.run(handle, timeout=0.1))
"""


@pytest.mark.parametrize(
    "program", [SIGTERM_IN_THREADS, SIGTERM_IN_TASKS, SIGTERM_FOR_TWO_RUNS, SIGTERM_FOR_A_CHILD]
)
def test_sigterm_once_or_twice_ends_a_run_with_grace(program: str) -> None:
    """Where the program leaves SIGTERM to the system: all its runs, and no child's end."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BOUND)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
