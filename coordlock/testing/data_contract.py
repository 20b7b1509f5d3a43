"""What the capability ``data`` promises. Subclass `DataContract` as the other suites."""

from __future__ import annotations

import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from coordlock.backend import (
    Delete,
    Expect,
    Listing,
    Observation,
    Operation,
    Put,
    Read,
    VersionedValue,
)
from coordlock.errors import BackendUnavailable, Evicted, VersionMismatch
from coordlock.testing.backend_contract import BOUND, Party
from coordlock.testing.disturbed_suite import DisturbedSuite
from coordlock.testing.waiting import eventually

__all__ = ["DataContract"]


def read(party: Party, where: str) -> dict[str, VersionedValue]:
    """What is kept there."""
    return dict(party.backend.read(where).result(BOUND).values)


class DataContract(DisturbedSuite):
    """The suite."""

    needs = ("ordered", "data")

    @pytest.fixture
    def folder(self) -> str:
        """A folder that no other test uses."""
        return f"/t-{uuid.uuid4().hex[:12]}/"

    # Reading and writing

    def test_nothing_is_read_where_nothing_was_written(self, one: Party, folder: str) -> None:
        assert read(one, folder) == read(one, folder + "key") == {}

    def test_what_was_written_is_read_by_all(self, one: Party, two: Party, folder: str) -> None:
        key = folder + "key"
        for version, value in enumerate((b"", b"a", bytes(range(256)), b"x" * 100_000), start=1):
            written = one.backend.write([Put(key, value)]).result(BOUND)
            listing = two.backend.read(key).result(BOUND)
            assert listing.values == {key: VersionedValue(value, version)}
            assert listing.revision >= written.revision
        two.backend.write([Delete(key), Delete(folder + "none")]).result(BOUND)
        assert read(one, key) == {}
        two.backend.write([Put(key, b"anew")]).result(BOUND)
        assert read(one, key) == {key: VersionedValue(b"anew", 1)}

    def test_a_folder_lists_its_own_keys_in_order(self, one: Party, folder: str) -> None:
        keys = [folder + name for name in ("b", "a", "a b", "a0", "\u00e9", "b/below", "b/x/y")]
        one.backend.write([Put(key, b"1") for key in keys]).result(BOUND)
        beside = folder.rstrip("/") + "beside"
        one.backend.write([Put(beside, b"1")]).result(BOUND)
        assert list(read(one, folder)) == sorted(keys[:5])
        assert list(read(one, folder + "b/")) == [folder + "b/below"]
        assert list(read(one, folder + "b")) == [folder + "b"]

    def test_the_first_names_of_a_folder_come_in_order(
        self, one: Party, two: Party, folder: str
    ) -> None:
        assert two.backend.names(folder).result(BOUND) == []
        names = [f"{number:03d}.{number % 7}" for number in range(40)]
        for some in (names[20:], names[:20]):
            one.backend.write([Put(folder + name, b"") for name in some]).result(BOUND)
            one.backend.write([Put(folder.rstrip("/") + f"beside{some[0]}", b"")]).result(BOUND)
        assert two.backend.names(folder).result(BOUND) == names
        assert two.backend.names(folder, 3).result(BOUND) == names[:3]
        assert two.backend.names(folder, 3, "02").result(BOUND) == [*names[:3], *names[20:23]]
        one.backend.write([Delete(folder + names[0])]).result(BOUND)
        assert two.backend.names(folder, 40).result(BOUND) == names[1:]
        many = [f"1{number:04d}" for number in range(2500)]
        for start in range(0, 2500, 100):
            some = many[start : start + 100]
            one.backend.write([Put(folder + name, b"") for name in some]).result(BOUND)
        assert two.backend.names(folder).result(BOUND) == [*names[1:], *many]
        assert two.backend.names(folder, 1200, "11").result(BOUND) == [
            *[*names[1:], *many[:1000]][:1200],
            *many[1000:2200],
        ]

    def test_an_unmet_expectation_stops_the_whole_write(self, one: Party, folder: str) -> None:
        key, other = folder + "key", folder + "other"
        one.backend.write([Expect(key, 0), Put(key, b"1")]).result(BOUND)
        for version in (0, 2):
            with pytest.raises(VersionMismatch) as caught:
                one.backend.write([Put(other, b"1"), Expect(key, version)]).result(BOUND)
            assert (caught.value.key, caught.value.expected) == (key, version)
        one.backend.write([Expect(key, 1), Put(key, b"2"), Expect(other, 0)]).result(BOUND)
        assert read(one, folder) == {key: VersionedValue(b"2", 2)}

    def test_a_write_tells_what_other_keys_hold(self, one: Party, two: Party, folder: str) -> None:
        key, other = folder + "key", folder + "other"
        two.backend.write([Put(other, b"1")]).result(BOUND)
        two.backend.write([Put(other, b"2")]).result(BOUND)
        reads: list[Operation] = [Read(folder + "none"), Read(other)]
        _, guard, _ = one.enqueue("a")
        found = {other: VersionedValue(b"2", 2)}
        changing = [*reads, Expect(key, 0), Put(key, b"1")]
        assert one.backend.write(changing, [guard]).result(BOUND).values == found
        assert one.backend.write(reads).result(BOUND).values == found
        assert one.backend.write(reads, [guard]).result(BOUND).values == found
        assert read(one, folder) == {key: VersionedValue(b"1", 1), **found}
        with pytest.raises(VersionMismatch):
            one.backend.write(changing).result(BOUND)

    def test_compare_and_set_loses_no_update(self, one: Party, two: Party, folder: str) -> None:
        key = folder + "number"

        def add(party: Party) -> None:
            for _ in range(20):
                while True:
                    found = read(party, key).get(key, VersionedValue(b"0", 0))
                    more = Put(key, b"%d" % (int(found.data) + 1))
                    try:
                        party.backend.write([Expect(key, found.version), more]).result(BOUND)
                        break
                    except VersionMismatch:
                        continue

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(add, (one, two)))
        assert read(one, key)[key].data == b"40"

    def test_every_guard_must_stand_in_its_queue(self, one: Party, two: Party, folder: str) -> None:
        key = folder + "key"
        guards = [one.enqueue(queue)[1] for queue in "ab"]
        one.backend.write([Put(key, b"1")], guards).result(BOUND)
        two.backend.evict(guards[1]).result(BOUND)
        for lost in (guards, guards[1:]):
            with pytest.raises(Evicted):
                one.backend.write([Put(key, b"2")], lost).result(BOUND)
        one.backend.write([Put(key, b"3")], guards[:1]).result(BOUND)
        assert read(two, key) == {key: VersionedValue(b"3", 2)}

    def test_a_write_under_way_while_its_guard_leaves_is_done_before_or_refused(
        self, one: Party, folder: str
    ) -> None:
        key, made = folder + "key", 0
        for _ in range(20):
            entry, guard, _ = one.enqueue("a")
            writing = one.backend.write([Put(key, b"x")], [guard])
            leaving = one.backend.withdraw([entry])
            error = writing.exception(BOUND)
            assert leaving.result(BOUND)
            assert error is None or isinstance(error, Evicted)
            made += error is None
            assert read(one, key) == ({key: VersionedValue(b"x", made)} if made else {})

    def test_a_write_whose_reply_was_lost_is_not_repeated(self, one: Party, folder: str) -> None:
        key = folder + "key"
        # Where a write is a script, the service knows it from then on.
        one.backend.write([Put(folder + "other", b"")]).result(BOUND)
        self.lose_reply(one, "write")
        with pytest.raises(BackendUnavailable):
            one.backend.write([Put(key, b"1")]).result(BOUND)
        listing = self.repeated(lambda: one.backend.read(key))
        assert listing.values == {key: VersionedValue(b"1", 1)}

    def test_revisions_never_go_back(self, one: Party, two: Party, folder: str) -> None:
        revisions = []
        for number in range(10):
            written = (one, two)[number % 2].backend.write([Put(folder + "key", b"")])
            revisions.append(written.result(BOUND).revision)
            revisions.append(one.backend.read(folder).result(BOUND).revision)
        assert revisions == sorted(revisions)
        assert len(set(revisions)) >= 10

    # Following

    def _values(self, observed: Observation[Listing]) -> dict[str, bytes]:
        state = observed.view.state
        return {} if state is None else {key: one.data for key, one in state.values.items()}

    def _shows(self, observed: Observation[Listing], values: dict[str, bytes]) -> bool:
        return self._values(observed) == values

    def test_a_follower_sees_what_is_there_and_what_comes(
        self, one: Party, two: Party, folder: str
    ) -> None:
        key = folder + "key"
        one.backend.write([Put(key, b"1")]).result(BOUND)
        told = threading.Event()
        single = two.backend.follow(key, told.set)
        whole = two.backend.follow(folder, lambda: None)
        eventually(lambda: self._values(single) == self._values(whole) == {key: b"1"})
        assert told.wait(BOUND)
        eventually(lambda: single.view.stale_since is None)
        one.backend.write([Put(key, b"2"), Put(folder + "more", b"m")]).result(BOUND)
        eventually(lambda: self._values(whole) == {key: b"2", folder + "more": b"m"})
        eventually(lambda: self._values(single) == {key: b"2"})
        one.backend.write([Delete(key)]).result(BOUND)
        eventually(lambda: self._values(single) == {})
        for observed in (single, whole):
            observed.cancel()

    def test_a_follower_of_news_learns_of_each_change(
        self, one: Party, two: Party, folder: str
    ) -> None:
        followed = two.backend.follow_news(folder + "key", lambda: None)
        eventually(lambda: followed.view.stale_since is None)
        for number in range(3):
            seen = followed.view.state
            one.backend.write([Put(folder + "key", b"%d" % number)]).result(BOUND)
            eventually(lambda: followed.view.state is not seen)  # noqa: B023
        # Another observer of this client sees what the key holds.
        whole = two.backend.follow(folder + "key", lambda: None)
        eventually(lambda: self._values(whole) == {folder + "key": b"2"})
        one.backend.write([Put(folder + "key", b"3")]).result(BOUND)
        eventually(lambda: self._values(whole) == {folder + "key": b"3"})
        whole.cancel()
        followed.cancel()

    def test_a_follower_sees_a_write_of_several_keys_as_a_whole(
        self, one: Party, two: Party, folder: str
    ) -> None:
        keys = [folder + name for name in "abc"]
        halves: list[dict[str, bytes]] = []
        numbers: list[int] = []

        def look() -> None:
            values = self._values(observed)
            if len(set(values.values())) > 1 or len(values) not in (0, 3):
                halves.append(values)
            if values:
                numbers.append(int(values[keys[0]]))

        observed = two.backend.follow(folder, lambda: None)
        for number in range(100):
            one.backend.write([Put(key, b"%d" % number) for key in keys]).result(BOUND)
            look()
        eventually(lambda: self._values(observed) == dict.fromkeys(keys, b"99"))
        assert halves == []
        assert numbers == sorted(numbers)
        observed.cancel()

    def test_what_is_written_without_a_pause_is_shown_and_read(
        self, one: Party, two: Party, folder: str
    ) -> None:
        """Pairs of keys are written as a whole by several threads, and seen as a whole."""
        pairs = [(f"{folder}{name}0", f"{folder}{name}1") for name in "abcdefghij"]
        ended = threading.Event()
        seen: dict[int, Listing] = {}

        def write(mine: list[tuple[str, str]]) -> None:
            while not ended.is_set():
                for pair in mine:
                    value = uuid.uuid4().bytes
                    one.backend.write([Put(key, value) for key in pair]).result(BOUND)

        def has_seen_several() -> bool:
            if (state := observed.view.state) is not None and state.values:
                seen[state.revision] = state
            return len(seen) >= 5

        with ThreadPoolExecutor(5) as pool:
            observed = two.backend.follow(folder, lambda: None)
            writers = [pool.submit(write, pairs[start::5]) for start in range(5)]
            try:
                eventually(has_seen_several, within=2 * BOUND)
                for _ in range(5):
                    listing = two.backend.read(folder).result(BOUND)
                    seen[listing.revision] = listing
            finally:
                ended.set()
        assert [writer.exception() for writer in writers] == [None] * 5
        for state in seen.values():
            for first, second in pairs:
                assert state.values.get(first) == state.values.get(second)
        observed.cancel()

    def test_a_follower_misses_no_change_whether_it_is_small_or_large(
        self, one: Party, two: Party, folder: str
    ) -> None:
        chance = random.Random(1)
        keys = [folder + name for name in ("a", "b", "c d", "\u00e9")]
        observed = [two.backend.follow(place, lambda: None) for place in (folder, *keys)]
        for _ in range(30):
            writes: list[Operation] = []
            for key in chance.choices(keys, k=3):
                value = chance.randbytes(chance.choice((0, 1, 5000)))
                writes.append(Delete(key) if chance.random() < 0.2 else Put(key, value))
            for answer in [one.backend.write([write]) for write in writes]:
                answer.result(BOUND)
            found = {key: value.data for key, value in read(one, folder).items()}
            eventually(partial(self._shows, observed[0], found))
            for key, single in zip(keys, observed[1:], strict=True):
                eventually(partial(self._shows, single, {key: found[key]} if key in found else {}))
        for each in observed:
            each.cancel()

    def test_a_follower_that_was_cut_off_sees_what_is_then_there(
        self, one: Party, two: Party, folder: str
    ) -> None:
        key = folder + "key"
        one.backend.write([Put(key, b"1")]).result(BOUND)
        observed = two.backend.follow(folder, lambda: None)
        eventually(lambda: self._values(observed) == {key: b"1"})
        with self.cut_off(two):
            one.backend.write([Delete(key), Put(folder + "new", b"2")]).result(BOUND)
            eventually(lambda: observed.view.stale_since is not None)
            assert self._values(observed) == {key: b"1"}
        eventually(lambda: self._values(observed) == {folder + "new": b"2"})
        eventually(lambda: observed.view.stale_since is None)
        observed.cancel()
