"""Signal handlers at every moment at which Python runs them: as a function begins, as C returns."""

from __future__ import annotations

import contextlib
import itertools
import threading

import pytest

from coordlock import Client, Grant, GrantState
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service
from tests.unit.signals import Signal, interrupted

pytestmark = pytest.mark.usefixtures("generators_end_unheard")


def interrupt() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_while_acquiring_leaves_nobody_in_the_queue(
    service: Service, client: Client
) -> None:
    for number in itertools.count(1):
        grants: list[Grant] = []
        came = interrupted(lambda: grants.append(client.lock("q").acquire()), number)  # noqa: B023
        for grant in grants:
            grant.release()
        eventually(lambda: service.size("q") == 0)
        if not came:
            break
    assert number > 30


def test_ctrl_c_while_acquiring_several_leaves_nobody_in_any_queue(
    service: Service, client: Client
) -> None:
    for number in itertools.count(1):
        grants: list[Grant] = []
        several = client.multi_lock(["q", "r", "s"])
        came = interrupted(lambda: grants.append(several.acquire()), number)  # noqa: B023
        for grant in grants:
            grant.release()
        eventually(lambda: [service.size(name) for name in "qrs"] == [0, 0, 0])
        if not came:
            break
    assert number > 30


def test_a_release_of_several_that_ctrl_c_struck_can_be_repeated(
    service: Service, client: Client
) -> None:
    for number in itertools.count(1):
        grant = client.multi_lock(["q", "r", "s"]).acquire()
        came = interrupted(grant.release, number)
        assert grant.release()
        eventually(lambda: [service.size(name) for name in "qrs"] == [0, 0, 0])
        if not came:
            break
    assert number > 30


def test_ctrl_c_while_opening_a_session_leaves_a_client_that_can_open_another(
    service: Service, client: Client
) -> None:
    for number in itertools.count(1):
        for session in service.service.sessions():
            service.service.expire(session)
        came = interrupted(lambda: client.lock("q").acquire(5).release(), number)
        client.lock("r").acquire(5).release()
        if not came:
            break
    assert number > 60


def test_a_release_that_ctrl_c_struck_can_be_repeated(service: Service, client: Client) -> None:
    for number in itertools.count(1):
        grant = client.lock("q").acquire()
        came = interrupted(grant.release, number)
        assert grant.release()
        eventually(lambda: service.size("q") == 0)
        if not came:
            break
    assert number > 30


def test_a_signal_handler_may_release_another_lock(client: Client) -> None:
    for number in itertools.count(1):
        other = client.lock("other").acquire()
        signal = Signal(number, other.release)

        def act() -> None:
            with signal:  # noqa: B023
                client.lock("q").acquire().release()

        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), f"moment {number} hangs"
        assert other.release()
        if not signal.came:
            break
    assert number > 60


@pytest.mark.parametrize("form", ["with lock", "with lock.acquire()", "with several.acquire()"])
def test_ctrl_c_at_any_moment_of_a_statement_but_one_leaves_no_lock_held(
    service: Service, client: Client, form: str
) -> None:
    lock, several = client.lock("q"), client.multi_lock(["q", "r"])

    def use() -> None:
        match form:
            case "with lock":
                with lock:
                    pass
            case "with lock.acquire()":
                with lock.acquire():
                    pass
            case _:
                with several.acquire() as grant:
                    grant.check()

    left = 0
    for number in itertools.count(1):
        came = interrupted(use, number)
        with contextlib.suppress(TimeoutError):
            eventually(lambda: service.size("q") == 0, within=2)
        left += service.size("q")
        for one in client.contenders("q"):
            client.evict(one)
        if not came:
            break
    assert number > 60
    # A grant's statement has one moment: as it loads the exit.
    assert left <= (form != "with lock")


def test_an_exit_that_was_loaded_by_hand_and_dropped_releases_nothing(client: Client) -> None:
    grant = client.lock("q").acquire()
    assert hasattr(grant, "__exit__")
    assert isinstance(grant, contextlib.AbstractContextManager)
    with grant:
        assert hasattr(grant, "__exit__")
        leave = grant.__exit__
        del leave
        with pytest.raises(RuntimeError, match="entered already"), grant:
            pass
        grant.check()
    assert grant.state is GrantState.RELEASED


def test_a_grant_that_is_entered_by_hand_is_released_by_hand(client: Client) -> None:
    grant = client.lock("q").acquire()
    for _ in range(20):  # at the same place in memory
        assert callable(grant.__exit__)
    grant.__enter__()
    for _ in range(20):
        assert callable(grant.__exit__)
    grant.check()
    grant.__exit__(None, None, None)
    assert grant.state is GrantState.RELEASED
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(client.lock("q").acquire())
        stack.pop_all()
    assert held.state is GrantState.HELD
    held.release()


@pytest.mark.parametrize("enter", ["with lock", "with grant", "decorator", "release in the body"])
def test_ctrl_c_while_a_block_is_left_leaves_the_lock_held_at_no_moment(
    service: Service, client: Client, enter: str
) -> None:
    lock = client.lock("q")

    def use() -> None:
        match enter:
            case "with lock":
                with lock:
                    arm()
            case "with grant":
                with lock.acquire():
                    arm()
            case "decorator":
                lock(arm)()
            case _:
                with lock as grant:
                    arm()
                    grant.release()

    for number in itertools.count(1):
        strike = Signal(number, interrupt)
        arm = strike.__enter__
        try:
            use()
        except KeyboardInterrupt:
            pass
        finally:
            strike.__exit__()
        eventually(lambda: service.size("q") == 0)
        if not strike.came:
            break
    assert number > 20


def test_an_error_of_a_signal_handler_during_a_removal_reaches_the_caller_and_removes(
    service: Service, client: Client
) -> None:
    def expire() -> None:
        raise TimeoutError("the application's own")

    unheard = 0
    for number in itertools.count(1):
        grant = client.lock("q").acquire()
        strike = Signal(number, expire)
        try:
            with strike:
                grant.release()
            reached = False
        except TimeoutError:
            reached = True
        unheard += strike.came and not reached
        grant.release()
        eventually(lambda: service.size("q") == 0)
        if not strike.came:
            break
    assert number > 20
    assert unheard <= 3  # while a promise calls back: then it is logged


def test_a_statement_that_ctrl_c_ends_before_its_exit_has_begun_releases(
    service: Service, client: Client
) -> None:
    """As when the signal comes while the exit is being called: it was loaded, and is dropped."""
    lock = client.lock("q")
    leave = lock.__exit__
    grant = lock.__enter__()
    grant.check()
    del leave
    eventually(lambda: service.size("q") == 0)
    assert grant.state is GrantState.RELEASED
