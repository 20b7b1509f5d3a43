"""What is lost with a leader is given up; what is slow, or sent to the next one, is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from coordlock_etcd.transport.lost_requests import _GRACE, _PATIENCE, LostRequests

from coordlock.testing.waiting import eventually


class Request:
    def __init__(self) -> None:
        self.lost = threading.Event()

    def give_up(self) -> None:
        self.lost.set()


class Member:
    """Tells its term, as often as it is asked."""

    def __init__(self) -> None:
        self.term = 0
        self.asked = 0

    def tell(self) -> int:
        self.asked += 1
        return self.term

    def is_asked_again(self) -> None:
        """Waits until a question that comes from now on has been answered, and what follows it."""
        before = self.asked
        eventually(lambda: self.asked > before + 1)


@pytest.fixture
def member() -> Member:
    return Member()


@pytest.fixture
def lost_requests(member: Member, no_leaks: None) -> Iterator[LostRequests]:
    lost_requests = LostRequests(member.tell)
    lost_requests.saw(3)
    yield lost_requests
    lost_requests.close()
    lost_requests.join(30)


def test_what_is_unanswered_when_a_newer_term_is_seen_is_given_up(
    lost_requests: LostRequests, member: Member
) -> None:
    first, second = Request(), Request()
    lost_requests.expect(first)
    lost_requests.expect(second)
    member.term = 4
    assert first.lost.wait(30)
    assert second.lost.wait(30)
    # Its answer may still come, and then counts for nothing.
    assert not lost_requests.answered(first)


def test_what_is_slow_under_the_same_leader_is_not_given_up(
    lost_requests: LostRequests, member: Member
) -> None:
    request = Request()
    member.term = 3
    lost_requests.expect(request)
    member.is_asked_again()
    assert not request.lost.is_set()
    assert lost_requests.answered(request)


def test_a_member_that_does_not_answer_proves_nothing(
    lost_requests: LostRequests, member: Member
) -> None:
    request = Request()
    lost_requests.expect(request)
    member.is_asked_again()
    assert lost_requests.answered(request)
    assert not request.lost.is_set()


def test_what_was_sent_in_the_newer_term_is_not_given_up(
    lost_requests: LostRequests, member: Member
) -> None:
    old, new = Request(), Request()
    lost_requests.expect(old)
    lost_requests.saw(4)  # another answer shows it
    lost_requests.expect(new)
    assert old.lost.wait(30)
    member.is_asked_again()
    assert not new.lost.is_set()


def test_what_was_sent_before_any_answer_showed_a_term_counts_from_the_first_that_is_seen(
    member: Member, no_leaks: None
) -> None:
    lost_requests, request = LostRequests(member.tell), Request()
    lost_requests.expect(request)
    member.term = 3
    member.is_asked_again()
    assert not request.lost.is_set()
    member.term = 4
    assert request.lost.wait(30)
    lost_requests.close()
    lost_requests.join(30)


def test_what_is_sent_before_the_newer_term_is_known_has_its_time(no_leaks: None) -> None:
    """Its client cannot know that it went to the next leader, which will answer it."""

    class Timed(Request):
        def give_up(self) -> None:
            self.when = time.monotonic()
            super().give_up()

    old, new = Request(), Timed()
    sent = list[float]()

    def tell() -> int:
        if not sent:
            sent.append(time.monotonic())
            own.expect(new)
        return 4

    own = LostRequests(tell)
    own.saw(3)
    own.expect(old)
    assert new.lost.wait(30)
    assert old.lost.is_set()
    assert new.when - sent[0] >= _PATIENCE
    own.close()
    own.join(30)


def test_what_is_refused_and_sent_again_as_the_newer_term_is_seen_is_not_given_up(
    member: Member, no_leaks: None
) -> None:
    class Refused(LostRequests):
        def _wait(self, seconds: float) -> None:
            super()._wait(seconds)
            if seconds == _GRACE:
                assert self.answered(request)
                self.expect(request)

    own, request = Refused(member.tell), Request()
    own.saw(3)
    own.expect(request)
    member.term = 4
    eventually(lambda: member.asked)
    member.is_asked_again()
    assert not request.lost.is_set()
    assert own.answered(request)
    own.close()
    own.join(30)


def test_it_looks_later_where_its_thread_cannot_be_started_at_first(
    lost_requests: LostRequests, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        lost_requests.expect(first := Request())
    lost_requests.expect(Request())
    member.term = 4
    assert first.lost.wait(30)


def test_nobody_is_asked_about_requests_that_are_answered(
    lost_requests: LostRequests, member: Member
) -> None:
    for _ in range(1000):
        request = Request()
        lost_requests.expect(request)
        assert lost_requests.answered(request)
    slow = Request()
    lost_requests.expect(slow)
    eventually(lambda: member.asked)
    assert lost_requests.answered(slow)
    # Only that one made it ask, and nothing does any more.
    eventually(lambda: lost_requests._idle)
    assert member.asked <= 2
