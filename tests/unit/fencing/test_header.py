"""The header of the HTTP fence, who needs it, and the answers of its middleware. No server."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock import ConfigurationError, StaleToken
from coordlock.errors import InvalidToken
from coordlock.fencing import MAX_TOKEN, AsyncMemoryFence, FencingToken, MemoryFence
from coordlock.fencing.http import (
    HEADER,
    FencingMiddleware,
    Problem,
    WSGIFencingMiddleware,
    format_token,
    parse_token,
)
from coordlock.fencing.http.policy import Require, judge
from coordlock.fencing.http.problem import INVALID, MISSING

tokens = st.builds(FencingToken, st.integers(1, MAX_TOKEN), st.booleans())

MALFORMED = [
    "",
    " ",
    "0",
    "00",
    "034",
    "-1",
    "+34",
    " 34",
    "34 ",
    "34\n",
    "3 4",
    "34.0",
    "3e1",
    "0x22",
    "3_4",
    "٣٤",
    "²",
    "34,35",
    "34, 34",
    "34;",
    "34; ",
    "34 ; shared",
    "34;\tshared",
    "34; Shared",
    "34; shared=?0",
    "34; shared=1",
    "34; shared; shared",
    "34; exclusive",
    "shared; 34",
    "shared",
    '"34"',
    "(34)",
    "token",
    str(MAX_TOKEN + 1),
    "9" * 19,
    "1" + "0" * 19,
    "1" * 5000,
]


# The header


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("34", FencingToken(34)),
        ("34; shared", FencingToken(34, shared=True)),
        ("34;shared", FencingToken(34, shared=True)),
        ("34;   shared", FencingToken(34, shared=True)),
        ("34; shared=?1", FencingToken(34, shared=True)),
        ("1", FencingToken(1)),
        ("9223372036854775807; shared", FencingToken(MAX_TOKEN, shared=True)),
    ],
)
def test_a_header_says_a_token(value: str, token: FencingToken) -> None:
    assert parse_token(value) == token


@pytest.mark.parametrize("value", MALFORMED, ids=lambda value: repr(value)[:30])
def test_what_is_unusual_says_none(value: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        parse_token(value)
    assert str(refused.value.token) == value


@given(tokens)
def test_what_is_written_is_read(token: FencingToken) -> None:
    assert parse_token(format_token(token)) == token


@given(st.text(st.sampled_from(string.digits + ";, =?shared-+\t\n٣")))
def test_whatever_is_read_was_a_way_to_write_it(value: str) -> None:
    try:
        token = parse_token(value)
    except InvalidToken:
        return
    assert value.replace(" ", "") == format_token(token).replace(" ", "")


# Which requests need it


@pytest.mark.parametrize(
    ("require", "without"),
    [
        ("unsafe", {"GET", "HEAD", "OPTIONS", "TRACE"}),
        ("all", set()),
        ("none", {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "POST", "DELETE", "PROPFIND", "get"}),
    ],
)
def test_a_method_may_or_may_not_go_without_a_token(require: Require, without: set[str]) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "POST", "DELETE", "PROPFIND", "get"):
        assert judge(method, [], require) == (None if method in without else MISSING)
        assert judge(method, ["34"], require) == FencingToken(34)
        assert judge(method, ["034"], require) == INVALID
        assert judge(method, ["34", "34"], require) == INVALID


@pytest.mark.parametrize("require", ["safe", "", None, True])
def test_another_policy_is_an_error(require: Any) -> None:
    with pytest.raises(ConfigurationError, match="unsafe"):
        FencingMiddleware(object(), AsyncMemoryFence(), require=require)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="unsafe"):
        WSGIFencingMiddleware(object(), MemoryFence(), require=require)  # type: ignore[arg-type]


# The answers


def test_the_answer_to_a_stale_token_names_both_in_digits() -> None:
    problem = Problem.stale(StaleToken("été", 2**53 + 1, MAX_TOKEN))
    assert (problem.status, problem.status.phrase) == (409, "Conflict")
    assert dict(problem.headers) == {
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(problem.body)),
    }
    content = json.loads(problem.body)
    assert content["status"] == 409
    assert content["title"]
    assert content["detail"]
    assert (content["resource"], content["token"], content["newest"]) == (
        "été",
        "9007199254740993",
        "9223372036854775807",
    )


@pytest.mark.parametrize(("problem", "status"), [(INVALID, 400), (MISSING, 428)])
def test_the_other_answers_say_what_to_send_and_nothing_of_the_resource(
    problem: Problem, status: int
) -> None:
    content = json.loads(problem.body)
    assert set(content) == {"type", "title", "status", "detail"}
    assert content["status"] == problem.status == status
    assert HEADER in content["detail"]


def test_the_problems_have_types_of_their_own() -> None:
    assert len({one.type for one in (INVALID, MISSING, Problem.stale(StaleToken("x", 1, 2)))}) == 3


def test_a_fence_of_the_wrong_kind_is_refused_at_once() -> None:
    app: Any = object()
    wrong: Any
    for wrong in (MemoryFence(), object()):
        with pytest.raises(ConfigurationError, match="AsyncGuardingFence"):
            FencingMiddleware(app, wrong)
    for wrong in (AsyncMemoryFence(), object()):
        with pytest.raises(ConfigurationError, match="GuardingFence"):
            WSGIFencingMiddleware(app, wrong)
