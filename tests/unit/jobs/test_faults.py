"""What goes wrong in a run of a job; the simulation loses each request, in `Scheduling`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from coordlock_memory import Fault

import coordlock
from coordlock import BackendUnavailable, JobNotRun, LockLost
from coordlock.backend import Operation, Put
from coordlock.errors import AlreadyFailed
from coordlock.jobs.view import queue_of
from coordlock.model.contender import Contender, Entry
from tests.unit.work.test_races import backend_of, before_writing

FAR = "/app/effect"
BOUND = 30.0


@pytest.fixture
def client(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root}") as client:
        yield client


@pytest.fixture
def other(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root}") as client:
        yield client


def run_once(client: coordlock.Client, starts: list[int], policy: Any) -> None:
    with client.job("j", policy=policy, retry_delay=0).run(1) as run:
        starts.append(run.attempt)


@pytest.mark.parametrize("policy", ["at-most-once", "at-least-once"])
@pytest.mark.parametrize("what", ["start", "end"])
def test_a_run_that_is_lost_before_it_writes_changes_nothing(
    client: coordlock.Client, other: coordlock.Client, policy: Any, what: str
) -> None:
    """The other one runs in between, and its record stays."""
    starts: list[str] = []

    def overtake(guards: Sequence[Contender]) -> None:
        backend_of(other).service.remove(guards[0])
        with suppress(JobNotRun), other.job("j", policy=policy).run(1):
            starts.append("other")

    if what == "start":
        before_writing(client, "@jobs/", overtake)
    lost = pytest.raises((LockLost, coordlock.errors.Evicted))
    with lost, client.job("j", policy=policy, retry_delay=0).run(1):
        starts.append("client")
        before_writing(client, "@jobs/", overtake)
    wanted = {
        ("start", "at-most-once"): ["other"],
        ("start", "at-least-once"): ["other"],
        ("end", "at-most-once"): ["client"],
        ("end", "at-least-once"): ["client", "other"],
    }
    assert starts == wanted[what, policy]
    [slot] = other.job("j").info().slots
    assert slot.state == ("interrupted" if starts == ["client"] else "done")


def test_the_record_of_a_start_that_came_late_counts(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    """Its session ended before the answer: the slot is spent, and nobody has run it."""
    backend = backend_of(client)
    write = backend.write

    def lose_after(operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Any:
        made = write(operations, guards)
        if any(isinstance(one, Put) and "@jobs/" in one.key for one in operations):
            del backend.write
            backend_of(other).service.remove(guards[0])
        return made

    backend.write = lose_after  # type: ignore[method-assign]
    with pytest.raises(LockLost), client.job("j").run(1) as run:
        run.verify()
    with pytest.raises(AlreadyFailed, match="was interrupted"):
        run_once(other, [], "at-most-once")
    assert other.job("j").info().slots[0].state == "interrupted"
    other.job("j").retry(1)
    starts: list[int] = []
    run_once(other, starts, "at-most-once")
    assert starts == [2]


def test_a_silent_service_says_that_the_start_may_be_recorded(
    root: str, other: coordlock.Client
) -> None:
    with coordlock.connect(f"memory://{root}", request_timeout=0.3) as client:
        backend = backend_of(client)
        take = backend.faults.take
        silent = []

        def swallow(method: str) -> Fault | None:
            if method == "write":
                silent.append(method)
                return Fault.LOSE_REPLY
            if silent:
                return Fault.LOSE_REQUEST
            return take(method)

        backend.faults.take = swallow  # type: ignore[method-assign]
        with pytest.raises(BackendUnavailable, match="may be recorded as started"):
            run_once(client, [], "at-most-once")
        del backend.faults.take
    assert other.job("j").info().slots[0].state == "interrupted"


def test_an_outage_that_the_lock_outlives_does_not_cost_the_record(
    root: str, other: coordlock.Client
) -> None:
    with coordlock.connect(f"memory://{root}", request_timeout=0.2) as client:
        with client.job("j").run(1):
            backend = backend_of(client)
            left = iter(range(4))

            def cut(method: str) -> Fault | None:
                return (
                    Fault.LOSE_REQUEST
                    if method == "write" and next(left, None) is not None
                    else None
                )

            backend.faults.take = cut  # type: ignore[method-assign]
        assert other.job("j").info().slots[0].state == "done"


def test_what_another_program_wrote_over_the_record_stays(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    key = f"{client._engine.data_root}/@jobs/j"
    with (
        pytest.raises(coordlock.BackendError, match="as coordlock writes it"),
        client.job("j").run(1),
    ):
        backend_of(other).service.write([Put(key, b"by hand")])
    assert backend_of(other).service.read(key).values[key].data == b"by hand"
    assert not backend_of(other).service.snapshot(queue_of("j")).contenders


def test_an_effect_whose_expectation_fails_is_not_recorded_as_done(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    with pytest.raises(coordlock.errors.VersionMismatch), client.job("j").run(1) as run:
        run.finish().put(FAR, b"x").expect(FAR, 7).commit()
    [slot] = other.job("j").info().slots
    assert slot.state == "failed"
    assert slot.error is not None
    assert slot.error.startswith("VersionMismatch: ")


def test_the_end_of_a_block_does_not_overtake_a_commit_that_was_cancelled(root: str) -> None:
    """Otherwise the slot would be done without its effect, and never run again."""

    async def main() -> None:
        async with coordlock.connect_async(f"memory://{root}") as client:
            backend: Any = client._access.engine.backend
            sent = asyncio.Event()
            left = iter(range(1))

            def cut(method: str) -> Fault | None:
                if method != "write" or next(left, None) is None:
                    return None
                sent.set()
                return Fault.LOSE_REQUEST

            async with client.job("j").run(1) as run:
                backend.faults.take = cut
                committing = asyncio.create_task(run.finish().put(FAR, b"x").commit())
                await sent.wait()
                committing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await committing
            [slot] = (await client.job("j").info()).slots
            assert slot.state == "done"
            written = await client.value(FAR).get()
            assert written is not None
            assert written.data == b"x"

    asyncio.run(main())


def test_a_second_release_of_a_run_waits_for_the_answer_of_the_first(root: str) -> None:
    async def main() -> None:
        async with coordlock.connect_async(f"memory://{root}") as client:
            backend: Any = client._access.engine.backend
            withdraw = backend.withdraw

            def evicted_before(entries: Sequence[Entry]) -> Any:
                backend.service.withdraw(entries)
                backend.faults.latency = lambda: 0.1
                return withdraw(entries)

            run = await client.job("j").run(1).__aenter__()
            backend.withdraw = evicted_before
            answers = await asyncio.gather(run.release(), run.release())
            assert not any(answers)

    asyncio.run(main())


def test_the_body_of_a_coroutine_is_cancelled_at_a_loss_and_records_nothing(
    root: str, other: coordlock.Client
) -> None:
    ended: list[str] = []

    async def work(client: coordlock.AsyncClient) -> None:
        async with client.job("j", policy="at-least-once").run(1):
            [mine] = backend_of(other).service.snapshot(queue_of("j")).contenders
            backend_of(other).service.remove(mine)
            try:
                await asyncio.sleep(BOUND)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    async def main() -> None:
        async with coordlock.connect_async(f"memory://{root}") as client:
            with pytest.raises(LockLost, match="'j'"):
                await work(client)

    asyncio.run(main())
    assert ended == ["cancelled"]
    [slot] = other.job("j").info().slots
    assert (slot.state, slot.attempts) == ("interrupted", 1)
    starts: list[int] = []
    run_once(other, starts, "at-least-once")
    assert starts == [2]


def test_an_operator_who_stood_still_changes_nothing_while_a_job_is_at_work(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    """The lock was free when the change began, and is held by a run when it is written."""
    run_once(other, [], "at-most-once")
    begun = other.job("j").run(2)

    def overtake(guards: Sequence[Contender]) -> None:
        backend_of(other).service.remove(guards[0])
        begun.__enter__()

    before_writing(client, "@jobs/", overtake)
    with pytest.raises(coordlock.errors.Evicted, match="'j'"):
        client.job("j").retry(1)
    begun.__exit__(None, None, None)
    assert [slot.state for slot in other.job("j").info().slots] == ["done", "done"]


def test_a_run_that_ends_while_it_is_looked_at_is_not_interrupted(
    client: coordlock.Client, other: coordlock.Client
) -> None:
    begun = client.job("j").run(1)
    begun.__enter__()
    backend = backend_of(other)
    snapshot = backend.snapshot

    def end_before(*arguments: Any, **options: Any) -> Any:
        del backend.snapshot
        begun.__exit__(None, None, None)
        return snapshot(*arguments, **options)

    backend.snapshot = end_before  # type: ignore[method-assign]
    assert [slot.state for slot in other.job("j").info().slots] == ["done"]
