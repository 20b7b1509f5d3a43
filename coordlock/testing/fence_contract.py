"""What every fence promises, whatever it protects, sync and async.

Subclass `FenceContract` in a test module and give it a fixture ``protected``, which makes a
`Protected`: a fence and some integers behind it::

    class TestMyFence(FenceContract):
        @pytest.fixture
        def protected(self) -> Protected:
            return MyProtected()
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

import coordlock
from coordlock import LockLost, Mode, StaleToken
from coordlock.errors import InvalidToken, Unsupported
from coordlock.fencing import MAX_TOKEN, FencingToken, Marks, Presented
from coordlock.testing.portal import Portal, behind

__all__ = ["FenceContract", "Protected"]

NO_TOKENS: Final = [0, -1, 2**63, 2**64, True, 1.0, "1", None, b"1", float("nan")]
HOSTILE_NAMES: Final = [
    "../x",
    "..",
    "/",
    "a/b",
    "a b",
    "line\nbreak",
    "100%",
    "'; DROP TABLE x; --",
    "{a}b",
    "été 🔒",
    "x" * 255,
    "A",
    "a",
]


class Protected(ABC):
    """Integers, one for each resource and 0 at first, and the ``fence`` that protects them.

    ``read`` and ``write`` check and operate in one step, as users of the fence would. The other
    methods are the fence's own. An async fence is behind a front of
    `coordlock.testing.portal.Portal`.
    """

    def __init__(self, fence: Any) -> None:
        self.fence = fence

    @abstractmethod
    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        """Check ``token`` and read the integer."""

    @abstractmethod
    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        """Check ``token`` and write the integer."""

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """`coordlock.fencing.Fence.check`."""
        self.fence.check(resource, token, shared)

    def marks(self, resource: str) -> Marks:
        """`coordlock.fencing.Fence.marks`."""
        found: Marks = self.fence.marks(resource)
        return found

    def forget(self, resource: str) -> None:
        """`coordlock.fencing.Fence.forget`."""
        self.fence.forget(resource)


class FenceContract:
    """The suite. ``protected`` is safe for threads; how often a racing writer tries, ``races``."""

    races: int = 50

    # The rule

    def test_the_first_token_passes_and_is_remembered(self, protected: Protected) -> None:
        assert protected.marks("alice") == Marks()
        protected.write("alice", 33, 100)
        assert protected.marks("alice") == Marks(exclusive=33)
        assert protected.read("alice", 33) == 100

    def test_an_equal_token_passes_as_often_as_it_comes(self, protected: Protected) -> None:
        for value in (1, 2, 3):
            protected.write("alice", 33, value)
            protected.check("alice", 33)
        assert protected.read("alice", 33) == 3

    def test_an_older_token_is_refused_and_nothing_is_written(self, protected: Protected) -> None:
        protected.write("alice", 34, 100)
        with pytest.raises(StaleToken) as refused:
            protected.write("alice", 33, 50)
        error = refused.value
        assert (error.resource, error.token, error.newest) == ("alice", 33, 34)
        assert "33" in str(error)
        assert "34" in str(error)
        assert protected.read("alice", 34) == 100
        assert protected.marks("alice") == Marks(exclusive=34)

    def test_an_older_token_is_refused_as_often_as_it_comes(self, protected: Protected) -> None:
        protected.write("alice", 34, 100)
        for _ in range(3):
            with pytest.raises(StaleToken):
                protected.check("alice", 33)
            with pytest.raises(StaleToken):
                protected.read("alice", 33)

    def test_a_read_counts_so_that_no_update_is_lost(self, protected: Protected) -> None:
        """read(33), read(34), write(33), write(34): the third must be refused."""
        protected.write("alice", 32, 100)
        assert protected.read("alice", 33) == 100
        balance = protected.read("alice", 34)
        with pytest.raises(StaleToken):
            protected.write("alice", 33, 101)
        protected.write("alice", 34, balance + 1)
        assert protected.read("alice", 34) == 101

    def test_resources_have_marks_of_their_own(self, protected: Protected) -> None:
        protected.write("alice", 34, 1)
        protected.write("bob", 33, 2)
        assert protected.read("alice", 34) == 1
        assert protected.read("bob", 33) == 2
        assert protected.marks("bob") == Marks(exclusive=33)

    def test_what_was_forgotten_is_admitted_again(self, protected: Protected) -> None:
        protected.forget("alice")
        protected.write("alice", 34, 1)
        protected.forget("alice")
        assert protected.marks("alice") == Marks()
        protected.write("alice", 33, 2)
        assert protected.read("alice", 33) == 2

    # Shared grants

    def test_readers_do_not_refuse_each_other(self, protected: Protected) -> None:
        protected.read("alice", 34, shared=True)
        protected.read("alice", 33, shared=True)
        assert protected.marks("alice") == Marks(shared=34)

    def test_a_newer_writer_refuses_older_readers_only(self, protected: Protected) -> None:
        protected.write("alice", 34, 1)
        with pytest.raises(StaleToken) as refused:
            protected.read("alice", 33, shared=True)
        assert refused.value.newest == 34
        assert protected.read("alice", 35, shared=True) == 1

    def test_a_newer_reader_refuses_older_writers(self, protected: Protected) -> None:
        protected.read("alice", 34, shared=True)
        with pytest.raises(StaleToken) as refused:
            protected.write("alice", 33, 1)
        assert refused.value.newest == 34
        protected.write("alice", 35, 1)
        assert protected.marks("alice") == Marks(exclusive=35, shared=34)

    # Tokens

    @pytest.mark.parametrize("token", NO_TOKENS, ids=repr)
    def test_what_is_no_token_is_an_error_and_changes_nothing(
        self, protected: Protected, token: Any
    ) -> None:
        protected.write("alice", 1, 1)
        with pytest.raises(InvalidToken):
            protected.write("alice", token, 2)
        with pytest.raises(InvalidToken):
            protected.check("alice", token, shared=True)
        assert protected.read("alice", 1) == 1
        assert protected.marks("alice") == Marks(exclusive=1)

    @pytest.mark.parametrize("token", [2**53 + 1, MAX_TOKEN], ids=["2**53+1", "2**63-1"])
    def test_large_tokens_are_told_apart(self, protected: Protected, token: int) -> None:
        """A fence that counts in floating point takes neighbours for equals."""
        protected.write("alice", token, 1)
        with pytest.raises(StaleToken):
            protected.write("alice", token - 1, 2)
        assert protected.marks("alice") == Marks(exclusive=token)
        with pytest.raises(StaleToken):
            protected.write("alice", 9, 3)  # "9" is greater as text

    @pytest.mark.parametrize("name", HOSTILE_NAMES)
    def test_a_resource_can_have_any_name(self, protected: Protected, name: str) -> None:
        protected.check("alice", 50)
        protected.check(name, 34)
        with pytest.raises(StaleToken) as refused:
            protected.check(name, 33)
        assert refused.value.resource == name
        assert protected.marks(name) == Marks(exclusive=34)

    # Grants

    def test_a_grant_is_its_token_and_knows_whether_it_is_shared(
        self, protected: Protected
    ) -> None:
        with coordlock.connect("memory://fences") as client:
            first, second = client.read_lock("r").acquire(), client.read_lock("r").acquire()
            protected.read("alice", second)
            protected.read("alice", first)
            assert protected.marks("alice") == Marks(shared=second.token)
            with client.lock("w", mode=Mode.PW) as grant:
                protected.write("alice", grant, 7)
                assert protected.marks("alice") == Marks(grant.token, second.token)
                assert protected.read("alice", FencingToken.of(grant)) == 7

    def test_the_grant_of_an_async_client_is_one_too(self, protected: Protected) -> None:
        with contextlib.closing(Portal()) as portal:
            client = portal.connect("memory://fences")
            grant = client.read_lock("r").acquire()
            protected.check("alice", behind(grant))
            assert protected.marks("alice") == Marks(shared=grant.token)
            grant.release()
            with pytest.raises(LockLost, match="released"):
                protected.check("alice", behind(grant))
            client.close()

    def test_a_grant_that_is_known_to_have_ended_is_refused_and_its_number_is_not(
        self, protected: Protected
    ) -> None:
        with coordlock.connect("memory://fences") as client:
            released, lost = client.read_lock("r").acquire(), client.read_lock("r").acquire()
            released.release()
            client.admin.evict(client.admin.contenders("r")[0])
            assert lost.lost.wait(30)
            for grant in (released, lost):
                with pytest.raises(LockLost) as refused:
                    protected.check("alice", grant)
                assert (refused.value.name, refused.value.token) == ("r", grant.token)
                with pytest.raises(LockLost):
                    protected.write("alice", grant, 1)
            assert protected.marks("alice") == Marks()
            protected.check("alice", lost.token, shared=True)
            assert protected.marks("alice") == Marks(shared=lost.token)

    def test_a_semaphore_cannot_be_fenced_by_order(self, protected: Protected) -> None:
        with coordlock.connect("memory://fences") as client:
            with client.semaphore("pool", 3) as grant, pytest.raises(Unsupported, match="pool"):
                protected.check("alice", grant)
            for mode in (Mode.CR, Mode.CW, Mode.NL):
                with client.lock("x", mode=mode) as grant, pytest.raises(Unsupported):
                    protected.write("alice", grant, 1)
        assert protected.marks("alice") == Marks()

    # Races

    def test_writers_that_race_lose_no_acknowledged_update(self, protected: Protected) -> None:
        """Four holders at once, of which all but the newest are stale without knowing it."""
        tokens = itertools.count(1)
        acknowledged = []
        refused = []
        together = threading.Barrier(4)

        def work() -> None:
            together.wait()
            for _ in range(self.races):
                token = next(tokens)
                try:
                    value = protected.read("alice", token)
                    protected.write("alice", token, value + 1)
                except StaleToken as error:
                    refused.append(error)
                else:
                    acknowledged.append(token)

        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(work) for _ in range(4)]:
                future.result()
        assert len(acknowledged) + len(refused) == 4 * self.races
        assert all(error.token < error.newest for error in refused)
        assert protected.read("alice", MAX_TOKEN) == len(acknowledged)
        assert acknowledged
