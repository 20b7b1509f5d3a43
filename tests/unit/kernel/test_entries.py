from __future__ import annotations

import os

import pytest

from coordlock.kernel.entries import Announcement, Entries, EntryIds
from coordlock.model.claim import Convertible, Mode


def test_ids_are_32_digits_and_never_the_same() -> None:
    one, other = EntryIds(), EntryIds()
    made = [next(ids) for _ in range(1000) for ids in (one, other)]
    assert len({*made}) == len(made)
    assert all(len(id) == 32 and int(id, 16) >= 0 for id in made)


def test_an_id_that_is_free_is_used_again_and_only_once() -> None:
    entries = Entries("", reuses_ids=True)
    (first,) = entries.made({"q": Mode.EX})
    (other,) = entries.made({"q": Mode.EX})
    entries.free([first])
    again = entries.made({"a": Mode.EX, "b": Mode.EX})
    assert again[0].id == first.id
    assert len({first.id, other.id, again[1].id}) == 3


def test_an_id_of_what_publishes_is_never_used_again() -> None:
    entries = Entries("", reuses_ids=True)
    published = entries.made({"q": Mode.EX}, announcement=Announcement(b"value"))
    entries.free(published)
    entries.free(entries.made({"q": Convertible(Mode.EX)}))
    entries.free(plain := entries.made({"q": Mode.EX}))
    (later,) = entries.made({"q": Mode.EX}, announcement=Announcement(b"value"))
    (last,) = entries.made({"q": Mode.EX})
    assert len({published[0].id, plain[0].id, later.id}) == 3
    assert last.id == plain[0].id


def test_no_id_is_used_again_where_nothing_gains_by_it() -> None:
    entries = Entries("")
    entries.free(first := entries.made({"q": Mode.EX}))
    assert entries.made({"q": Mode.EX})[0].id != first[0].id


def test_copies_make_different_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    # As after a virtual machine was copied.
    monkeypatch.setattr(os, "urandom", bytes)
    assert next(EntryIds()) != next(EntryIds())
