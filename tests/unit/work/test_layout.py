from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock.work.layout import (
    Attempt,
    ItemId,
    Layout,
    bucket_at,
    bucket_of,
    opening,
)

ids = st.builds(ItemId, st.integers(0, 10**9), st.booleans())


@given(ids, st.integers(0, 10**6))
def test_the_name_of_an_attempt_tells_which_it_is(id: ItemId, attempt: int) -> None:
    assert ItemId.parse(str(id)) == id
    assert Attempt.parse(str(Attempt(id, attempt))) == Attempt(id, attempt)


@pytest.mark.parametrize(
    "text", ["", "d", "x", "01", "-1", "1.", "1.x", "d1.01.", "dd1", "\u0661", "1 "]
)
def test_what_names_no_attempt_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        Attempt.parse(text)
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
    buckets = [bucket_at(1e9, ItemId(number)) for number in range(10_000)]
    assert max(map(buckets.count, set(buckets))) == 1024
    buckets = [bucket_of(ItemId(number)) for number in range(10_000)]
    assert max(map(buckets.count, set(buckets))) == 1024


@given(st.floats(0, 1e10), ids)
def test_a_bucket_opens_before_what_is_in_it_is_due(due: float, id: ItemId) -> None:
    assert due - 60 < opening(bucket_at(due, id)) <= due


@pytest.mark.parametrize("name", ["a/b", "..", "@a", "é" * 100])
def test_a_name_leaves_its_place_neither_in_keys_nor_in_queues(name: str) -> None:
    layout = Layout("/root", name)
    assert layout.tail.count("/") == Layout("/root", "q").tail.count("/")
    assert "/" not in layout.takers
    assert layout.takers != layout.workers
