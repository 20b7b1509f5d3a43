"""What is shown of a place whose changes messages tell."""

from __future__ import annotations

from functools import partial

from coordlock_redis import data
from coordlock_redis.following import Followings
from coordlock_redis.subscription import Subscription

from coordlock.backend import Listing, VersionedValue
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.promise import Promise

CHANNEL = b"folder:/f/"


def message(revision: int, *changes: tuple[bytes, int, bytes]) -> bytes:
    """What the server publishes; without changes, these are long."""
    words = [word for key, version, value in changes for word in (key, b"%d" % version, value)]
    written = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    return b"%d %b" % (revision, written) if words else b"%d" % revision


class Follower:
    """Follows a folder whose reads the test answers."""

    def __init__(self) -> None:
        timers = SystemTimers()
        self.reads: list[Promise[Listing]] = []
        self.news = 0
        self._followings = Followings(Subscription(b"inbox", timers, 1.0, 1.0), b"", timers)
        self._observation = self._followings.observe(
            CHANNEL.decode(), self._read, self._on_news, partial(data.changed, "/f/")
        )
        self._followings.on_subscribed(CHANNEL)

    def _read(self) -> Promise[Listing]:
        self.reads.append(Promise())
        return self.reads[-1]

    def _on_news(self) -> None:
        self.news += 1

    def answer(self, revision: int, **values: bytes) -> None:
        """Answer the read that is under way."""
        found = {f"/f/{key}": VersionedValue(value, 1) for key, value in values.items()}
        self.reads[-1].resolve(Listing(found, revision))

    def receive(self, message: bytes) -> None:
        self._followings.on_message(CHANNEL, message)

    @property
    def shown(self) -> tuple[int, dict[str, bytes]] | None:
        if (state := self._observation.view.state) is None:
            return None
        return state.revision, {key[-1]: one.data for key, one in state.values.items()}


def test_small_changes_are_shown_without_a_read() -> None:
    follower = Follower()
    follower.answer(1, b=b"0")
    follower.receive(message(2, (b"b", 2, b"1"), (b"a", 1, b"")))
    assert follower.shown == (2, {"a": b"", "b": b"1"})
    follower.receive(message(3, (b"b", 0, b""), (b"a", 0, b""), (b"a", 1, b"\r\n$")))
    assert follower.shown == (3, {"a": b"\r\n$"})
    assert (len(follower.reads), follower.news) == (1, 3)


def test_a_change_that_a_read_has_shown_already_is_no_news() -> None:
    follower = Follower()
    follower.answer(3, a=b"0")
    follower.receive(message(2))
    follower.receive(message(3, (b"a", 1, b"0")))
    assert (len(follower.reads), follower.news) == (1, 1)


def test_a_small_change_behind_a_large_one_is_not_shown_without_that() -> None:
    follower = Follower()
    follower.answer(1)
    follower.receive(message(2))
    follower.receive(message(3, (b"b", 1, b"1")))
    assert follower.shown == (1, {})
    follower.answer(2, a=b"0")
    follower.answer(3, a=b"0", b=b"1")
    assert follower.shown == (3, {"a": b"0", "b": b"1"})
    follower.receive(message(4, (b"b", 2, b"2")))
    assert follower.shown == (4, {"a": b"0", "b": b"2"})
    assert len(follower.reads) == 3


def test_a_change_that_does_not_fit_is_read() -> None:
    follower = Follower()
    follower.answer(1, a=b"0")
    follower.receive(message(2, (b"a", 5, b"1")))
    assert follower.shown == (1, {"a": b"0"})
    assert len(follower.reads) == 2


def test_a_message_of_a_change_that_failed_half_way_is_read_once() -> None:
    follower = Follower()
    follower.answer(1)
    follower.receive(message(2))
    follower.answer(1)
    assert len(follower.reads) == 2
