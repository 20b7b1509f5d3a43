"""The proxy's view of HTTP/1.1, as etcd's JSON gateway and its clients speak it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bench.http_frames import HttpFrames
from coordlock.testing.frames import Frame, Message

ASK = b"POST /v3/kv/txn HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n{ 1}"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\nA;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
)


def messages(frames: Iterable[Frame]) -> list[Message]:
    return [message for frame in frames for message in frame.messages]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_however_bytes_come_messages_are_the_same_and_all_bytes_pass(size: int) -> None:
    framer = HttpFrames()
    asked, answered = ASK * 2, CHUNKED + ANSWER
    sent = [frame for data in pieces(asked, size) for frame in framer.requests(data)]
    came = [frame for data in pieces(answered, size) for frame in framer.replies(data)]
    assert messages(sent) == [Message("txn", 1, b"{ 1}"), Message("txn", 2, b"{ 1}")]
    assert messages(came) == [Message("txn", 1, b"abc0123456789"), Message("txn", 2, b"{}")]
    assert b"".join(frame.data for frame in sent) == asked
    assert b"".join(frame.data for frame in came) == answered


def test_a_message_counts_when_all_of_it_has_come() -> None:
    framer = HttpFrames()
    assert messages(framer.requests(ASK[:-1])) == []
    assert len(messages(framer.requests(ASK[-1:]))) == 1
    assert messages(framer.replies(CHUNKED[:-1])) == []
    assert len(messages(framer.replies(CHUNKED[-1:]))) == 1


def test_each_chunk_passes_when_it_has_come() -> None:
    framer = HttpFrames()
    list(framer.requests(ASK))
    so_far = CHUNKED[: CHUNKED.index(b"abc\r\n") + 5]
    assert b"".join(frame.data for frame in framer.replies(so_far)) == so_far


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
        (b"GET", b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER),
    ],
)
def test_what_has_no_body_is_followed_by_the_next(method: bytes, answer: bytes) -> None:
    framer = HttpFrames()
    list(framer.requests(method + b" /version?a=b HTTP/1.1\r\n\r\n" + ASK))
    kinds = [message.kind for message in messages(framer.replies(answer + ANSWER))]
    assert kinds == ["version", "txn"]


def test_a_reply_of_no_length_goes_on_to_the_end_of_the_connection() -> None:
    framer = HttpFrames()
    list(framer.requests(ASK))
    head = b"HTTP/1.0 200 OK\r\n\r\n"
    assert [message.kind for message in messages(framer.replies(head))] == ["txn"]
    for rest in (b"HTTP/1.1 is only a text here\r\n\r\n", b"more"):
        assert list(framer.replies(rest)) == [Frame(rest)]


def test_what_is_not_http_is_refused() -> None:
    with pytest.raises(ValueError, match=r"HTTP/2\.0"):
        list(HttpFrames().requests(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
    with pytest.raises(ValueError, match="nobody asked"):
        list(HttpFrames().replies(ANSWER))


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]
