from __future__ import annotations

import os

import pytest

from coordlock.kernel.entries import EntryIds


def test_ids_are_32_digits_and_never_the_same() -> None:
    one, other = EntryIds(), EntryIds()
    made = [next(ids) for _ in range(1000) for ids in (one, other)]
    assert len({*made}) == len(made)
    assert all(len(id) == 32 and int(id, 16) >= 0 for id in made)


def test_copies_make_different_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    # As after a virtual machine was copied.
    monkeypatch.setattr(os, "urandom", bytes)
    assert next(EntryIds()) != next(EntryIds())
