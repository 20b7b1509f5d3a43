"""A thread that waits receives, and gives that back whatever happens."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import coordlock_redis
import pytest
from coordlock_redis.contenders import enqueued
from coordlock_redis.receiving import Poller, Receiving
from coordlock_redis.requests import Header, Request
from coordlock_redis.servers import Link
from coordlock_redis.source import Source

from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Owner
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.driver import Steps, run
from coordlock.runtime.promise import Promise, resolved
from coordlock.runtime.receiving import BLOCKING, offer
from tests.unit.signals import Signal, interrupted


class Busy:
    """A connection over which something comes all the time."""

    is_direct = True
    leave: Callable[[], object] | None = None

    def __init__(self) -> None:
        self.socket, self.other = socket.socketpair()
        self.socket.setblocking(False)

    def is_readable(self, seconds: float) -> bool:
        time.sleep(max(0.0, min(seconds, 0.001)))
        return seconds > 0

    def has_more(self) -> bool:
        return False

    def close(self) -> None:
        self.socket.close()
        self.other.close()


class Others(Source):
    """What comes is for others."""

    is_left = False
    is_awaited = True

    def __init__(self) -> None:
        super().__init__()
        self.link: Any = Busy()
        self.reads = 0

    def read(self) -> None:
        self.reads += 1

    def take(self, is_done: Callable[[], bool], *, is_own: bool) -> None:
        pass


class Harness:
    def __init__(self) -> None:
        self.source = Others()
        self.poller = Poller()
        self.receiving = Receiving(self.source, self.poller, SYSTEM_CLOCK)

    def hears(self) -> bool:
        """Whether the thread for I/O hears of what comes now."""
        reads = self.source.reads
        self.source.link.other.send(b"x")
        self.poller.wait(0.2)
        return self.source.reads > reads

    def close(self) -> None:
        self.poller.close()
        self.source.link.close()


@pytest.fixture
def tested() -> Iterator[Harness]:
    tested = Harness()
    yield tested
    tested.close()


def test_it_ends_in_time_though_something_comes_all_the_time(tested: Harness) -> None:
    began = time.monotonic()
    tested.receiving.receive_own(lambda: False, 0.05)
    assert 0.04 < time.monotonic() - began < 0.5


def test_wherever_ctrl_c_strikes_the_thread_for_io_hears_what_comes_then() -> None:
    number, came = 1, True
    while came:
        tested = Harness()
        tested.receiving.enter()
        ends = iter([False, False, True])

        def act(tested: Harness = tested, ends: Iterator[bool] = ends) -> None:
            tested.receiving.receive_own(lambda: next(ends), 1.0)

        came = interrupted(act, number, coordlock_redis)
        tested.receiving.receive_own(lambda: True, 0.0)  # as the driver does
        assert tested.hears()
        tested.close()
        number += 1
    assert number > 10


def test_the_thread_for_io_hears_no_answer_while_there_is_no_request(tested: Harness) -> None:
    tested.receiving.enter()
    tested.source.is_awaited = False
    ends = iter([False, True])
    tested.receiving.receive_own(lambda: next(ends), 1.0)
    assert not tested.hears()
    tested.source.is_awaited = True
    tested.receiving.listen()
    assert tested.hears()


def test_the_thread_for_io_hears_the_end_of_a_connection_that_nobody_reads(
    tested: Harness,
) -> None:
    tested.receiving.enter()
    tested.source.is_awaited = False
    ends = iter([False, True])
    tested.receiving.receive_own(lambda: next(ends), 1.0)
    reads = tested.source.reads
    tested.source.link.other.close()
    tested.poller.wait(5.0)
    assert tested.source.reads > reads


def test_the_thread_for_io_leaves_to_another_thread_what_that_reads(tested: Harness) -> None:
    tested.receiving.enter()
    heard: list[bool] = []

    def hear() -> bool:
        other = threading.Thread(target=lambda: heard.append(tested.hears()))
        tested.receiving._is_told = False  # as where both have changed it at the same time
        other.start()
        other.join()
        return True

    ends = iter([False, False])
    tested.receiving.receive_own(lambda: next(ends, None) is None and hear(), 1.0)
    assert heard == [False]
    assert tested.hears()


def test_the_end_of_the_thread_for_io_meanwhile_is_no_error(tested: Harness) -> None:
    tested.receiving.enter()
    tested.poller.close()
    ends = iter([False, True])
    tested.receiving.receive_own(lambda: next(ends), 0.01)


def test_a_connection_that_another_thread_has_closed_has_nothing_to_read() -> None:
    for left in (socket.socket(), None):
        end = left or socket.socket()
        parser = SimpleNamespace(parse_error=ValueError)
        connection: Any = SimpleNamespace(_sock=end, _parser=parser)
        link = Link(connection, "here", b"run", (7, 0), False, 0, False)
        end.close()
        connection._sock = left
        assert not link.is_readable(0.01)


def test_what_is_asked_for_while_a_thread_receives_is_left_to_the_thread_for_io() -> None:
    promise: Promise[int] = Promise()
    accepted: list[bool] = []

    def later(is_done: Callable[[], bool], seconds: float) -> None:
        accepted.append(True)

    def receive(is_done: Callable[[], bool], seconds: float) -> None:
        accepted.append(offer(later))  # a callback asks for more, and nobody waits for that
        promise.resolve(1)

    def steps() -> Steps[int]:
        assert offer(receive)
        found: int = yield promise
        return found

    assert run(steps()) == 1
    assert accepted == [False]
    assert BLOCKING.receive is None


def test_a_thread_that_is_interrupted_while_it_receives_gives_that_back() -> None:
    promise: Promise[int] = Promise()
    calls: list[float] = []

    def receive(is_done: Callable[[], bool], seconds: float) -> None:
        calls.append(seconds)
        if seconds:
            raise KeyboardInterrupt

    def steps() -> Steps[int]:
        assert offer(receive)
        found: int = yield promise
        return found

    with pytest.raises(KeyboardInterrupt):
        run(steps())
    assert len(calls) == 2
    assert calls[1] == 0.0


def test_wherever_ctrl_c_strikes_a_thread_that_asks_the_next_answer_is_heard() -> None:
    number, came = 1, True
    while came:
        tested = Harness()
        tested.receiving.enter()
        tested.source.is_awaited = False
        ends = iter([False, True])
        tested.receiving.receive_own(lambda ends=ends: next(ends), 1.0)  # type: ignore[misc]
        tested.source.is_awaited = True
        came = interrupted(tested.receiving.listen, number, coordlock_redis)
        tested.receiving.listen()  # as the next thread that asks does
        assert tested.hears()
        tested.close()
        number += 1
    assert number > 5


def link_to(end: socket.socket) -> Link:
    parser = SimpleNamespace(parse_error=ValueError)
    connection: Any = SimpleNamespace(_sock=end, _parser=parser, disconnect=end.close)
    return Link(connection, "here", b"run", (7, 0), False, 0, False)


def test_a_connection_that_the_child_of_a_fork_keeps_open_is_not_heard_of_any_more(
    tested: Harness,
) -> None:
    ours, other = socket.socketpair()
    tested.source.link.close()
    tested.source.link = link = link_to(ours)
    tested.receiving.enter()
    kept = os.dup(ours.fileno())
    link.close()
    other.close()
    assert tested.poller._epoll.poll(0) == []
    os.close(kept)


def test_whenever_another_thread_closes_a_connection_nothing_of_another_file_is_read() -> None:
    number, came = 1, True
    while came:
        ours, other = socket.socketpair()
        ours.setblocking(False)
        other.send(b"+OK\r\n")
        link, descriptor = link_to(ours), ours.fileno()
        foreign, sender = socket.socketpair()
        foreign.settimeout(5.0)

        def close(
            link: Link = link,
            ours: socket.socket = foreign,
            other: socket.socket = sender,
            descriptor: int = descriptor,
        ) -> None:
            link.close()
            os.dup2(ours.fileno(), descriptor)
            other.send(b"+theirs\r\n")

        with Signal(number, close, coordlock_redis) as signal, suppress(OSError):
            link.read()
        came = signal.came
        if came:
            assert foreign.recv(16) == b"+theirs\r\n"
            os.close(descriptor)
        for one in (ours, other, foreign, sender):
            one.close()
        number += 1
    assert number > 3


def test_an_offer_that_was_not_needed_is_given_back_before_there_is_a_result_to_lose() -> None:
    undone: list[bool] = []

    def receive(is_done: Callable[[], bool], seconds: float) -> None:
        if not undone:
            raise KeyboardInterrupt

    def steps() -> Steps[str]:
        try:
            assert offer(receive)
            yield resolved(None)
        except KeyboardInterrupt:
            undone.append(True)
            raise
        return "a grant"

    with pytest.raises(KeyboardInterrupt):
        run(steps())
    assert undone == [True]
    assert BLOCKING.receive is None


def test_ctrl_c_while_an_answer_is_read_is_for_the_thread_that_reads_it() -> None:
    reads = iter([True])

    def read(answer: list[Any]) -> int:
        if next(reads, False):
            raise KeyboardInterrupt
        return 1

    request = Request("time", (), read)
    header = Header(b"key", "client", None, 1.0)
    with pytest.raises(KeyboardInterrupt):
        request.answer([b"ok"], header)
    request.answer([b"ok"], header)
    assert request.promise.result() == 1


def test_the_answer_to_an_enqueue_can_be_read_twice() -> None:
    entry = Entry("a", "own", Mode.EX, Owner("host", 1))
    answer = [0, b"other", 5, b"lock s-1 {}", b"", 6]
    for _ in range(2):
        found = enqueued("s-2", entry, 7, answer)
        assert [one.id for one in found.contenders] == ["other", "own"]
