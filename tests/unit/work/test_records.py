from __future__ import annotations

import pytest

from coordlock.backend import Listing, Stored
from coordlock.errors import BackendError, QueueMismatch
from coordlock.work.layout import Attempt, ItemId, Layout
from coordlock.work.records import (
    Again,
    Claim,
    Dead,
    Item,
    Made,
    State,
    Tail,
    attempts,
    head_record,
)

LAYOUT = Layout("/root", "q")


def state(**records: bytes) -> State:
    values = {LAYOUT.state + name: Stored(data, 3) for name, data in records.items()}
    return State.read(LAYOUT, Listing(values, 7))


def test_a_queue_that_is_new_is_empty() -> None:
    assert state() == State(Tail(), 1, (0, 0, 0))
    assert state().waiting == 0


def test_tail_and_head_are_read_as_they_were_written() -> None:
    tail = Tail().after("one", 1, items=3, delayed=2).after("two", 1, items=1, delayed=0)
    found = state(tail=tail.encode(), head=head_record(2), bell=b"")
    assert found == State(tail, 2, (3, 3, 3))
    assert found.waiting == 3


def test_the_tail_tells_what_a_producer_has_put() -> None:
    tail = Tail().after("one", 1, items=3, delayed=2)
    assert tail.made("one", 1) == Made(1, next=1, delayed=1)
    assert tail.made("one", 2) is None
    assert tail.made("two", 1) is None
    tail = tail.after("two", 1, items=1, delayed=0)
    assert tail.made("two", 1) == Made(1, next=4, delayed=3)
    tail = tail.after("one", 2, items=1, delayed=1)
    assert tail.made("one", 2) == Made(2, next=5, delayed=3)
    assert list(tail.last) == ["two", "one"]


def test_a_tail_that_has_forgotten_a_producer_says_so() -> None:
    tail = Tail().after("one", 7, items=1, delayed=0)
    for number in range(63):
        tail = tail.after(f"other {number}", 1, items=1, delayed=0)
    assert tail.made("one", 7) == Made(7, 1, 1)
    tail = tail.after("another", 1, items=1, delayed=0)
    assert len(tail.last) == 64
    with pytest.raises(LookupError, match="64 other producers"):
        tail.made("one", 7)
    with pytest.raises(LookupError):
        tail.made("new", 1)


@pytest.mark.parametrize("record", ["tail", "head"])
def test_another_layout_is_refused(record: str) -> None:
    with pytest.raises(QueueMismatch, match="layout 2"):
        state(**{record: b'{"layout": 2}'})
    with pytest.raises(QueueMismatch, match="layout None"):
        state(**{record: b"{}"})


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"null", b'{"layout": 1}'])
def test_what_coordlock_has_not_written_is_refused(data: bytes) -> None:
    with pytest.raises(BackendError, match="not written"):
        state(tail=data)
    for kind in (Again, Claim, Dead, Item):
        with pytest.raises(BackendError, match="/key holds"):
            kind.decode("/key", Stored(data, 1))


def test_records_are_read_as_they_were_written() -> None:
    for record in (Again(1.5, 7), Claim("/key", 3, 7, 1.5), Dead(1.5, "no good")):
        assert type(record).decode("/key", Stored(record.encode(), 1)) == record
    item = Item(1.5, b"\n{}\n")
    assert Item.decode("/key", Stored(item.encode(), 1)) == item


def test_attempts_come_in_the_order_of_their_numbers() -> None:
    names = ["10.1", "9.2", "d9.1", "9.10"]
    found = attempts(Listing({f"/f/{name}": Stored(b"", 1) for name in names}, 1))
    assert [str(one) for one in found] == ["9.2", "9.10", "d9.1", "10.1"]
    assert found[Attempt(ItemId(9), 2)] == ("/f/9.2", Stored(b"", 1))
    with pytest.raises(BackendError, match="/f/x"):
        attempts(Listing({"/f/x": Stored(b"", 1)}, 1))
