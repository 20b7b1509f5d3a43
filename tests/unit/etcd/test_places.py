from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.keys import Layout
from coordlock_etcd.places import DataPlace, Place, QueuePlace
from hypothesis import given
from hypothesis import strategies as st

from coordlock.backend import VersionedValue
from coordlock.model.contender import Owner

LAYOUT = Layout.below("/r")
OWNER = Owner("host", 1, "a test", 1.0)


def kv(key: str, revision: int, value: bytes = b"", *, created: int = 0) -> pb.KeyValue:
    return pb.KeyValue(
        key=key.encode(),
        value=value,
        version=revision,
        create_revision=created or revision,
        mod_revision=revision,
    )


def put(key: str, revision: int, value: bytes = b"", *, created: int = 0) -> pb.Event:
    return pb.Event(type=pb.Event.PUT, kv=kv(key, revision, value, created=created))


def deletion(key: str, revision: int) -> pb.Event:
    return pb.Event(type=pb.Event.DELETE, kv=pb.KeyValue(key=key.encode(), mod_revision=revision))


def tell(place: Place[Any, Any], *events: pb.Event, fragment: bool = False) -> bool:
    return place.apply(pb.WatchResponse(events=events, fragment=fragment))


def folder(*kvs: pb.KeyValue, at: int, layout: Layout = LAYOUT, where: str = "/f/") -> DataPlace:
    place = DataPlace(layout, where)
    assert place.read(place.parts(kvs), at)
    return place


def data(place: DataPlace) -> dict[str, bytes]:
    assert place.state is not None
    return {key: one.data for key, one in place.state.values.items()}


def test_events_are_shown_at_the_revision_of_the_last() -> None:
    place = folder(kv("/f/a", 3, b"1"), at=5)
    assert tell(place, put("/f/b", 7, b"2"), deletion("/f/a", 8))
    assert data(place) == {"/f/b": b"2"}
    assert place.state is not None
    assert place.state.revision == 8


def test_a_revision_in_fragments_is_shown_as_a_whole() -> None:
    place = folder(at=5)
    before = place.state
    assert not tell(place, put("/f/a", 6, b"1"), fragment=True)
    assert not tell(place, put("/f/b", 6, b"1"), put("/f/a", 7, b"2"), fragment=True)
    assert place.state is before
    assert tell(place, put("/f/b", 7, b"2"))
    assert data(place) == {"/f/a": b"2", "/f/b": b"2"}


def test_a_reading_that_comes_between_fragments_undoes_none() -> None:
    place = folder(at=5)
    tell(place, put("/f/a", 6, b"1"), put("/f/a", 7, b"2"), fragment=True)
    assert not place.read(place.parts([kv("/f/a", 6, b"1")]), 6)
    tell(place, put("/f/b", 7, b"2"))
    assert data(place) == {"/f/a": b"2", "/f/b": b"2"}


def test_a_reading_that_events_have_overtaken_shows_that_the_state_is_as_new() -> None:
    place = folder(kv("/f/a", 3, b"1"), at=5)
    tell(place, put("/f/a", 7, b"2"))
    assert place.read(place.parts([kv("/f/a", 6, b"1")]), 6)
    assert data(place) == {"/f/a": b"2"}
    assert not tell(place, put("/f/deeper/b", 9, b"3"))
    assert place.read(place.parts([kv("/f/a", 7, b"2")]), 8)
    assert data(place) == {"/f/a": b"2"}


def test_events_that_a_reading_has_shown_already_are_left_out() -> None:
    place = folder(kv("/f/a", 6, b"new"), at=9)
    assert not tell(place, put("/f/a", 5, b"old"), deletion("/f/a", 4))
    assert data(place) == {"/f/a": b"new"}


def test_half_a_revision_of_a_broken_stream_is_forgotten_with_the_next_reading() -> None:
    place = folder(kv("/f/a", 5, b"1"), at=5)
    tell(place, put("/f/a", 9, b"2"), fragment=True)
    place.restart()
    assert data(place) == {"/f/a": b"1"}
    assert place.read(place.parts([kv("/f/a", 6, b"3")]), 6)
    assert data(place) == {"/f/a": b"3"}


def test_a_state_stays_as_it_was_when_another_comes() -> None:
    place = folder(kv("/f/a", 3, b"1"), at=5)
    first = place.state
    tell(place, put("/f/a", 6, b"2"))
    assert first is not None
    assert first.values["/f/a"].data == b"1"


@pytest.mark.parametrize("key", ["/f/below/a", "/f/", "/f/below/"])
def test_what_is_not_directly_in_a_folder_is_neither_read_nor_news(key: str) -> None:
    place = folder(kv(key, 3), at=5)
    assert not tell(place, put(key, 6), deletion(key, 7))
    assert data(place) == {}


def test_keys_are_in_the_order_of_their_code_points() -> None:
    keys = ["/f/\ue000", "/f/a", "/f/\U00010000", "/f/A"]
    place = folder(*(kv(key, 3) for key in keys[:2]), at=5)
    tell(place, *(put(key, 6) for key in keys[2:]))
    assert list(data(place)) == sorted(keys)


def test_a_key_is_itself_alone() -> None:
    place = folder(kv("/f/a", 3, b"1"), at=5, where="/f/a")
    assert (place.key, place.end) == (b"/f/a", b"")
    assert data(place) == {"/f/a": b"1"}


@pytest.mark.parametrize(
    ("where", "leading_slash", "key", "end"),
    [
        ("/f/", True, b"/f/", b"/f0"),
        ("/f/", False, b"f/", b"f0"),
        ("/f", False, b"f", b""),
        ("/", True, b"/", b"0"),
        ("/", False, b"\0", b"\0"),
    ],
)
def test_a_place_is_where_the_keys_begin_with_or_without_a_slash(
    where: str, leading_slash: bool, key: bytes, end: bytes
) -> None:
    layout = Layout.below("/r", leading_slash=leading_slash)
    place = DataPlace(layout, where)
    assert (place.key, place.end) == (key, end)
    assert (place.reading().key, place.reading().range_end) == (key, end)


@pytest.mark.parametrize("leading_slash", [True, False])
def test_a_key_that_is_no_text_is_listed_and_can_be_named(leading_slash: bool) -> None:
    layout = Layout.below("/r", leading_slash=leading_slash)
    raw = b"/f/\xff" if leading_slash else b"f/\xff"
    one = pb.KeyValue(key=raw, mod_revision=3, version=1)
    place = folder(one, at=5, layout=layout)
    [path] = data(place)
    assert layout.at(path) == raw


def test_contenders_stand_in_the_order_in_which_they_came() -> None:
    place = QueuePlace(LAYOUT, "q")
    newest_first = [kv("/r/q/lock-b", 4, OWNER.encode()), kv("/r/q/lock-c", 3)]
    place.read(place.parts(newest_first), 5)
    tell(place, put("/r/q/lock-a", 6))
    # Another value of a contender changes nothing of its place.
    tell(place, put("/r/q/lock-c", 7, OWNER.encode(), created=3))
    assert place.state is not None
    assert [one.order for one in place.state.contenders] == [3, 4, 6]
    assert [one.owner for one in place.state.contenders] == [OWNER, OWNER, None]
    tell(place, deletion("/r/q/lock-c", 8))
    tell(place, put("/r/q/lock-c", 9))
    assert [one.token for one in place.state.contenders] == [4, 6, 9]
    assert (place.state.queue, place.state.revision, place.state.omitted) == ("q", 9, 0)


State = dict[str, tuple[bytes, int]]


class Store:
    """A store with one folder, and what etcd would tell of it."""

    def __init__(self, chance: random.Random, revisions: int) -> None:
        self.states: list[State] = [{}]
        self.events: list[list[pb.Event]] = [[]]
        for revision in range(1, revisions + 1):
            state, events = dict(self.states[-1]), []
            for name in chance.sample("abcde", chance.randint(0, 4)):
                key = f"/f/{name}"
                if key in state and chance.random() < 0.4:
                    del state[key]
                    events.append(deletion(key, revision))
                else:
                    value = b"%d" % chance.randint(0, 9)
                    state[key] = (value, revision)
                    events.append(put(key, revision, value))
            self.states.append(state)
            self.events.append(events)

    def reading(self, revision: int) -> Sequence[pb.KeyValue]:
        found = self.states[revision].items()
        return [kv(key, modified, value) for key, (value, modified) in found]


@given(st.integers(0, 2**32))
def test_whatever_comes_each_state_is_one_of_the_store_and_they_follow_each_other(
    seed: int,
) -> None:
    chance = random.Random(seed)
    store = Store(chance, 30)
    place = folder(at=0)
    shown: list[tuple[int, dict[str, VersionedValue]]] = []
    told = 0
    while told < 30:
        upto = chance.randint(told + 1, min(30, told + 4))
        events = [one for events in store.events[told + 1 : upto + 1] for one in events]
        while events or upto > told:
            size = chance.randint(1, max(1, len(events)))
            tell(place, *events[:size], fragment=size < len(events))
            events = events[size:]
            told = upto if not events else told
            assert place.state is not None
            match chance.randint(0, 9):
                case 0:  # the stream breaks, and all is read again
                    place.restart()
                    told = upto = chance.randint(max(place.state.revision, upto), 30)
                    assert place.read(place.parts(store.reading(told)), told)
                    events = []
                case 1:  # a reading that may be older than what was told, or newer
                    at = chance.randint(max(0, told - 3), 30)
                    place.read(place.parts(store.reading(at)), at)
            shown.append((place.state.revision, dict(place.state.values)))
    assert place.read(place.parts(store.reading(30)), 30)
    for revision, values in shown:
        expected = {key: VersionedValue(*one) for key, one in store.states[revision].items()}
        assert values == expected
    assert [revision for revision, _ in shown] == sorted(revision for revision, _ in shown)
    assert data(place) == {key: value for key, (value, _) in store.states[30].items()}
