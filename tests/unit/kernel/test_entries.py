from __future__ import annotations

import os

import pytest

from coordlock.kernel.entries import Entries
from coordlock.model.claim import Mode


def ids(entries: Entries) -> list[str]:
    return [entry.id for entry in entries.made({"p": Mode.EX, "q": Mode.EX})]


def test_ids_are_32_digits_and_never_the_same() -> None:
    one, other = Entries(""), Entries("")
    made = [id for _ in range(500) for entries in (one, other) for id in ids(entries)]
    assert len({*made}) == len(made)
    assert all(len(id) == 32 and int(id, 16) >= 0 for id in made)


def test_copies_make_different_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    # As after a virtual machine was copied.
    monkeypatch.setattr(os, "urandom", bytes)
    assert not {*ids(Entries(""))} & {*ids(Entries(""))}
