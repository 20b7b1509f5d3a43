"""A thread that waits receives, and gives that back whatever happens."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import coordlock_redis
import pytest
from coordlock_redis.receiving import Poller, Receiving
from coordlock_redis.servers import Link

from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.driver import Steps, run
from coordlock.runtime.promise import Promise
from coordlock.runtime.receiving import BLOCKING, offer
from tests.unit.signals import interrupted


class Busy:
    """A connection over which something comes all the time."""

    is_direct = True

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


class Source:
    """What comes is for others."""

    is_left = False
    is_awaited = True

    def __init__(self) -> None:
        self.link: Any = Busy()
        self.reads = 0

    def read(self) -> None:
        self.reads += 1

    def take(self, is_done: Callable[[], bool], *, is_own: bool) -> None:
        pass


class Harness:
    def __init__(self) -> None:
        self.source = Source()
        self.poller = Poller()
        self.receiving = Receiving(
            self.source, threading.RLock(), self.poller, lambda: None, SYSTEM_CLOCK
        )

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
