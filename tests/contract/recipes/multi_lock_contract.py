"""What several locks at once, and trees of locks, promise on every backend, sync and async.

Subclass `MultiLockContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

import coordlock
from coordlock import Mode
from coordlock.testing.client_suite import BOUND, ClientSuite, Start, error_of
from coordlock.testing.waiting import eventually
from coordlock.types import Permit

__all__ = ["MultiLockContract"]


def lengths(client: Any, names: Iterable[str]) -> list[int]:
    """How many contenders each queue has."""
    return [len(client.admin.contenders(name)) for name in names]


class MultiLockContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("sets",)

    def test_all_names_are_granted_together(self, client: Any, other: Any) -> None:
        names = ("c", "a", "b/1")
        with client.multi_lock(list(names)) as grant:
            assert tuple(grant.parts) == names
            grant.check()
            for name in names:
                (member,) = other.admin.contenders(name)
                assert member.holding
                assert member.token == grant.parts[name].token
                assert other.lock(name).try_acquire() is None
        assert lengths(client, names) == [0, 0, 0]
        assert grant.state is coordlock.GrantState.RELEASED

    def test_the_token_is_one_for_all_names_and_grows(self, client: Any, other: Any) -> None:
        with other.lock("b") as before:
            pass
        with client.multi_lock(["a", "b"]) as grant:
            first, second = (part.token for part in grant.parts.values())
            assert first == second
        with other.lock("a") as after:
            assert before.token < first < after.token

    def test_a_timeout_names_the_lock_that_was_busy_and_leaves_all_queues(
        self, client: Any, other: Any
    ) -> None:
        with client.lock("b"):
            several = other.multi_lock(["a", "b", "c"], timeout=1)
            late = error_of(several.acquire, coordlock.AcquireTimeout, " 1 contender")
            assert late.name == "b"
            assert late.position == 1
            eventually(lambda: lengths(client, "abc") == [0, 1, 0])

    def test_it_waits_for_all_and_keeps_its_place_in_each(
        self, client: Any, other: Any, start: Start
    ) -> None:
        held = {name: client.lock(name).acquire() for name in "bc"}
        waiting = start(other.multi_lock(["a", "b", "c"]).acquire)
        eventually(lambda: lengths(client, "abc") == [1, 2, 2])
        later = start(client.lock("a").acquire)
        eventually(lambda: lengths(client, "a") == [2])
        held["b"].release()
        eventually(lambda: lengths(client, "b") == [1])
        assert not waiting.done()
        held["c"].release()
        grant = waiting.result(BOUND)
        assert not later.done()
        assert grant.release()
        assert later.result(BOUND).release()

    def test_modes_and_permits_may_be_mixed(self, client: Any, other: Any) -> None:
        wanted = ["w", client.read_lock("r"), client.semaphore("s", 2)]
        with client.multi_lock(wanted) as grant:
            claims = {name: part.claim for name, part in grant.parts.items()}
            assert claims == {"w": Mode.EX, "r": Mode.PR, "s": Permit(2)}
            with other.multi_lock([other.read_lock("r"), other.semaphore("s", 2)]):
                assert client.semaphore("s", 2).try_acquire() is None
            assert other.lock("r").try_acquire() is None
            with pytest.raises(coordlock.errors.Unsupported, match="several parts"):
                _ = grant.claim

    def test_a_mode_counts_for_the_names(self, client: Any, other: Any) -> None:
        with client.multi_lock(["a", "b"], mode=Mode.PR) as grant:
            assert {part.claim for part in grant.parts.values()} == {Mode.PR}
            with other.multi_lock(["b", "a"], mode=Mode.PR):
                pass
            assert other.multi_lock(["b"]).try_acquire() is None

    def test_a_name_in_several_modes_is_taken_in_the_weakest_that_contains_them(
        self, client: Any
    ) -> None:
        both = [client.lock("a", mode=Mode.CW), client.read_lock("a")]
        with client.multi_lock(both) as grant:
            assert grant.claim is Mode.PW

    def test_losing_one_is_losing_all(self, client: Any, other: Any) -> None:
        told = threading.Event()
        grant = client.multi_lock(["a", "b", "c"]).acquire()
        grant.on_lost(lambda _: told.set())
        other.admin.evict(other.admin.contenders("b")[0])
        assert told.wait(BOUND)
        with pytest.raises(coordlock.LockLost):
            grant.check()
        with other.multi_lock(["c", "a"], timeout=BOUND):  # which nobody has released
            assert grant.state is coordlock.GrantState.LOST
        assert not grant.release()

    def test_it_tells_of_its_queues(self, client: Any, other: Any) -> None:
        both = client.multi_lock(["a", "b"])
        assert not both.locked()
        assert not both.owned()
        with other.lock("b"):
            assert both.locked()
            assert [len(queue) for queue in both.contenders().values()] == [0, 1]
        with both:
            assert both.owned()
            assert client.lock("a").owned()
            assert not other.multi_lock(["a", "b"]).owned()

    def test_what_no_multi_lock_can_be_is_refused_at_once(self, client: Any, other: Any) -> None:
        semaphore = client.semaphore("s", 2)
        refused: list[tuple[Any, type[Exception], str]] = [
            ([], ValueError, "no names"),
            (["s", semaphore], ValueError, "use one name for one kind"),
            ([semaphore, client.semaphore("s", 3)], ValueError, "given twice"),
            ([""], coordlock.errors.InvalidName, "empty"),
            ("abc", TypeError, r"multi_lock\(\['abc'\]\)"),
            ([3], TypeError, "names and locks"),
            ([other.lock("a")], ValueError, "another client"),
            ([client.reentrant_lock("a")], ValueError, "several locks at once are not"),
        ]
        for wanted, kind, words in refused:
            with pytest.raises(kind, match=words):
                client.multi_lock(wanted)
        assert client.admin.names() == []

    # Trees

    @pytest.mark.parametrize(
        ("held", "wanted", "together"),
        [
            (("a", Mode.EX), ("a/b/c", Mode.EX), False),
            (("a", Mode.EX), ("a/b", Mode.PR), False),
            (("a/b/c", Mode.EX), ("a", Mode.PR), False),
            (("a/b/c", Mode.EX), ("a/b/c", Mode.EX), False),
            (("a", Mode.PR), ("a/b", Mode.EX), False),
            (("a", Mode.PR), ("a/b", Mode.PR), True),
            (("a/b/c", Mode.PR), ("a", Mode.PR), True),
            (("a/b", Mode.EX), ("a/c", Mode.EX), True),
            (("a/b", Mode.EX), ("ab", Mode.EX), True),
            (("a/b", Mode.PW), ("a/b/c", Mode.CR), True),
            (("a", Mode.PW), ("a/b", Mode.PR), True),
            (("a", Mode.PW), ("a/b", Mode.EX), False),
            (("a", Mode.CR), ("a/b", Mode.EX), True),
            (("a", Mode.NL), ("a", Mode.EX), True),
        ],
        ids=str,
    )
    def test_a_subtree_excludes_what_conflicts_above_and_below(
        self,
        client: Any,
        other: Any,
        held: tuple[str, Mode],
        wanted: tuple[str, Mode],
        together: bool,
    ) -> None:
        with client.tree_lock(held[0], mode=held[1]) as grant:
            assert (grant.name, grant.claim) == held
            second = other.tree_lock(wanted[0], mode=wanted[1]).try_acquire()
            assert (second is not None) is together
            if second is not None:
                second.release()
        with other.tree_lock(wanted[0], mode=wanted[1], timeout=BOUND):
            pass

    def test_a_node_of_a_tree_is_the_lock_of_that_name(self, client: Any, other: Any) -> None:
        with client.tree_lock("eu/orders/42") as grant:
            assert tuple(grant.parts) == ("eu", "eu/orders", "eu/orders/42")
            assert grant.token == grant.parts["eu/orders/42"].token
            assert other.lock("eu/orders/42").try_acquire() is None
            assert other.lock("eu", mode=Mode.PR).try_acquire() is None
            assert other.lock("eu", mode=Mode.CR).try_acquire().release()

    def test_two_subtrees_are_locked_at_once(self, client: Any, other: Any) -> None:
        """As to move something from one to the other."""
        both = [client.tree_lock("a/b"), client.tree_lock("a/c")]
        with client.multi_lock(both) as grant:
            claims = {name: part.claim for name, part in grant.parts.items()}
            assert claims == {"a": Mode.CW, "a/b": Mode.EX, "a/c": Mode.EX}
            assert other.tree_lock("a", mode=Mode.PR).try_acquire() is None

    @pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", ".", "a/../b", "a/./b", "/"])
    def test_what_is_no_path_is_refused_at_once(self, client: Any, path: str) -> None:
        with pytest.raises(coordlock.errors.InvalidName):
            client.tree_lock(path)
