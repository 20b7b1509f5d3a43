"""What the value of a lock promises on every backend that keeps data, sync and async.

Subclass `KeptValueContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

import pytest

from coordlock import AcquireTimeout, GrantState, LockLost, Mode, WaitError
from coordlock.errors import Evicted
from coordlock.testing.client_suite import ClientSuite
from coordlock.testing.waiting import eventually

__all__ = ["KeptValueContract"]

#: No answer takes longer on a healthy service, however loaded the machine is.
BOUND: Final = 60.0

Start = Callable[..., Future[Any]]


def kept(client: Any, mode: Mode = Mode.EX, name: str = "a") -> Any:
    """The lock, with its value."""
    return client.value_lock(name, mode=mode, timeout=BOUND)


class KeptValueContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("data",)

    def test_the_next_holder_finds_what_the_last_one_left(self, client: Any, other: Any) -> None:
        with kept(client) as grant:
            assert grant.value is None
            grant.value = b"one"
            assert grant.value == b"one"
        for value in (b"", bytes(range(256)), b"x" * 65_536):
            with kept(other, Mode.PW) as grant:
                grant.value = value
            with kept(client) as grant:
                assert grant.value == value

    def test_who_sets_nothing_leaves_it_as_it_was(self, client: Any, other: Any) -> None:
        with kept(client) as grant:
            grant.value = b"one"
        with kept(other):
            pass
        with kept(client) as grant:
            assert grant.value == b"one"
            grant.value = None
        with kept(other) as grant:
            assert grant.value is None

    def test_each_lock_has_its_own(self, client: Any) -> None:
        names = ("a", "a/b", "a%2Fb", "@a", "é", "..")
        for number, name in enumerate(names):
            with kept(client, name=name) as grant:
                assert grant.value is None
                grant.value = b"%d" % number
        for number, name in enumerate(names):
            with kept(client, name=name) as grant:
                assert grant.value == b"%d" % number

    def test_readers_find_it_and_leave_it(self, client: Any, other: Any) -> None:
        with kept(client) as grant:
            grant.value = b"one"
        with kept(client, Mode.PR) as one, kept(other, Mode.PR) as two:
            assert one.value == two.value == b"one"
            with pytest.raises(ValueError, match="EX or PW"):
                one.value = b"two"
        with kept(client) as grant:
            assert grant.value == b"one"

    def test_after_a_holder_that_did_not_release_there_is_none(
        self, client: Any, connect: Callable[..., Any]
    ) -> None:
        """Neither its own, which it had not finished, nor the one before, which is old."""
        with kept(client) as grant:
            grant.value = b"one"
        ending = connect()
        unfinished = kept(ending).acquire()
        unfinished.value = b"unfinished"
        ending.close()
        with kept(client, Mode.PR) as grant:
            assert grant.value is None
        with kept(client) as grant:
            assert grant.value is None
            grant.value = b"two"
        with kept(client) as grant:
            assert grant.value == b"two"

    # Lock-delay

    def test_after_a_holder_that_did_not_release_the_next_one_waits(
        self, client: Any, connect: Callable[..., Any]
    ) -> None:
        options: list[tuple[dict[str, Any], float]] = [
            ({"lock_delay": "0.3s"}, 0.3),
            ({}, 0.0),
        ]
        for option, at_least in options:
            ending = connect()
            unfinished = ending.value_lock("a", timeout=BOUND, **option).acquire()
            assert unfinished.value is None
            ending.close()
            began = time.monotonic()
            # The delay is the one that was left behind.
            with client.value_lock("a", lock_delay="30s", timeout=BOUND):
                assert at_least <= time.monotonic() - began < 20
        assert kept(client).try_acquire().release()  # the last one did

    def test_who_does_not_wait_for_the_delay_leaves(
        self, client: Any, other: Any, connect: Callable[..., Any]
    ) -> None:
        ending = connect()
        ending.value_lock("a", lock_delay=3600).acquire()
        ending.close()
        eventually(lambda: client.contenders("a") == ())
        assert kept(client).try_acquire() is None
        with pytest.raises(AcquireTimeout):
            client.value_lock("a", timeout=0.1).acquire()
        with client.value_lock("a", mode=Mode.CR, timeout=BOUND):
            pass  # a mode that shares with writers
        eventually(lambda: client.contenders("a") == ())
        with client.lock("a", timeout=BOUND):
            pass  # who does not look for a value finds no delay, either

    def test_a_waiter_that_is_evicted_during_the_delay_was_not_granted_the_lock(
        self, client: Any, other: Any, connect: Callable[..., Any], start: Start
    ) -> None:
        ending = connect()
        ending.value_lock("a", lock_delay=3600).acquire()
        ending.close()
        eventually(lambda: client.contenders("a") == ())
        waiting = start(kept(client).acquire)
        eventually(lambda: other.contenders("a"))
        other.evict_all("a")
        with pytest.raises(Evicted) as caught:
            waiting.result(BOUND)
        assert isinstance(caught.value, WaitError)

    def test_a_delay_goes_by_where_nobody_has_the_patience_for_it(
        self, client: Any, other: Any, connect: Callable[..., Any]
    ) -> None:
        for once in (True, False):
            ending = connect()
            ending.value_lock("a", lock_delay="0.5s").acquire()
            ending.close()
            eventually(lambda: client.contenders("a") == ())
            began = time.monotonic()
            locks = [one.value_lock("a") for one in (client, other)]
            grant, tries = None, 0
            while grant is None:
                tries += 1
                lock = locks[tries % 2]
                if once:
                    grant = lock.try_acquire()
                else:
                    with suppress(AcquireTimeout):
                        grant = lock.acquire(0.1)
                assert time.monotonic() < began + BOUND
            # On a slow service the delay may be over before the first try has an answer.
            assert time.monotonic() - began >= 0.45
            grant.release()

    def test_a_delay_that_was_found_in_the_future_is_found_anew(
        self, client: Any, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ending = connect()
        ending.value_lock("a", lock_delay="0.2s").acquire()
        ending.close()
        eventually(lambda: client.contenders("a") == ())
        # The fault: the clock of a machine that has looked was a day ahead.
        with monkeypatch.context() as patched:
            ahead = time.time() + 86_400
            # For coordlock alone: others in this process go by the time of day, too.
            clock = SimpleNamespace(time=lambda: ahead)
            patched.setattr("coordlock.locks.kept_value.time", clock)
            assert kept(client).try_acquire() is None
        began = time.monotonic()
        with kept(client):
            assert 0.2 <= time.monotonic() - began < 20

    def test_readers_wait_for_a_delay_once(self, client: Any, connect: Callable[..., Any]) -> None:
        ending = connect()
        ending.value_lock("a", lock_delay="0.1s").acquire()
        ending.close()
        reading = client.value_lock("a", mode=Mode.PR, timeout=BOUND)
        with reading as first:
            assert first.value is None
        with reading, reading.acquire(0) as later:
            assert later.value is None
        with kept(client) as writer:
            assert writer.value is None

    def test_a_delay_that_is_none_is_refused(self, client: Any) -> None:
        for delay in (-1, 3601, "soon", "2h"):
            with pytest.raises(ValueError, match="lock_delay"):
                client.value_lock("a", lock_delay=delay)
        assert client.value_lock("a", lock_delay="2m").lock_delay == 120.0

    def test_an_evicted_holder_writes_nothing(self, client: Any, other: Any) -> None:
        late = kept(other).acquire()
        late.value = b"late"
        client.evict_all("a")
        with kept(client) as grant:
            assert grant.value is None
            grant.value = b"mine"
            assert late.release() is False
            assert late.state is GrantState.LOST
            with pytest.raises(LockLost):
                late.value = b"later"
        with kept(client) as grant:
            assert grant.value == b"mine"

    def test_a_block_that_raises_closes_it_as_it_is(self, client: Any) -> None:
        with pytest.raises(ZeroDivisionError), kept(client) as grant:
            grant.value = b"so far"
            _ = 1 // 0
        with kept(client) as grant:
            assert grant.value == b"so far"

    def test_many_add_to_it_and_none_is_lost(self, client: Any, other: Any, start: Start) -> None:
        def add(one: Any) -> None:
            for _ in range(10):
                with kept(one) as grant:
                    grant.value = b"%d" % (int(grant.value or b"0") + 1)

        for call in [start(add, one) for one in (client, other, client, other)]:
            call.result(BOUND)
        with kept(client) as grant:
            assert grant.value == b"40"

    # Bad input

    def test_what_cannot_be_kept_says_what_to_write(self, client: Any) -> None:
        with client.lock("b") as plain:
            assert not hasattr(plain, "value")
        with kept(client) as grant:
            with pytest.raises(TypeError, match="bytes"):
                grant.value = "text"
            with pytest.raises(ValueError, match="65536"):
                grant.value = b"x" * 65_537
            assert grant.value is None
        with pytest.raises(LockLost, match="released"):
            grant.value = b"nobody would write it"
        with pytest.raises(ValueError, match="acquire it alone"):
            client.multi_lock([kept(client), "b"])

    def test_a_grant_that_was_lost_before_it_was_given_is_none(
        self, client: Any, other: Any
    ) -> None:
        grant = kept(client).acquire()
        other.evict_all("a")
        with pytest.raises(LockLost):
            grant.verify()
        assert grant.release() is False
