"""A simulated day is decided by its choices: lived through again, it is the same."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.contention import ThreePermits


def story(number: int) -> list[object]:
    """All that happens on a few bad days."""
    told: list[object] = []

    class Recorded(ThreePermits):
        def check(self) -> None:
            super().check()
            queue = [(one.order, str(one.claim)) for one in self.world.queue()]
            requests = [len(party.network.requests) for party in self.world.parties]
            told.append((self.world.time.now(), queue, requests))

    few = settings(max_examples=30, stateful_step_count=40, phases=[Phase.generate], database=None)
    run_state_machine_as_test(seed(number)(Recorded), settings=few)
    return told


def test_a_day_does_not_depend_on_what_else_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = story(7)
    numbers = ", ".join(map(str, range(2, 1000)))
    (tmp_path / "other_numbers.py").write_text(f"NUMBERS = [{numbers}]\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("other_numbers")
    try:
        assert story(7) == first
    finally:
        del sys.modules["other_numbers"]


def test_the_same_choices_make_the_same_day() -> None:
    first = story(7)
    assert len(first) > 1000
    assert story(7) == first
    assert story(8) != first
