from __future__ import annotations

import pytest
from coordlock_faults.events import Kind, OperationAccepted, Reach
from coordlock_faults.register import register

from tests.faults.checkers.story import BOUNDS, MS, Story, broken


def writers() -> tuple[Story, str, str]:
    """Two that held one after the other."""
    story = Story(truth=False)
    one = story.attempt("c1", 5, invoked=1, granted=10, released=20)
    other = story.attempt("c2", 6, invoked=2, granted=21, released=30)
    return story, one, other


def test_operations_in_the_order_of_tokens_are_right() -> None:
    story, one, other = writers()
    story.operation(one, 5, at=11, kind=Kind.READ, order=1)
    story.operation(one, 5, at=13, order=2)
    story.operation(other, 6, at=22, order=3)
    story.operation(one, 5, at=24, refused_by=6)
    assert broken(story) == []


def test_a_stale_write_that_was_accepted_is_found() -> None:
    story, one, other = writers()
    story.operation(other, 6, at=22, order=1)
    story.operation(one, 5, at=24, order=2)
    assert broken(story) == ["StaleAccepted"]


def test_it_is_the_resources_order_that_counts_not_that_of_the_answers() -> None:
    story, one, other = writers()
    story.operation(other, 6, at=22, order=2)
    story.operation(one, 5, at=24, order=1)
    assert broken(story) == []


def test_a_stale_read_that_was_accepted_is_found() -> None:
    """It would write later what it computes now; and a write-only fence loses updates."""
    story, one, other = writers()
    story.operation(other, 6, at=22, kind=Kind.READ, order=1)
    story.operation(one, 5, at=24, kind=Kind.READ, order=2)
    assert broken(story) == ["StaleAccepted"]


@pytest.mark.parametrize(
    ("older", "newer", "right"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_only_readers_pass_newer_readers(older: bool, newer: bool, right: bool) -> None:
    story, one, other = writers()
    story.operation(other, 6, at=22, shared=newer, order=1)
    story.operation(one, 5, at=24, shared=older, order=2)
    assert broken(story) == ([] if right else ["StaleAccepted"])


def test_a_newer_reader_does_not_hide_the_writer_before_it() -> None:
    story, one, other = writers()
    story.operation(other, 7, at=21, order=1)
    story.operation(other, 9, at=22, shared=True, order=2)
    story.operation(one, 6, at=24, shared=True, order=3)
    assert broken(story) == ["StaleAccepted"]


def test_other_resources_are_other_resources() -> None:
    story, one, other = writers()
    story.operation(other, 6, at=22, order=1)
    story.operation(one, 5, at=24, order=2, resource="other")
    assert broken(story) == []


def test_two_operations_in_one_place_are_found() -> None:
    story, one, other = writers()
    story.operation(one, 5, at=11, order=1)
    story.operation(other, 6, at=22, order=1)
    assert broken(story) == ["StaleAccepted"]


@pytest.mark.parametrize("newest", [6, 5, 4, 9])
def test_a_refusal_names_a_newer_token_that_somebody_came_with(newest: int) -> None:
    story, one, other = writers()
    story.operation(other, 6, at=22, order=1)
    story.operation(one, 5, at=24, refused_by=newest)
    assert broken(story) == ([] if newest == 6 else ["UnjustRefusal"])


def test_a_reader_is_not_refused_because_of_a_newer_reader() -> None:
    story, one, other = writers()
    story.operation(other, 6, at=22, shared=True, order=1)
    story.operation(one, 5, at=24, shared=True, refused_by=6)
    assert broken(story) == ["UnjustRefusal"]


def test_an_operation_that_comes_later_justifies_no_refusal() -> None:
    story, one, other = writers()
    story.operation(one, 5, at=24, refused_by=6)
    story.operation(other, 6, at=26, order=1)
    assert broken(story) == ["UnjustRefusal"]


def adds() -> Story:
    """1 and 2 were acknowledged, 3 refused, of 4 nobody knows."""
    story, one, other = writers()
    story.operation(one, 5, at=11, kind=Kind.ADD, value=1, order=1)
    story.operation(other, 6, at=22, kind=Kind.ADD, value=2, order=2)
    story.operation(one, 5, at=24, kind=Kind.ADD, value=3, refused_by=6)
    story.operation(other, 6, at=28, kind=Kind.ADD, value=4, failed=True)
    return story


@pytest.mark.parametrize(
    ("final", "expected"),
    [
        ((1, 2), []),
        ((4, 2, 1), []),
        ((2,), ["LostAdd"]),
        ((), ["LostAdd", "LostAdd"]),
        ((1, 2, 3), ["PhantomAdd"]),  # refused
        ((1, 2, 9), ["PhantomAdd"]),  # never offered
        ((1, 2, 2), ["PhantomAdd"]),
    ],
)
def test_the_final_set_is_what_was_acknowledged(
    final: tuple[int, ...], expected: list[str]
) -> None:
    story = adds()
    story.final_set(*final)
    assert broken(story) == expected


def test_what_proves_a_phantom_is_told() -> None:
    story = adds()
    story.final_set(1, 2)
    story.final_set(3)
    (found,) = register(story.history(), BOUNDS)
    told = str(found)
    assert "ledger holds 3 1 times; 0 adds of it can have been made" in told
    assert "OperationRefused" in told
    assert "values=(3,)" in told
    assert "values=(1, 2)" not in told


def test_a_final_set_is_told_in_several_lines() -> None:
    story = adds()
    story.final_set(1)
    story.final_set(2)
    assert broken(story) == []


@pytest.mark.parametrize(
    ("final", "expected"),
    [(2, ["LostAdd"]), (3, []), (7, []), (8, ["PhantomAdd"])],
)
def test_the_final_sum_is_that_of_what_was_acknowledged(final: int, expected: list[str]) -> None:
    story = adds()
    story.final_value(final)
    assert broken(story) == expected


def test_what_the_resource_itself_tells_counts_as_accepted() -> None:
    """Its client died before it could tell."""
    story, one, _ = writers()
    story.operation(one, 5, at=11, kind=Kind.ADD, value=1)
    story.fault(Reach.KILLED, 890, 891, f"of {one}")
    story.final_set()
    assert broken(story) == []
    story.add(OperationAccepted(12 * MS, "resource", "operation1", 1))
    assert broken(story) == ["LostAdd"]
