"""A thread that waits receives, and gives that back whatever happens."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_redis.receiving import Receiving
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

    def __init__(self) -> None:
        self.link: Any = Busy()
        self.was_given_up = False

    def read(self) -> None:
        pass

    def take(self, is_done: Callable[[], bool], *, is_own: bool) -> None:
        pass

    def give_up(self) -> None:
        self.was_given_up = True


class Harness:
    def __init__(self) -> None:
        self.source = Source()
        self.selector = selectors.DefaultSelector()
        self.woken: list[None] = []
        self.receiving = Receiving(
            self.source,
            threading.RLock(),
            self.selector,
            lambda: self.woken.append(None),
            SYSTEM_CLOCK,
        )

    def close(self) -> None:
        self.selector.close()
        self.source.link.close()


@pytest.fixture
def tested() -> Iterator[Harness]:
    tested = Harness()
    yield tested
    tested.close()


def test_it_ends_in_time_though_something_comes_all_the_time(tested: Harness) -> None:
    began = time.monotonic()
    tested.receiving.begin()
    tested.receiving.receive_own(lambda: False, 0.05)
    assert 0.04 < time.monotonic() - began < 0.5


def test_where_ctrl_c_strikes_the_selector_the_connection_is_given_up() -> None:
    number, moments = 1, 0
    while True:
        tested = Harness()
        receiving, source = tested.receiving, tested.source
        receiving.select()

        def act(receiving: Receiving = receiving) -> None:
            receiving.begin()
            receiving.receive_own(lambda: True, 0.0)

        came = interrupted(act, number, selectors)
        if came and not source.was_given_up:
            assert source.link.socket in tested.selector.get_map()
        if came:
            receiving.receive_own(lambda: True, 0.0)  # as the driver does
            assert source.was_given_up == bool(tested.woken)
            source.link.close()
            source.link = None
            receiving.unselect()  # as the thread for I/O does
            source.link = Busy()
            receiving.select()
            assert [one.fileobj for one in tested.selector.get_map().values()] == [
                source.link.socket
            ]
        tested.close()
        moments += came
        number += 1
        if not came:
            break
    assert moments > 5


def test_the_end_of_the_thread_for_io_meanwhile_is_no_error(tested: Harness) -> None:
    tested.receiving.select()
    tested.selector.close()
    tested.receiving.begin()


def test_a_connection_that_another_thread_has_closed_has_nothing_to_read() -> None:
    closed = socket.socket()
    closed.close()
    for end in (closed, None):
        connection: Any = SimpleNamespace(
            _sock=end, _parser=SimpleNamespace(parse_error=ValueError)
        )
        link = Link(connection, "here", b"run", (7, 0), False, 0, False)
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
