"""Flask serves each request in one thread, which enters and leaves its lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import flask

import coordlock


def test_requests_for_one_lock_are_answered_one_after_another() -> None:
    application = flask.Flask(__name__)
    balances = {"one": 0}
    with coordlock.connect("memory://flask") as client:

        @application.before_request
        def hold() -> None:
            flask.g.grant = client.lock("one", timeout=120).acquire()

        @application.teardown_request
        def release(_: BaseException | None) -> None:
            if (grant := flask.g.pop("grant", None)) is not None:
                grant.release()

        @application.get("/book")
        def book() -> str:
            balance = balances["one"]
            flask.g.grant.check()
            balances["one"] = balance + 1
            return "booked"

        @application.get("/locked")
        def locked() -> str:
            with client.lock("other", timeout=120) as grant:
                grant.check()
            return "done"

        def ask(path: str) -> int:
            return application.test_client().get(path).status_code

        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(ask, ["/book"] * 40 + ["/locked"] * 10))
        assert answers == [200] * 50
        assert balances == {"one": 40}
        assert client.names() == []
