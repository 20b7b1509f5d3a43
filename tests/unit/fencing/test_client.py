"""The clients' half of the HTTP fence: what is sent, and what is made of answers. No server."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from requests.structures import CaseInsensitiveDict

import coordlock
from coordlock import LockLost, StaleToken
from coordlock.errors import InvalidToken, Unsupported
from coordlock.fencing.http import (
    Problem,
    fenced,
    fenced_async,
    fencing_headers,
    raise_for_stale,
)

# Answers

REFUSAL = Problem.stale(StaleToken("x", 1, 2)).body


@dataclass
class Answer:
    status_code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content(self) -> bytes:
        return self.body


def answer(
    status: int = 409, content_type: str = "application/problem+json", **changes: Any
) -> Any:
    content = json.loads(Problem.stale(StaleToken("alice", 33, 34)).body) | changes
    body = json.dumps({name: value for name, value in content.items() if value is not None})
    return Answer(status, {"Content-Type": content_type}, body.encode())


@pytest.mark.parametrize(
    "content_type", ["application/problem+json", "Application/Problem+JSON; charset=utf-8"]
)
def test_the_answer_to_a_stale_token_is_raised(content_type: str) -> None:
    with pytest.raises(StaleToken) as raised:
        raise_for_stale(answer(content_type=content_type))
    error = raised.value
    assert (error.resource, error.token, error.newest) == ("alice", 33, 34)


@pytest.mark.parametrize(
    "other",
    [
        answer(status=200),
        answer(status=412),
        answer(content_type="application/json"),
        answer(content_type=""),
        answer(type="about:blank"),
        answer(type=None),
        answer(newest=34),
        answer(newest="many"),
        answer(token=None),
        answer(resource=["alice"]),
        Answer(409, {"Content-Type": "application/problem+json"}, b""),
        Answer(409, {"Content-Type": "application/problem+json"}, b"[]"),
        Answer(409, {"Content-Type": "application/problem+json"}, b"\xff"),
        Answer(409, {}, b""),
        *(
            Answer(409, {"Content-Type": "application/problem+json"}, body)
            for body in (
                b"[" * 200_000,
                REFUSAL.replace(b'"2"', b'"-5"'),
                REFUSAL.replace(b'"2"', b'"' + b"9" * 5000 + b'"'),
                REFUSAL.replace(b'"2"', '"٣"'.encode()),
            )
        ),
    ],
)
def test_no_other_answer_is(other: Answer) -> None:
    raise_for_stale(other)


def test_the_body_of_a_good_answer_is_left_to_the_caller() -> None:
    class Streamed(Answer):
        @property
        def content(self) -> bytes:
            raise AssertionError("read")

    raise_for_stale(Streamed(200, {"Content-Type": "application/problem+json"}, b""))
    raise_for_stale(Streamed(409, {"Content-Type": "text/plain"}, b""))


# Requests


@dataclass
class Session:
    """Notes what it is asked to send; the kind of httpx and of requests."""

    answers: Iterator[Any] = field(default_factory=lambda: itertools.repeat(Answer(200, {}, b"")))
    sent: list[tuple[Any, ...]] = field(default_factory=list)

    def request(self, *args: Any, **kwargs: Any) -> Answer:
        self.sent.append((*args, kwargs))
        result: Answer = next(self.answers)
        return result


class AsyncSession(Session):
    async def request(self, *args: Any, **kwargs: Any) -> Answer:  # type: ignore[override]
        return super().request(*args, **kwargs)


def test_the_header_of_a_grant_tells_whether_it_is_shared() -> None:
    with coordlock.connect("memory://") as client:
        with client.lock("x") as grant:
            assert fencing_headers(grant) == {"Fencing-Token": str(grant.token)}
        with client.read_lock("x") as grant:
            assert fencing_headers(grant) == {"Fencing-Token": f"{grant.token}; shared"}
    assert fencing_headers(7, shared=True) == {"Fencing-Token": "7; shared"}


def test_nothing_is_sent_for_what_cannot_be_fenced() -> None:
    session, asynchronous = Session(), AsyncSession()
    with coordlock.connect("memory://") as client, client.semaphore("x", 3) as grant:
        with pytest.raises(Unsupported):
            fenced(session, grant).get("/")
        with pytest.raises(Unsupported):
            fenced_async(asynchronous, grant)
        with pytest.raises(InvalidToken):
            fenced(session, 0)
    assert session.sent == asynchronous.sent == []


def test_nothing_more_is_sent_for_a_grant_that_was_released() -> None:
    session, asynchronous = Session(), AsyncSession()
    with coordlock.connect("memory://") as client:
        with client.lock("x") as grant:
            sync, other = fenced(session, grant), fenced_async(asynchronous, grant)
            sync.get("/")
            asyncio.run(other.get("/"))
        with pytest.raises(LockLost, match="released"):
            sync.get("/")
        with pytest.raises(LockLost, match="released"):
            asyncio.run(other.get("/"))
        with pytest.raises(LockLost, match="released"):
            fenced(session, grant)
    assert len(session.sent) == len(asynchronous.sent) == 1


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, {"Fencing-Token": "34"}),
        ({}, {"Fencing-Token": "34"}),
        ({"X-A": "1"}, {"X-A": "1", "Fencing-Token": "34"}),
        ({b"X-A": b"1"}, {b"X-A": b"1", "Fencing-Token": "34"}),
        ({"X-A": "1", "FENCING-token": "9"}, {"X-A": "1", "Fencing-Token": "34"}),
        ({b"fencing-token": b"9"}, {"Fencing-Token": "34"}),
        (CaseInsensitiveDict({"X-A": "1"}), {"X-A": "1", "Fencing-Token": "34"}),
        (httpx.Headers({"X-A": "1"}), {"x-a": "1", "Fencing-Token": "34"}),
        ([], {"Fencing-Token": "34"}),
        (
            [("X-A", "1"), ("X-A", "2"), ("fencing-token", "9")],
            [("X-A", "1"), ("X-A", "2"), ("Fencing-Token", "34")],
        ),
    ],
    ids=repr,
)
def test_the_header_goes_with_those_of_the_caller(given: Any, sent: Any) -> None:
    session = Session()
    fenced(session, 34).put("/x", headers=given, json={"a": 1}, timeout=3)
    assert session.sent == [("PUT", "/x", {"headers": sent, "json": {"a": 1}, "timeout": 3})]


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
def test_sync_and_async_sessions_have_the_same_methods(method: str) -> None:
    session, asynchronous = Session(), AsyncSession()
    getattr(fenced(session, 34), method)("/x", params={"a": 1})
    asyncio.run(getattr(fenced_async(asynchronous, 34), method)("/x", params={"a": 1}))
    headers = {"Fencing-Token": "34"}
    expected = [(method.upper(), "/x", {"params": {"a": 1}, "headers": headers})]
    assert session.sent == asynchronous.sent == expected


def test_the_answer_is_returned_and_a_refusal_raised() -> None:
    good = Answer(404, {}, b"")
    session = Session(iter([good, answer()]))
    asynchronous = AsyncSession(iter([good, answer()]))

    async def twice() -> None:
        assert await fenced_async(asynchronous, 33).get("/") is good
        with pytest.raises(StaleToken):
            await fenced_async(asynchronous, 33).get("/")

    assert fenced(session, 33).get("/") is good
    with pytest.raises(StaleToken):
        fenced(session, 33).get("/")
    asyncio.run(twice())


def test_headers_of_the_session_itself_are_kept() -> None:
    def echo(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=dict(request.headers))

    transport = httpx.MockTransport(echo)
    with httpx.Client(transport=transport, headers={"X-A": "1", "Fencing-Token": "9"}) as client:
        seen = fenced(client, 34).get("http://x/", headers={"X-B": "2"}).json()
    assert (seen["x-a"], seen["x-b"], seen["fencing-token"]) == ("1", "2", "34")
