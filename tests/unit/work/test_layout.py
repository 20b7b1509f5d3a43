from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock.work.layout import ItemId, Layout, Serial

ids = st.builds(ItemId, st.integers(0, 10**9), st.booleans())


@given(ids, st.integers(0, 10**6))
def test_the_name_of_a_claim_tells_which_it_is(id: ItemId, serial: int) -> None:
    assert ItemId.parse(str(id)) == id
    assert Serial.parse(str(Serial(id, serial))) == Serial(id, serial)


@pytest.mark.parametrize(
    "text", ["", "d", "x", "01", "-1", "1.", "1.x", "d1.01.", "dd1", "\u0661", "1 "]
)
def test_what_names_no_claim_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        Serial.parse(text)
    with pytest.raises(ValueError, match="such as"):
        ItemId.parse(text)


@given(ids, ids)
def test_items_have_places_of_their_own(one: ItemId, other: ItemId) -> None:
    layout = Layout("/root", "q")
    assert (layout.item(one) == layout.item(other)) is (one == other)


def test_no_folder_grows_with_the_queue() -> None:
    layout = Layout("/root", "q")
    folders = [layout.item(ItemId(number)).rpartition("/")[0] for number in range(10_000)]
    assert max(map(folders.count, set(folders))) == 256
    numbers = map(ItemId, range(10_000))
    buckets = [layout.dead.folder_of(id) for id in numbers]
    assert max(map(buckets.count, set(buckets))) == 1024
    slots = [places(layout, Serial(ItemId(number)), 1e9)[-1] for number in range(10_000)]
    assert max(map(slots.count, set(slots))) == 1024


def places(layout: Layout, item: Serial, due: float) -> list[str]:
    """The folders that name ``item``, which is delayed: from the hours to its slot."""
    operations = layout.delayed.adding(item, due, b"")
    keys = dict.fromkeys(operation.key for operation in operations)
    return [key.rpartition("/")[0] + "/" for key in keys]


@given(st.floats(0, 1e10), ids)
def test_the_way_to_a_delayed_item_opens_before_it_is_due(due: float, id: ItemId) -> None:
    delayed = Layout("/root", "q").delayed
    hour_mark, slot_mark, *adding = delayed.adding(Serial(id), due, b"")
    hour, slot = hour_mark.key.rpartition("/")[2], slot_mark.key.rpartition("/")[2]
    assert (hour_mark.key, slot_mark.key) == (delayed.hours + hour, delayed.slots(hour) + slot)
    assert due - 3600 < int(hour) * 3600 <= due
    assert due - 60 < int(slot.partition(".")[0]) * 60 <= due
    assert adding[-1].key == f"{delayed.folder(slot)}{Serial(id)}"


@pytest.mark.parametrize("name", ["a/b", "..", "@a", "é" * 100])
def test_a_name_leaves_its_place_neither_in_keys_nor_in_queues(name: str) -> None:
    layout = Layout("/root", name)
    assert layout.tail.count("/") == Layout("/root", "q").tail.count("/")
    assert "/" not in layout.chores
    assert layout.chores != layout.workers
