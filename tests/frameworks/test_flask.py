"""Flask serves each request in one thread, which enters and leaves its lock."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import flask
import pytest

import coordlock
from coordlock.integrations.flask import hold

# `coordlock.integrations.flask`


@pytest.fixture
def client(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root.strip('/')}") as client:
        yield client


@pytest.fixture
def application() -> flask.Flask:
    return flask.Flask(__name__)


def test_the_context_holds_the_lock_until_all_of_it_is_torn_down(
    application: flask.Flask, client: coordlock.Client
) -> None:
    seen = {}

    @application.teardown_appcontext
    def tear_context_down(_: object) -> None:
        seen["context"] = client.admin.names()

    @application.teardown_request
    def tear_request_down(_: object) -> None:
        seen["request"] = client.admin.names()

    @application.get("/")
    def work() -> str:
        hold(client.lock("one", timeout=0))
        hold(client.semaphore("two", 1, timeout=0)).check()
        return "done"

    for _ in range(2):
        assert application.test_client().get("/").text == "done"
        assert client.admin.names() == []
    assert seen == {"request": ["one", "two"], "context": ["one", "two"]}


@pytest.mark.parametrize("handled", [False, True])
def test_a_busy_lock_is_423_and_says_when_to_try_again_and_a_lost_one_503(
    application: flask.Flask, client: coordlock.Client, handled: bool
) -> None:
    if handled:
        application.register_error_handler(423, lambda error: (f"mine: {error.__cause__}", 418))

    @application.get("/")
    def work() -> str:
        grant = hold(client.lock("one", timeout=0))
        if "lose" in flask.request.args:
            client.admin.evict(client.admin.contenders("one")[0])
            assert grant.lost.wait(60)
        return "done"

    http = application.test_client()
    with client.lock("one"):
        answer = http.get("/")
        assert answer.status_code == (418 if handled else 423)
        assert handled or answer.headers["Retry-After"] == "1"
        assert ("mine: lock 'one' was not" if handled else "locked by another") in answer.text
    with pytest.raises(coordlock.LockLost):  # in the log of a server, which answers 503
        http.get("/?lose")
    assert http.get("/").text == "done"


def test_a_view_and_a_tear_down_that_fail_release(
    application: flask.Flask, client: coordlock.Client
) -> None:
    @application.teardown_appcontext
    def fail(_: object) -> None:
        raise KeyError

    @application.get("/")
    def work() -> str:
        hold(client.lock("one", timeout=0))
        return "done"

    for _ in range(2):
        with pytest.raises(KeyError):
            application.test_client().get("/")
        gc.collect()
        assert client.admin.names() == []


def test_a_command_holds_a_lock_until_it_ends(
    application: flask.Flask, client: coordlock.Client
) -> None:
    with application.app_context():
        hold(client.lock("one"))
        with pytest.raises(coordlock.AcquireTimeout):
            hold(client.lock("one", timeout=0))
        with pytest.raises(TypeError, match=r"coordlock.Client\(\)"):
            hold(coordlock.AsyncClient("memory://async").lock("x"))  # type: ignore[arg-type]  # on purpose
    assert client.admin.names() == []
    with pytest.raises(RuntimeError, match="outside of application context"):
        hold(client.lock("one"))
