"""Upgrades that the service refuses half-way."""

from __future__ import annotations

from typing import Any

import pytest
from coordlock_memory import MemoryBackend

from coordlock.errors import BackendError, LockLost
from coordlock.kernel.acquisition import acquisition
from coordlock.locks.grant import Grant, GrantState
from coordlock.locks.upgradeable import UpgradeableGrant
from coordlock.model.claim import AnyClaim, Convertible, Mode
from coordlock.runtime.promise import Promise, failed
from tests.simulation.world import TTL, Party, World


def granted(party: Party, claim: AnyClaim) -> Grant:
    call = party.run(acquisition(party.engine, {"q": claim}))
    party.world.settle()
    return party.grant(call.result)


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_an_upgrade_whose_session_ends_meanwhile_is_lost_and_keeps_no_reader_out(
    is_cut_off: bool,
) -> None:
    world = World()
    party, other = world.party(), world.party()
    grant = granted(party, Convertible(Mode.PR))
    assert isinstance(grant, UpgradeableGrant)
    reader = granted(other, Mode.PR)
    call = party.run(grant._upgrade(None))
    world.settle()
    if is_cut_off:
        party.cut_off()
    else:
        world.service.expire(grant._ticket.session.id)
    world.advance(2 * TTL)
    assert isinstance(call.error, LockLost)
    assert grant.state is GrantState.LOST
    reader.check()
    granted(other, Mode.PR).check()


def test_what_could_not_be_taken_back_is_gone_on_with_by_the_next_upgrade(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    party = world.party()
    grant = granted(party, Convertible(Mode.PR))
    assert isinstance(grant, UpgradeableGrant)
    reader = granted(world.party(), Mode.PR)
    publish = MemoryBackend.publish
    calls: list[Any] = []

    def full(self: MemoryBackend, *arguments: Any) -> Promise[None]:
        calls.append(arguments)
        if len(calls) > 1:
            return failed(BackendError("memory", "no space left"))
        return publish(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryBackend, "publish", full)
        call = party.run(grant._upgrade(None))
        world.settle()
        assert isinstance(call.error, BackendError)
    assert world.queue()[0].claim == Convertible(Mode.PR, Mode.EX)
    assert grant.claim is Mode.PR
    second = party.run(grant._upgrade(None))
    world.settle()
    assert not second.done
    reader.check()
    reader._ticket.withdraw()
    world.settle()
    assert second.error is None
    assert str(grant.claim) == str(Mode.EX)
