"""What ``grant.read()`` and ``grant.transaction()`` promise, whatever the backend, sync and async.

For backends with the capability ``data``. Subclass `TransactionContract` in
a test module with a fixture ``url`` and the class attribute ``backend``, as for
`coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from coordlock import GrantState, LockLost, Mode
from coordlock.backend import Expect, Put
from coordlock.backend.config import configure
from coordlock.errors import BackendUnavailable, Evicted, InvalidName, SessionLost, VersionMismatch
from coordlock.testing.backend_contract import BOUND, Party, backend_for
from coordlock.testing.client_suite import ClientSuite, Start
from coordlock.types import VersionedValue

__all__ = ["TransactionContract"]

#: What may follow the first part of a key.
NAMES: Final = [
    "été",
    "键",
    "a b",
    " ",
    "...",
    "%2F",
    "100%",
    "'; --",
    "{a}*?[b]\\",
    "lock-0000000001",
    "x" * 900,
    "a/b/c/d/e/f/g",
]


def evict_all(client: Any, name: str = "orders") -> None:
    """Remove all holders and waiters, as an operator does."""
    for standing in client.admin.contenders(name):
        assert client.admin.evict(standing)


class TransactionContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("data",)

    # Of a grant of several locks

    def test_a_grant_of_several_locks_reads_and_writes_while_it_has_all(
        self, client: Any, other: Any, key: str
    ) -> None:
        grant = client.multi_lock(["orders", "stock"]).acquire()
        grant.transaction().put(key, b"1").commit()
        assert grant.read(key).data == b"1"
        grant.verify()
        evict_all(other, "stock")
        for act in (
            grant.transaction().put(key, b"2").commit,
            partial(grant.read, key),
            grant.verify,
        ):
            with pytest.raises(LockLost):
                act()
        with other.multi_lock(["stock", "orders"], timeout=30) as newer:
            assert newer.read(key).data == b"1"

    @pytest.fixture
    def key(self) -> str:
        """A key that no other test uses, and whose parent does not exist."""
        return f"/t-{uuid.uuid4().hex[:12]}/key"

    @pytest.fixture
    def grant(self, client: Any) -> Any:
        """A grant of the exclusive lock ``orders``; its client is closed after the test."""
        return client.lock("orders").acquire()

    # Reading and writing

    def test_deleting_what_is_not_there_does_nothing_and_the_rest_is_done(
        self, grant: Any, key: str
    ) -> None:
        deep = f"{key}/deep/below/nothing"
        grant.transaction().delete(deep).put(f"{key}-2", b"2").delete(f"{key}-3").commit()
        assert grant.read(deep) is None
        assert grant.read(f"{key}-2") == VersionedValue(b"2", 1)
        grant.transaction().delete(f"{key}-3").delete(f"{key}-2").commit()
        assert grant.read(f"{key}-2") is None

    def test_a_key_may_lie_below_another(self, grant: Any, key: str) -> None:
        below = f"{key}/below/it"
        grant.transaction().put(below, b"child").put(key, b"parent").commit()
        assert grant.read(below) == VersionedValue(b"child", 1)
        assert grant.read(key) == VersionedValue(b"parent", 1)
        grant.transaction().delete(key).delete(below).delete(f"{key}/below").commit()
        assert grant.read(below) is None
        assert grant.read(key) is None

    @pytest.mark.parametrize("name", NAMES, ids=ascii)
    def test_a_key_may_have_any_printable_name(self, grant: Any, key: str, name: str) -> None:
        odd = f"{key}/{name}"
        grant.transaction().put(odd, b"odd").put(f"{key}/even", b"even").commit()
        assert grant.read(odd) == VersionedValue(b"odd", 1)
        grant.transaction().expect(odd, 1).delete(odd).commit()
        assert grant.read(odd) is None
        assert grant.read(f"{key}/even") == VersionedValue(b"even", 1)

    def test_a_transaction_is_committed_once(self, grant: Any, key: str) -> None:
        """It may not have been answered: then it must not be made a second time."""
        transaction = grant.transaction().put(key, b"one")
        transaction.commit()
        with pytest.raises(RuntimeError, match="already"):
            transaction.commit()
        assert grant.read(key) == VersionedValue(b"one", 1)

    def test_a_hundred_operations_are_one_transaction(self, grant: Any, key: str) -> None:
        for turn in (1, 2):
            transaction = grant.transaction()
            for number in range(100):
                transaction.put(f"{key}/{number}", b"%d" % turn).expect(f"{key}/{number}", turn - 1)
            transaction.commit()
        assert grant.read(f"{key}/0") == grant.read(f"{key}/99") == VersionedValue(b"2", 2)
        transaction = grant.transaction()
        for number in range(100):
            transaction.delete(f"{key}/{number}")
        transaction.commit()
        assert grant.read(f"{key}/50") is None

    # Who may write

    def test_grants_of_every_kind_can_write(self, client: Any, key: str) -> None:
        version = 0
        locks = [client.lock("any", mode=mode) for mode in Mode] + [client.semaphore("pool", 2)]
        for lock in locks:
            with lock as grant:
                grant.transaction().put(key, b"x").expect(key, version).commit()
                version += 1
                assert grant.read(key).version == version

    def test_an_evicted_grant_writes_nothing_and_knows_at_once(
        self, grant: Any, other: Any, key: str
    ) -> None:
        grant.transaction().put(key, b"mine").commit()
        evict_all(other)
        with pytest.raises(LockLost) as caught:
            grant.transaction().put(key, b"late").put(f"{key}/below", b"late").commit()
        assert grant.lost.is_set()
        assert grant.state is GrantState.LOST
        assert (caught.value.name, caught.value.token) == ("orders", grant.token)
        with other.lock("orders", timeout=BOUND) as newer:
            assert newer.read(key) == VersionedValue(b"mine", 1)
            assert newer.read(f"{key}/below") is None

    def test_a_lost_lock_is_told_before_an_unmet_version(
        self, grant: Any, other: Any, key: str
    ) -> None:
        evict_all(other)
        with pytest.raises(LockLost):
            grant.transaction().expect(key, 7).put(key, b"late").commit()

    def test_nothing_is_made_above_a_key_that_is_not_written(
        self, grant: Any, other: Any, key: str
    ) -> None:
        evict_all(other)
        with pytest.raises(LockLost):
            grant.transaction().put(f"{key}/below", b"late").commit()
        with other.lock("orders", timeout=BOUND) as newer:
            newer.transaction().expect(key, 0).expect(key.rpartition("/")[0], 0).commit()

    def test_a_released_grant_neither_reads_nor_writes(
        self, grant: Any, other: Any, key: str
    ) -> None:
        transaction = grant.transaction().put(key, b"late")
        grant.release()
        for use in (transaction.commit, lambda: grant.read(key)):
            with pytest.raises(LockLost, match="released"):
                use()
        assert grant.state is GrantState.RELEASED
        with other.lock("orders", timeout=BOUND) as newer:
            assert newer.read(key) is None

    def test_the_backend_itself_says_that_a_contender_has_gone(self, url: str, key: str) -> None:
        party = Party(backend_for(self.backend, url))
        backend = party.backend
        try:
            entry, contender, _ = party.enqueue("q")
            backend.write([Put(key, b"1"), Expect(key, 0)], [contender]).result(BOUND)
            assert backend.read(key, guard=contender).result(BOUND).values[key] == VersionedValue(
                b"1", 1
            )
            party.remove(entry)
            _, newer, _ = party.enqueue("q")
            for request in (backend.read(key, guard=contender), backend.write((), [contender])):
                with pytest.raises(Evicted):
                    request.result(BOUND)
            assert backend.read(key, guard=newer).result(BOUND).values[key] == VersionedValue(
                b"1", 1
            )
            backend.close().result(BOUND)
            for request in (backend.read(key, guard=newer), backend.write((), [newer])):
                with pytest.raises((BackendUnavailable, SessionLost)):
                    request.result(BOUND)
        finally:
            backend.close().result(BOUND)

    # Versions

    @pytest.mark.parametrize("expected", [0, 1, 3, 2**31, 2**32, 2**63 - 1])
    def test_another_version_than_expected_is_an_error_and_nothing_is_written(
        self, grant: Any, key: str, expected: int
    ) -> None:
        grant.transaction().put(key, b"one").commit()
        grant.transaction().put(key, b"two").commit()
        transaction = grant.transaction().put(f"{key}-new", b"x").put(key, b"three")
        with pytest.raises(VersionMismatch) as caught:
            transaction.expect(key, expected).delete(f"{key}-old").commit()
        assert (caught.value.key, caught.value.expected) == (key, expected)
        assert grant.read(key) == VersionedValue(b"two", 2)
        assert grant.read(f"{key}-new") is None
        grant.check()

    @pytest.mark.parametrize("expected", [1, 2, 2**31 + 1])
    def test_a_version_of_what_is_not_there_is_an_error(
        self, grant: Any, key: str, expected: int
    ) -> None:
        for transaction in (grant.transaction(), grant.transaction().put(key, b"x")):
            with pytest.raises(VersionMismatch) as caught:
                transaction.expect(key, expected).commit()
            assert (caught.value.key, caught.value.expected) == (key, expected)
        assert grant.read(key) is None

    def test_an_error_names_the_key_that_is_not_as_expected(self, grant: Any, key: str) -> None:
        grant.transaction().put(f"{key}-1", b"").put(f"{key}-2", b"").commit()
        for wrong in (f"{key}-1", f"{key}-2"):
            transaction = grant.transaction().put(f"{key}-3", b"x")
            for one in (f"{key}-1", f"{key}-2"):
                transaction.expect(one, 2 if one == wrong else 1)
            with pytest.raises(VersionMismatch) as caught:
                transaction.expect(f"{key}-3", 0).commit()
            assert (caught.value.key, caught.value.expected) == (wrong, 2)
        with pytest.raises(VersionMismatch) as caught:
            grant.transaction().expect(f"{key}-3", 0).expect(f"{key}-1", 0).commit()
        assert (caught.value.key, caught.value.expected) == (f"{key}-1", 0)
        assert grant.read(f"{key}-3") is None

    def test_two_versions_of_one_key_are_never_met(self, grant: Any, key: str) -> None:
        for _ in range(2):
            with pytest.raises(VersionMismatch):
                grant.transaction().expect(key, 0).expect(key, 1).put(key, b"x").commit()
            grant.transaction().put(key, b"1").commit()

    def test_what_is_expected_below_and_above_what_is_missing(self, grant: Any, key: str) -> None:
        below = f"{key}/below"
        transaction = grant.transaction().expect(below, 0).expect(key, 0).put(below, b"x")
        transaction.expect(f"{key}/beside", 0).commit()
        assert grant.read(below) == VersionedValue(b"x", 1)
        assert grant.read(f"{key}/beside") is None

    # What is written before is read after

    def test_what_was_written_outlives_who_wrote_it(
        self, connect: Callable[..., Any], other: Any, key: str
    ) -> None:
        writer = connect()
        writer.lock("orders").acquire().transaction().put(key, b"kept").commit()
        writer.close()
        with other.lock("orders", timeout=BOUND) as grant:
            assert grant.read(key) == VersionedValue(b"kept", 1)

    def test_the_next_holder_reads_all_that_the_one_before_wrote(
        self, client: Any, other: Any, key: str, start: Start
    ) -> None:
        """Most of them are granted by the departure alone, without reading the queue."""

        def work(client: Any) -> None:
            for _ in range(10):
                with client.lock("orders") as grant:
                    found = grant.read(key) or VersionedValue(b"0", 0)
                    more = b"%d" % (int(found.data) + 1)
                    grant.transaction().put(key, more).commit()

        for worker in [start(work, one) for one in (client, other) * 2]:
            worker.result(4 * BOUND)
        with client.lock("orders") as grant:
            assert grant.read(key) == VersionedValue(b"40", 40)

    # What is refused before anything is sent

    def test_keys_of_the_locks_are_refused(self, client: Any, url: str, key: str) -> None:
        root = configure(url).root
        places = (root, f"{root}/orders", f"{root}/orders/x", f"{root}/other/y/z")
        with client.lock("orders") as grant:
            for locked in places:
                if not self.backend.shares_keys:  # there, none of them is a lock's
                    grant.transaction().put(locked, b"x").commit()
                    assert grant.read(locked).data == b"x"
                    continue
                with pytest.raises(InvalidName, match="lock"):
                    grant.read(locked)
                with pytest.raises(InvalidName, match="lock"):
                    grant.transaction().put(locked, b"")
            beside = f"{root}-data/{key.rpartition('/')[2]}"
            grant.transaction().put(beside, b"x").commit()
            assert grant.read(beside) == VersionedValue(b"x", 1)
