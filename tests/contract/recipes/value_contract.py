"""What values promise on every backend that keeps data, sync and async.

Subclass `ValueContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from coordlock.errors import ClientClosed, InvalidName, VersionMismatch
from coordlock.testing.client_suite import BOUND, ClientSuite, Start
from coordlock.testing.waiting import eventually
from coordlock.types import VersionedValue

__all__ = ["ValueContract"]


def one_more(data: bytes | None) -> bytes:
    """The number after that in ``data``, which is 0 where there is none."""
    return b"%d" % (int(data or b"0") + 1)


class ValueContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("data",)

    @pytest.fixture
    def folder(self) -> str:
        """A folder that no other test uses."""
        return f"/t-{uuid.uuid4().hex[:12]}"

    @pytest.fixture
    def key(self, folder: str) -> str:
        """A key in it."""
        return f"{folder}/key"

    # One value

    def test_a_value_is_what_any_client_has_set(self, client: Any, other: Any, key: str) -> None:
        mine, theirs = client.value(key), other.value(key)
        assert mine.get() is theirs.get() is None
        for version, data in enumerate((b"", bytes(range(256)), b"x" * 100_000), start=1):
            mine.set(data)
            assert theirs.get() == mine.get() == VersionedValue(data, version)
        theirs.delete()
        assert mine.get() is None
        mine.delete()
        mine.set(b"anew")
        assert theirs.get() == VersionedValue(b"anew", 1)

    def test_a_value_is_set_only_at_the_version_that_is_expected(
        self, client: Any, key: str
    ) -> None:
        value = client.value(key)
        with pytest.raises(VersionMismatch):
            value.set(b"1", expect=1)
        value.set(b"1", expect=0)
        value.set(b"2", expect=1)
        for version in (0, 1, 3):
            with pytest.raises(VersionMismatch) as caught:
                value.set(b"3", expect=version)
            assert (caught.value.key, caught.value.expected) == (key, version)
            with pytest.raises(VersionMismatch):
                value.delete(expect=version)
        assert value.get() == VersionedValue(b"2", 2)
        value.delete(expect=2)
        assert value.get() is None

    def test_an_update_tells_what_is_kept_then(self, client: Any, key: str) -> None:
        value = client.value(key)
        assert value.update(lambda data: data) is None
        assert value.update(one_more) == VersionedValue(b"1", 1)
        assert value.update(lambda data: data) == VersionedValue(b"1", 1)
        assert value.update(one_more) == value.get() == VersionedValue(b"2", 2)
        assert value.update(lambda _: None) is None
        assert value.get() is None

    def test_an_update_that_fails_changes_nothing(self, client: Any, key: str) -> None:
        value = client.value(key)
        value.set(b"no number")
        with pytest.raises(ValueError, match="no number"):
            value.update(one_more)
        with pytest.raises(TypeError, match="encode it"):
            value.update(lambda _: "text")
        assert value.get() == VersionedValue(b"no number", 1)

    def test_what_cannot_be_kept_is_refused(self, client: Any, key: str) -> None:
        value = client.value(key)
        with pytest.raises(TypeError, match="encode it"):
            value.set("text")
        for version in (-1, True, "1"):
            with pytest.raises(ValueError, match="version"):
                value.set(b"1", expect=version)
        for wrong in ("relative", "/a//b", "/a/../b", "/zookeeper/x", "/", 1):
            with pytest.raises(InvalidName):
                client.value(wrong)
            with pytest.raises(InvalidName):
                client.values(wrong)
        with pytest.raises(InvalidName):
            client.transaction().put("relative", b"1")
        assert value.get() is None

    # Several

    def test_a_transaction_writes_all_or_nothing(
        self, client: Any, other: Any, folder: str
    ) -> None:
        a, b = f"{folder}/a", f"{folder}/b"
        client.transaction().put(a, b"1").put(b, b"1").expect(a, 0).commit()
        values = {a: VersionedValue(b"1", 1), b: VersionedValue(b"1", 1)}
        assert other.values(folder).get() == other.values(f"{folder}/").get() == values
        with pytest.raises(VersionMismatch):
            other.transaction().put(a, b"2").delete(b).expect(b, 2).commit()
        assert client.values(folder).get() == values
        other.transaction().put(a, b"2").delete(b).expect(b, 1).commit()
        assert client.values(folder).get() == {a: VersionedValue(b"2", 2)}

    def test_grants_and_values_have_keys_in_common(self, client: Any, key: str) -> None:
        with client.lock("l").acquire() as grant:
            grant.transaction().put(key, b"1").commit()
            client.value(key).set(b"2", expect=1)
            assert grant.read(key) == VersionedValue(b"2", 2)

    # Observing

    def test_an_observer_gives_what_is_kept_now_and_then(
        self, client: Any, other: Any, key: str
    ) -> None:
        with other.value(key).observe() as states:
            assert states.next(BOUND) is None
            client.value(key).set(b"1")
            assert states.next(BOUND) == states.state == VersionedValue(b"1", 1)
            eventually(lambda: states.stale_for is None)
            client.value(key).set(b"2")
            assert states.next(BOUND) == VersionedValue(b"2", 2)
            client.value(key).delete()
            assert states.next(BOUND) is None

    def test_a_view_tells_what_is_new_in_a_folder(
        self, client: Any, other: Any, folder: str
    ) -> None:
        a, b, c = (f"{folder}/{name}" for name in "abc")
        with other.values(folder).observe() as views:
            assert views.next(BOUND).values == {}
            client.transaction().put(a, b"1").put(b, b"1").commit()
            view = views.next(BOUND)
            assert (
                view.values
                == view.added
                == {a: VersionedValue(b"1", 1), b: VersionedValue(b"1", 1)}
            )
            assert view.changed == view.removed == {}
            client.transaction().put(a, b"2").delete(b).put(c, b"1").commit()
            view = views.next(BOUND)
            assert list(view.values) == [a, c]
            assert view.changed == {a: VersionedValue(b"2", 2)}
            assert view.added == {c: VersionedValue(b"1", 1)}
            assert view.removed == {b: VersionedValue(b"1", 1)}
            assert views.state == view

    def test_the_end_of_the_client_ends_its_observers(
        self, connect: Callable[..., Any], key: str, start: Start
    ) -> None:
        ending = connect()
        states = ending.value(key).observe()
        assert states.next(BOUND) is None
        waiting = start(states.next)
        ending.close()
        with pytest.raises(ClientClosed):
            waiting.result(BOUND)
        for call in (ending.value(key).get, ending.values(key).get):
            with pytest.raises(ClientClosed):
                call()
        with pytest.raises(ClientClosed):
            ending.value(key).set(b"1")
