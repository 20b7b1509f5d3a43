"""What the names of a work queue's keys say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock.work.layout import OLD, Entry, Layout, number_of

times = st.integers(0, 10**14)
entries = st.builds(
    Entry,
    is_old=st.integers(0, 1),
    at=times,
    number=st.integers(1, 10**15),
    token=st.integers(0, 2**63 - 1),
    deliveries=st.integers(0, 10**6),
    failures=st.integers(0, 10**6),
)


@given(entries)
def test_an_entry_is_what_its_name_says(entry: Entry) -> None:
    assert Entry.parse(str(entry)) == entry
    assert entry.id == str(entry.number)
    assert number_of(entry.id) == entry.number


@given(st.lists(entries))
def test_names_sort_by_the_time_when_an_item_is_due_and_then_by_its_number(
    some: list[Entry],
) -> None:
    ordered = sorted(some, key=str)
    assert [entry[:3] for entry in ordered] == sorted(entry[:3] for entry in some)
    assert all((str(entry) >= OLD) == entry.is_old for entry in some)


@pytest.mark.parametrize("id", ["", "x", "-1", "01", "1.1", "\u0661", "d1"])
def test_what_is_no_id_is_refused(id: str) -> None:
    with pytest.raises(ValueError, match="is not an item's id, such as '17'"):
        number_of(id)


def test_an_id_is_text() -> None:
    with pytest.raises(TypeError, match="an item's id is a str, not int"):
        number_of(17)


@pytest.mark.parametrize("name", ["a/b", "..", "@a", "é" * 100])
def test_a_name_leaves_its_place_neither_in_keys_nor_in_queues(name: str) -> None:
    layout = Layout("/root", name)
    assert layout.tail.count("/") == Layout("/root", "q").tail.count("/")
    assert "/" not in layout.chores
    assert layout.chores != layout.workers
