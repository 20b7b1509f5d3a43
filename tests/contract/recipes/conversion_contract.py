"""What upgrading a grant promises on every backend, sync and async.

Subclass `ConversionContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

import coordlock
from coordlock import LockLost, Mode
from coordlock.errors import Unsupported, WaitTimeout
from coordlock.testing.client_suite import BOUND, ClientSuite, Start, error_of
from coordlock.testing.waiting import eventually
from coordlock.types import Convertible

__all__ = ["ConversionContract"]


def is_converting(client: Any, name: str) -> bool:
    """Whether a holder waits for its conversion, and has decided who goes first."""
    claims = (one.contender.claim for one in client.admin.contenders(name))
    return any(isinstance(one, Convertible) and one.yields_to is not None for one in claims)


def waiters(client: Any, name: str) -> int:
    """How many wait for the lock."""
    return sum(not one.holding for one in client.admin.contenders(name))


class ConversionContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("publishing",)

    def test_a_grant_alone_is_upgraded_and_excludes_what_its_mode_excludes(
        self, client: Any, other: Any
    ) -> None:
        with client.upgradeable_lock("a") as grant:
            (before,) = other.admin.contenders("a")
            for mode, convert in ((Mode.PR, grant.check), (Mode.EX, grant.upgrade)):
                convert()
                assert grant.claim is mode
                (member,) = other.admin.contenders("a")
                assert (member.claim, member.converting_to) == (mode, None)
                assert (member.holding, member.token) == (True, before.token)
                grant.check()
                assert other.upgradeable_lock("a").try_acquire() is None
                for wanted in Mode:
                    found = other.lock("a", mode=wanted).try_acquire()
                    assert (found is None) == wanted.conflicts(mode)
                    if found is not None:
                        found.release()
        assert client.admin.contenders("a") == ()

    def test_an_upgrade_waits_for_readers_that_hold_and_for_no_writer_behind_it(
        self, client: Any, other: Any, start: Start
    ) -> None:
        with other.read_lock("a").acquire() as reader:
            mine = client.upgradeable_lock("a").acquire()
            writer = start(other.lock("a").acquire)
            eventually(lambda: waiters(other, "a") == 1)
            upgrade = start(mine.upgrade)
            eventually(lambda: is_converting(other, "a"))
            assert not upgrade.done()
            assert mine.claim.name == "PR"
            assert reader.state is coordlock.GrantState.HELD
        upgrade.result(BOUND)
        assert mine.claim.name == "EX"
        assert other.read_lock("a").try_acquire() is None
        assert not writer.done()
        mine.release()
        writer.result(BOUND).release()

    def test_readers_that_come_later_wait_for_an_upgrade(
        self, client: Any, other: Any, start: Start
    ) -> None:
        reader = other.read_lock("a").acquire()
        mine = client.upgradeable_lock("a").acquire()
        upgrade = start(mine.upgrade)
        eventually(lambda: is_converting(other, "a"))
        late = start(other.read_lock("a").acquire)
        eventually(lambda: waiters(other, "a") == 1)
        reader.release()
        upgrade.result(BOUND)
        assert not late.done()
        mine.release()
        late.result(BOUND).release()

    def test_a_downgrade_lets_in_readers_up_to_the_next_writer(
        self, client: Any, other: Any, start: Start
    ) -> None:
        mine = client.upgradeable_lock("a").acquire()
        mine.upgrade()
        reader = start(other.read_lock("a").acquire)
        eventually(lambda: waiters(other, "a") == 1)
        writer = start(other.lock("a").acquire)
        eventually(lambda: waiters(other, "a") == 2)
        late = start(other.read_lock("a").acquire)
        eventually(lambda: waiters(other, "a") == 3)
        mine.downgrade()
        assert mine.claim is Mode.PR
        reader.result(BOUND).release()
        assert not writer.done()
        assert not late.done()
        mine.release()
        writer.result(BOUND).release()
        late.result(BOUND).release()

    def test_a_conversion_that_times_out_leaves_the_grant_and_keeps_nobody_out(
        self, client: Any, other: Any
    ) -> None:
        with other.read_lock("a"), client.upgradeable_lock("a") as mine:
            in_the_way = r"still held in mode PR: .* is in the way"
            error_of(lambda: mine.upgrade(timeout=0.2), WaitTimeout, in_the_way)
            assert mine.claim is Mode.PR
            mine.check()
            eventually(lambda: not any(one.converting_to for one in other.admin.contenders("a")))
            with other.read_lock("a"):
                pass
        with client.lock("a"):
            pass

    def test_an_upgrade_that_tries_once_is_refused_without_a_wait(
        self, client: Any, other: Any
    ) -> None:
        with other.read_lock("a"), client.upgradeable_lock("a") as mine:
            [member] = [one for one in other.admin.contenders("a") if one.token == mine.token]
            with pytest.raises(WaitTimeout, match="still held in mode PR"):
                mine.upgrade(timeout=0)
            assert mine.claim is Mode.PR
            mine.check()
            [now] = [one for one in other.admin.contenders("a") if one.token == mine.token]
            assert now.contender.version == member.contender.version, "it has published something"
        with client.lock("a"):
            pass

    def test_who_is_released_or_lost_while_it_converts_is_told(
        self, client: Any, other: Any, start: Start
    ) -> None:
        with other.read_lock("a"):
            mine = client.upgradeable_lock("a").acquire()
            upgrade = start(mine.upgrade)
            eventually(lambda: is_converting(other, "a"))
            mine.release()
            with pytest.raises(LockLost, match="released"):
                upgrade.result(BOUND)
            mine = client.upgradeable_lock("a").acquire()
            upgrade = start(mine.upgrade)
            eventually(lambda: is_converting(other, "a"))
            [member] = [one for one in other.admin.contenders("a") if one.converting_to]
            other.admin.evict(member)
            with pytest.raises(LockLost, match="evicted"):
                upgrade.result(BOUND)
            with pytest.raises(LockLost):
                mine.downgrade()
            mine.release()
        assert client.admin.contenders("a") == ()

    def test_the_token_of_a_grant_that_became_stronger_is_no_fencing_token(
        self, client: Any
    ) -> None:
        with client.upgradeable_lock("a") as grant:
            token = grant.token
            grant.upgrade()
            with pytest.raises(Unsupported, match="transaction"):
                _ = grant.token
            grant.downgrade()
            assert grant.token == token > 0

    def test_many_readers_give_way_to_one_upgrade_after_the_other(
        self, client: Any, other: Any, start: Start
    ) -> None:
        """Three hundred holds of readers and of writers that were readers before."""
        inside: set[str] = set()
        lock = threading.Lock()

        def enter(who: str, alone: bool) -> None:
            with lock:
                assert not (alone and inside)
                assert "writer" not in inside
                inside.add("writer" if alone else who)

        def leave(who: str, alone: bool) -> None:
            with lock:
                inside.discard("writer" if alone else who)

        def read(number: int) -> None:
            for turn in range(20):
                with (client, other)[turn % 2].read_lock("a"):
                    enter(f"reader {number}", False)
                    leave(f"reader {number}", False)

        def write(number: int) -> None:
            for turn in range(15):
                with (client, other)[turn % 2].upgradeable_lock("a") as grant:
                    enter(f"upgradeable {number}", False)
                    leave(f"upgradeable {number}", False)
                    grant.upgrade()
                    enter("", True)
                    leave("", True)

        calls = [start(work, number) for number in range(4) for work in (read, write)]
        for call in calls:
            call.result(2 * BOUND)
        assert client.admin.contenders("a") == ()

    # Bad input

    def test_other_grants_have_no_upgrade_and_one_that_was_released_has_none_any_more(
        self, client: Any
    ) -> None:
        for plain in (client.lock("a", mode=Mode.PR), client.multi_lock(["a", "b"])):
            with plain as grant:
                assert not any(hasattr(grant, one) for one in ("upgrade", "downgrade"))
        with client.upgradeable_lock("a") as grant:
            pass
        for call in (grant.upgrade, grant.downgrade):
            with pytest.raises(LockLost, match="released"):
                call()
        with pytest.raises(ValueError, match="acquire it alone"):
            client.multi_lock([client.upgradeable_lock("a"), "b"])
        assert client.admin.contenders("a") == client.admin.contenders("b") == ()
