from __future__ import annotations

import pytest
from coordlock_faults.events import Enqueued

from coordlock.model.claim import Mode
from tests.faults.checkers.story import MS, Story, broken


def test_tokens_that_grow_are_right() -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=7)
    story.attempt("c2", 6, invoked=2, granted=21, released=30, gone=8)
    story.attempt("c1", 9, invoked=25, granted=31, released=40, gone=10)
    assert broken(story) == []


def test_a_token_that_two_have_is_found() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.attempt("c2", 5, invoked=2, granted=21, released=30)
    assert broken(story) == ["RepeatedToken"]


def test_the_token_of_another_lock_is_another_token() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.lock = "b"
    story.attempt("c2", 5, invoked=2, granted=21, released=30)
    assert broken(story) == []


@pytest.mark.parametrize("token", [4, 5])
def test_a_token_below_that_of_one_that_was_there_before_is_found(token: int) -> None:
    """As when the parent of the queue was deleted and numbers start again."""
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.attempt("c2", token, invoked=21, granted=30, released=40)
    found = broken(story)
    assert "DisorderedTokens" in found
    assert ("RepeatedToken" in found) is (token == 5)


def test_readers_are_ordered_too() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, claim=Mode.PR, invoked=1, granted=10, released=50)
    story.attempt("c2", 4, claim=Mode.PR, invoked=11, granted=30, released=40)
    assert broken(story) == ["DisorderedTokens"]


def test_those_that_are_enqueued_at_the_same_time_have_tokens_in_any_order() -> None:
    story = Story(truth=False)
    story.attempt("c1", 6, claim=Mode.PR, invoked=1, granted=10, released=50)
    story.attempt("c2", 5, claim=Mode.PR, invoked=10, granted=30, released=40)
    assert broken(story) == []


def test_a_contender_that_is_never_granted_orders_others_when_its_token_was_seen() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, enqueued=9, failed=30)
    story.attempt("c2", 4, invoked=10, granted=40, released=50)
    assert broken(story) == ["DisorderedTokens"]


def test_a_contender_that_changes_its_token_is_found() -> None:
    story = Story(truth=False)
    one = story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.add(Enqueued(2 * MS, "c1", one, 4))
    assert broken(story) == ["RepeatedToken"]


def test_the_newest_token_before_counts_and_not_the_last_one() -> None:
    """Nor the first one."""
    for order in ([5, 8], [8, 5]):
        story = Story(truth=False)
        for number, token in enumerate(order):
            at = 10 * number
            story.attempt(
                f"c{number}", token, claim=Mode.PR, invoked=1, granted=at + 2, released=at + 3
            )
        assert broken(story) == []
        story.attempt("c9", 6, claim=Mode.PR, invoked=50, granted=51, released=52)
        assert broken(story) == ["DisorderedTokens"]


def test_the_greatest_token_is_one() -> None:
    story = Story(truth=False)
    story.attempt("c1", 2**63 - 1, invoked=1, granted=10, released=20)
    assert broken(story) == []


@pytest.mark.parametrize("token", [0, -1, 2**63])
def test_what_cannot_be_a_token_is_found(token: int) -> None:
    story = Story(truth=False)
    story.attempt("c1", token, invoked=1, granted=10, released=20)
    assert broken(story) == ["ForeignToken"]


def test_a_token_that_the_service_never_made_is_found() -> None:
    """The header's revision, for example, and not the contender's."""
    story = Story()
    story.contender(5, 7)
    story.truth = False
    story.attempt("c1", 6, invoked=1, granted=10, released=20)
    story.truth = True
    assert broken(story) == ["ForeignToken"]


def test_a_token_of_another_claim_is_found() -> None:
    story = Story()
    story.contender(5, 7, claim=Mode.PR)
    story.truth = False
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.truth = True
    assert broken(story) == ["ForeignToken"]


@pytest.mark.parametrize("token", [5, 4])
def test_tokens_of_the_service_that_do_not_grow_are_found(token: int) -> None:
    story = Story()
    story.contender(5, 7, revision=5)
    story.contender(token, 9, revision=8)
    story.attempt("c1", 10, invoked=1, granted=10, released=20, gone=11)
    assert broken(story) == ["DisorderedTokens"]
