from __future__ import annotations

from dataclasses import replace

from coordlock_faults.history import History
from coordlock_faults.verdict import judge

from tests.faults.checkers.story import BOUNDS, MS, Story


def right(*, truth: bool = True) -> Story:
    story = Story(truth=truth)
    one = story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=7)
    if truth:
        story.operation(one, 5, at=12, order=1)
    return story


def test_what_is_violated_is_told_with_the_times_since_the_beginning() -> None:
    story = right()
    story.contender(9)
    late = [replace(event, at=event.at + 7 * MS) for event in story.history().events]
    verdict = judge(History(late), BOUNDS)
    assert not verdict.holds
    assert [type(one).__name__ for one in verdict.all()] == ["Leaked"]
    told = str(verdict)
    assert "leaks: 1 violations\nLeaked: /a/key2 (token 9) is left in the queue\n" in told
    assert "        1.000000 s  observer   ContenderAppeared lock=a key=/a/key2 token=9" in told
