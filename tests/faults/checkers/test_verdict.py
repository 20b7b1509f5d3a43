from __future__ import annotations

from dataclasses import replace

from coordlock_faults.events import Granted, Reach
from coordlock_faults.history import History
from coordlock_faults.verdict import CHECKERS, judge
from coordlock_faults.violation import Violation, shown, together

from coordlock.model.claim import Permit
from tests.faults.checkers.story import BOUNDS, MS, Story


def right(*, truth: bool = True) -> Story:
    story = Story(truth=truth)
    one = story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=7)
    if truth:
        story.operation(one, 5, at=12, order=1)
        story.count("leases", 1, 1)
    return story


def test_every_invariant_is_checked_and_named() -> None:
    verdict = judge(right().history(), BOUNDS)
    assert list(verdict.violations) == list(CHECKERS)
    assert verdict.unchecked == {}
    assert verdict.holds
    assert str(verdict).splitlines() == [f"{name}: holds" for name in CHECKERS]


def test_what_is_not_checked_is_named() -> None:
    story = right(truth=False)
    story.fault(Reach.OPERATOR, 30, 31, "c1")
    verdict = judge(story.history(), BOUNDS)
    assert verdict.holds
    assert set(verdict.unchecked) == {
        "register",
        "leaks, by counting",
        "fifo, by the service's record",
        "tokens, by the service's record",
        "loss, by the service's record",
        "release, by the service's record",
        "leaks, by the service's record",
    }
    assert "register was not checked: no operation was tried" in str(verdict)


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


def test_an_event_is_shown_in_a_line_with_all_that_it_says() -> None:
    event = Granted(1_500 * MS, "c1", "c1-1", 5, 2_250 * MS)
    assert shown(event, 1_000 * MS) == (
        "      0.500000 s  c1         Granted attempt=c1-1 token=5 deadline=1.250000 s"
    )
    story = Story(truth=False)
    story.attempt("c1", 5, claim=Permit(3), invoked=1)
    assert shown(story.events[0]).endswith("AcquireInvoked attempt=attempt1 lock=a claim=permit3")


def test_what_proves_something_is_told_once_and_in_order() -> None:
    history = right().history()
    attempt = history.attempts["attempt1"]
    found = Violation("that", together(attempt, None, attempt.granted, [attempt.invoked, None]))
    kinds = [line.split()[3] for line in str(found).splitlines()[1:]]
    assert kinds == ["AcquireInvoked", "Granted", "ReleaseSent", "ReleaseAcknowledged"]
