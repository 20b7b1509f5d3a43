"""Giving up in a deadlock, when something else comes at the same time."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace

import pytest
from coordlock_memory import Fault, MemoryBackend, MemoryService

from coordlock.errors import DeadlockDetected, SessionLost, TooLarge
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.deadlock_detector import WAITS
from coordlock.kernel.ticket import Ticket
from coordlock.locks.grant import Grant
from coordlock.locks.upgradeable import UpgradeableGrant
from coordlock.model.claim import AnyClaim, Convertible, Mode
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.model.waits import Wait
from coordlock.runtime import log
from coordlock.runtime.caller import Caller
from coordlock.runtime.promise import Promise, failed
from tests.simulation.world import TTL, Call, Party, World

#: Each party is another process.
_threads: weakref.WeakKeyDictionary[Party, threading.Thread] = weakref.WeakKeyDictionary()


def caller(party: Party) -> Caller:
    return weakref.ref(_threads.setdefault(party, threading.Thread()))


def acquired(party: Party, queue: str, claim: AnyClaim) -> Grant:
    """A grant whose caller is known."""
    call = party.run(acquisition(party.engine, {queue: claim}, None, caller(party)))
    party.world.settle()
    return party.grant(call.result)


def cycle(world: World) -> tuple[Call[None], Call[Ticket]]:
    """A conversion that waits for a reader, and the reader, which came before: it waits, too."""
    one, two = world.party(), world.party()
    acquired(one, "b", Mode.EX)
    acquired(two, "a", Mode.PR)
    converting = acquired(one, "a", Convertible(Mode.PR))
    assert isinstance(converting, UpgradeableGrant)
    conversion = one.run(converting._upgrade(None))
    waiting = two.run(acquisition(two.engine, {"b": Mode.EX}, None, caller(two)))
    world.settle()
    return conversion, waiting


def refuse(patched: pytest.MonkeyPatch, queue: str | None = None) -> None:
    """Let the service refuse what clients publish of their waits, or of those for ``queue``."""
    enqueue = MemoryBackend.enqueue

    def refusing(
        self: MemoryBackend, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        wait = Wait.decode(entries[0].value) if entries[0].queue == WAITS else None
        if wait is not None and queue in (None, wait.waits[0][0]):
            return failed(TooLarge("memory", "the record is too long"))
        return enqueue(self, entries, unless_blocked=unless_blocked)

    patched.setattr(MemoryBackend, "enqueue", refusing)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service refuses what clients publish of their waits."""
    refuse(monkeypatch)


@pytest.mark.usefixtures("refusing")
def test_a_record_that_the_service_refuses_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    conversion, waiting = cycle(world)
    world.advance(30.0)
    assert (conversion.done, waiting.done) == (False, False)
    log.flush(10)
    assert caplog.text.count("may go undetected: ") == 2  # once for each client
    assert "the record is too long" in caplog.text


def test_a_record_that_the_service_refuses_for_a_while_is_published_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        refuse(patched)
        _, waiting = cycle(world)
        world.advance(5.0)
    world.advance(30.0)
    assert isinstance(waiting.error, DeadlockDetected)


def test_a_record_that_the_service_refuses_keeps_no_other_one_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "c")
    _, waiting = cycle(world)
    acquired(world.party(), "c", Mode.EX)
    for party in world.parties[:2]:
        party.run(acquisition(party.engine, {"c": Mode.EX}, None, caller(party)))
    world.advance(30.0)
    assert isinstance(waiting.error, DeadlockDetected)


@pytest.mark.usefixtures("refusing")
def test_a_client_whose_records_are_refused_says_so_once(
    world: World, party: Party, caplog: pytest.LogCaptureFixture
) -> None:
    acquired(world.party(), "b", Mode.EX)
    acquired(party, "a", Mode.EX)
    for _ in range(3):
        waiting = party.run(acquisition(party.engine, {"b": Mode.EX}, 5.0, caller(party)))
        world.advance(6.0)
        assert waiting.done
    log.flush(10)
    assert caplog.text.count("may go undetected") == 1


def test_a_wait_whose_session_ends_says_so_and_nothing_of_deadlocks(
    world: World, party: Party, caplog: pytest.LogCaptureFixture
) -> None:
    acquired(world.party(), "b", Mode.EX)
    acquired(party, "a", Mode.EX)
    waiting = party.run(acquisition(party.engine, {"b": Mode.EX}, None, caller(party)))
    world.settle()
    party.cut_off()
    world.advance(TTL)
    assert isinstance(waiting.error, SessionLost)
    log.flush(10)
    assert "deadlocks" not in caplog.text


def test_what_was_published_in_between_may_have_ended_the_circle(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversion, waiting = cycle(world)
    found = MemoryService.snapshot

    def changed(self: MemoryService, queue: str, upto: Contender | None = None) -> Snapshot:
        snapshot = found(self, queue, upto)
        changing = (
            replace(one, version=next(versions)) if isinstance(one.claim, Convertible) else one
            for one in snapshot.contenders
        )
        return replace(snapshot, contenders=tuple(changing))

    versions = itertools.count(100)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryService, "snapshot", changed)
        world.advance(30.0)
        assert not conversion.done
        assert not waiting.done
    world.advance(30.0)
    assert isinstance(waiting.error, DeadlockDetected)


def test_what_was_released_is_not_kept_though_an_old_request_makes_it_anew(world: World) -> None:
    one, two = world.party(), world.party()
    one.network.faults.inject("enqueue", Fault.LOSE_REQUEST, 1)
    call = one.run(acquisition(one.engine, {"a": Mode.PR}, None, caller(one)))
    world.advance(0.5)  # it is sent again
    ghost = call.result
    ghost.withdraw()
    world.advance(1.5)  # it was removed again after one second, and is to be after five
    converting = acquired(two, "a", Convertible(Mode.PR))
    assert isinstance(converting, UpgradeableGrant)
    acquired(two, "b", Mode.EX)
    # The fault: the request was not lost, and is done now.
    world.service.enqueue(ghost.session.id, ghost.entries)
    conversion = two.run(converting._upgrade(None))
    waiting = one.run(acquisition(one.engine, {"b": Mode.EX}, None, caller(one)))
    world.advance(2.5)  # the looks for a deadlock begin after a second
    assert (conversion.done, waiting.done) == (False, False), "the ghost is in the way"
    world.advance(5)
    assert (conversion.done, waiting.done) == (True, False), "the ghost was removed"
    assert conversion.error is None
