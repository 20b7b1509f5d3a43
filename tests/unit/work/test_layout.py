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
    buckets = [layout.kept.dead(id) for id in numbers]
    assert max(map(buckets.count, set(buckets))) == 1024
    delayed = (
        layout.kept.adding(Serial(id), 1e9, b"")[-1].key for id in map(ItemId, range(10_000))
    )
    slots = [key.rpartition("/")[0] for key in delayed]
    assert max(map(slots.count, set(slots))) == 1024


@pytest.mark.parametrize("name", ["a/b", "..", "@a", "é" * 100])
def test_a_name_leaves_its_place_neither_in_keys_nor_in_queues(name: str) -> None:
    layout = Layout("/root", name)
    assert layout.tail.count("/") == Layout("/root", "q").tail.count("/")
    assert "/" not in layout.chores
    assert layout.chores != layout.workers
