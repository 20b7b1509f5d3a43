"""Answers of Redis, whole and in pieces."""

from __future__ import annotations

import pytest
from coordlock_redis.answers import Answers

SENT = (
    b"+OK\r\n$5\r\na\r\nbc\r\n$0\r\n\r\n$-1\r\n:-17\r\n*-1\r\n*0\r\n"
    b"*3\r\n*2\r\n:1\r\n*0\r\n$2\r\nxy\r\n*1\r\n$-1\r\n-NOSCRIPT what?\r\n+end\r\n"
)
MEANT = [b"OK", b"a\r\nbc", b"", None, -17, None, [], [[1, []], b"xy", [None]]]


def answers() -> Answers:
    return Answers(KeyError)


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(SENT)])
def test_answers_are_the_same_however_they_are_cut(size: int) -> None:
    one = answers()
    came = [one.feed(SENT[at : at + size]) for at in range(0, len(SENT), size)]
    *found, error, end = [answer for part in came for answer in part]
    assert found == MEANT
    assert isinstance(error, KeyError)
    assert error.args == ("NOSCRIPT what?",)
    assert end == b"end"


def test_other_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="HTTP"):
        answers().feed(b"HTTP/1.1 400 Bad Request\r\n")
