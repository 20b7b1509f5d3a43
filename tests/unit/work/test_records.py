from __future__ import annotations

import pytest

from coordlock.backend import VersionedValue
from coordlock.errors import BackendError, NameConflict
from coordlock.work.layout import LANES, Layout
from coordlock.work.records import Content, Lane, Made, Record, State, Tail

LAYOUT = Layout("/root", "q")
NEW = tuple(Lane.new(lane) for lane in range(LANES))


def state(**records: bytes) -> State:
    keys = {name.replace("_", "-"): data for name, data in records.items()}
    values = {LAYOUT.state + name: VersionedValue(data, 3) for name, data in keys.items()}
    return State.read(LAYOUT, values)


def test_a_tail_keeps_what_a_newer_release_has_added() -> None:
    written = Tail().encode().removesuffix(b"}") + b',"new":["later"]}'
    tail = state(tail=written).tail.after("one", 1, items=1, delayed=0)
    assert b'"new":["later"]' in tail.encode()
    assert state(tail=tail.encode()).tail == tail


def test_the_tail_tells_what_a_producer_has_put() -> None:
    tail = Tail().after("one", 1, items=3, delayed=2)
    assert tail.made("one", 1, 1) == Made(1, next=1, delayed=1)
    assert tail.made("one", 2, 0) is None
    assert tail.made("two", 1, 63) is None
    tail = tail.after("two", 1, items=1, delayed=0)
    assert tail.made("two", 1, 1) == Made(1, next=4, delayed=3)
    tail = tail.after("one", 2, items=1, delayed=1)
    assert tail.made("one", 2, 1) == Made(2, next=5, delayed=3)
    assert list(tail.last) == ["two", "one"]


def test_a_tail_that_may_have_forgotten_a_producer_says_so() -> None:
    tail = Tail().after("one", 7, items=1, delayed=0)
    for number in range(63):
        tail = tail.after(f"other {number}", 1, items=1, delayed=0)
    assert tail.made("one", 7, 64) == Made(7, 1, 1)
    tail = tail.after("another", 1, items=1, delayed=0)
    assert len(tail.last) == 64
    with pytest.raises(LookupError, match="others have put 65 times since"):
        tail.made("one", 7, 65)
    # Nobody has put since the attempt, so it was not made, whatever came before it.
    assert tail.made("one", 8, 0) is None


@pytest.mark.parametrize("record", ["tail", "lane_3"])
def test_a_later_format_is_refused(record: str) -> None:
    with pytest.raises(NameConflict, match="another release"):
        state(**{record: b'{"format": 2}'})


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"null", b"{}", b'{"format": 1}'])
def test_what_coordlock_has_not_written_is_refused(data: bytes) -> None:
    with pytest.raises(BackendError, match="not as coordlock writes it"):
        state(tail=data)
    for kind in (Record, Content):
        if kind is not Record or data != b'{"format": 1}':
            with pytest.raises(BackendError, match="'/key' is not as coordlock writes it"):
                kind.decode("/key", VersionedValue(data, 1))


def test_records_are_read_as_they_were_written_and_unknown_fields_are_ignored() -> None:
    record = Record(1.5, 7, 2, 1, "/worker", 3, "no good")
    for data in (record.encode(), record.encode()[:-1] + b', "new": 1}'):
        assert Record.decode("/key", VersionedValue(data, 1)) == record
    content = Content(1.5, b"\n{}\n")
    assert Content.decode("/key", VersionedValue(content.encode(), 1)) == content
