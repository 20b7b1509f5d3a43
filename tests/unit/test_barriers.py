"""Barriers on a bad network, with parties that stand still, and given up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from coordlock_memory import Fault

from coordlock import BackendUnavailable, Client, WaitTimeout
from coordlock.model.contender import Entry
from coordlock.model.record import decode, encode
from coordlock.recipes.shared.rendezvous import Generations
from coordlock.runtime.driver import Call
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service, backend

BOUND = 30.0


@pytest.fixture
def service() -> Service:
    return Service()


def waiting(pool: ThreadPoolExecutor, client: Client, parties: int) -> Future[None]:
    """A party in another thread."""
    return pool.submit(client.barrier("b", parties).wait, BOUND)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("method", ["write", "read", "snapshot", "enqueue", "withdraw"])
def test_whatever_becomes_of_a_request_the_parties_pass_together(
    service: Service, method: str, fault: Fault, times: int
) -> None:
    clients = [service.client() for _ in range(3)]
    for one in clients:
        backend(one).faults.inject(method, fault, times)
    with ThreadPoolExecutor(3) as pool:
        for party in [waiting(pool, client, 3) for client in clients]:
            party.result(BOUND)
    eventually(lambda: service.size("b") == 0)
    [record] = [one for key, one in service.service._state.data.items() if "@barriers" in key]
    assert Generations.parse(decode(record.data)).last == 1


def test_the_others_pass_though_the_last_one_stands_still(service: Service) -> None:
    clients = [service.client() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        others = [waiting(pool, client, 3) for client in clients[:2]]
        eventually(lambda: service.size("b") == 2)
        # It arrives, and nothing that it asks from then on gets through.
        still = backend(clients[2])
        still.faults.inject("read", Fault.LOSE_REQUEST, times=10**6)
        still.faults.inject("snapshot", Fault.LOSE_REQUEST, times=10**6)
        last = waiting(pool, clients[2], 3)
        for one in others:
            one.result(BOUND)
        still.faults._next.clear()
        last.result(BOUND)


def test_a_party_that_has_passed_when_its_time_is_up_has_passed(service: Service) -> None:
    """The barrier opens between its last look and its withdrawal."""
    slow, fast = service.client(), service.client()
    with ThreadPoolExecutor(2) as pool:
        backend(slow).faults.latency = lambda: 0.2
        late = pool.submit(slow.barrier("b", 2).wait, 0.5)
        eventually(lambda: service.size("b") == 1)
        removing = service.service.withdraw

        def withdraw(entries: Sequence[Entry]) -> bool:
            """Before it leaves, the other comes, and the barrier opens."""
            service.service.withdraw = removing  # type: ignore[method-assign]
            fast.barrier("b", 2).wait(BOUND)
            return removing(entries)

        service.service.withdraw = withdraw  # type: ignore[method-assign]
        late.result(BOUND)


def test_a_party_that_cannot_reach_the_service_says_that_it_may_have_passed(
    service: Service,
) -> None:
    client = service.client(request_timeout=0.2)
    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(client.barrier("b", 2).wait, 0.5)
        eventually(lambda: service.size("b") == 1)
        backend(client).faults.partition()
        with pytest.raises(BackendUnavailable, match="may have been passed, or may be yet"):
            alone.result(BOUND)
        backend(client).faults.heal()
    eventually(lambda: service.size("b") == 0)


def test_a_party_that_is_interrupted_leaves_nothing_behind(service: Service) -> None:
    client = service.client()
    for kind in ("wait", "enter"):
        barrier = client.barrier("b", 2) if kind == "wait" else client.double_barrier("b", 2)
        steps = getattr(barrier, f"_{kind}")()
        step = next(steps)
        while service.size("b") == 0 or step is Call or step.done():
            step = steps.send(Call() if step is Call else step.result())
        with pytest.raises(KeyboardInterrupt):
            steps.throw(KeyboardInterrupt())
        eventually(lambda: service.size("b") == 0)
    assert not backend(client)._observers.places()


def test_a_cancelled_party_leaves_nothing_behind(service: Service) -> None:
    async def main() -> None:
        client = service.async_client()
        task = asyncio.create_task(client.barrier("b", 2).wait())
        await asyncio.to_thread(eventually, lambda: service.size("b") == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(eventually, lambda: service.size("b") == 0)
        await client.close()

    asyncio.run(main())


def test_a_party_whose_session_is_lost_does_not_count(service: Service) -> None:
    client, other = service.client(), service.client()
    with ThreadPoolExecutor(1) as pool:
        lost = waiting(pool, client, 2)
        eventually(lambda: service.size("b") == 1)
        [session] = {one.session for one in service.service.snapshot("b").contenders}
        service.service.expire(session)
        with pytest.raises(ConnectionError, match="expired"):
            lost.result(BOUND)
    with pytest.raises(WaitTimeout, match="1 of 2"):
        other.barrier("b", 2).wait(0)


# The record


def test_a_record_lists_the_last_generations_whole_and_who_is_queued_of_the_older_ones() -> None:
    generations = Generations()
    for number in range(1, 201):
        passing = [f"{number}a", f"{number}b"]
        queued = {"3b", *passing}
        generations = Generations.parse(generations.after(passing, queued))
        assert generations.last == number
        assert generations.of(f"{number}a") == frozenset(passing)
    assert generations.listed[3] == ["3b"]
    assert generations.of("3a") is None
    assert generations.whole_from == 200 - 128 + 1
    whole = range(generations.whole_from, 201)
    assert all(len(generations.listed[number]) == 2 for number in whole)
    assert len(generations.listed) == 129
    generations = Generations.parse(generations.after(["x"] * 100, ()))
    assert 3 not in generations.listed


def test_the_record_stays_small_with_a_hundred_parties() -> None:
    generations = Generations()
    for number in range(1, 50):
        fields = generations.after([f"{number:032x}"] * 100, ())
        generations = Generations.parse(fields)
    assert len(generations.listed) == 2
    assert len(encode(generations.after([f"{50:032x}"] * 100, ()))) < 20_000


def test_two_parties_pass_only_once_in_each_generation(service: Service) -> None:
    clients = [service.client() for _ in range(2)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            for one in [waiting(pool, client, 2) for client in (*clients, *clients)]:
                one.result(BOUND)
    [record] = [one for key, one in service.service._state.data.items() if "@barriers" in key]
    generations = Generations.parse(decode(record.data))
    assert generations.last == 40
    ids = [id for listed in generations.listed.values() for id in listed]
    assert len(ids) == len(set(ids)) == 80
