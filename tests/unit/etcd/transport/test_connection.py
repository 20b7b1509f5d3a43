"""Calls: what comes of reading an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.rpc import RANGE
from coordlock_etcd.transport import Connection
from coordlock_etcd.transport.cluster import Endpoint

from coordlock.errors import BackendError
from coordlock.runtime.promise import Promise, resolved


class Alarm(Exception):
    """What a signal handler raises where the program goes on."""


class AnsweredAtOnce(SimpleNamespace):
    """An attempt whose reply is there before anybody waits for it, as on a busy machine."""

    def __init__(self, endpoint: Endpoint, *_: Any) -> None:
        super().__init__(endpoint=endpoint)

    def begin(self, _: object) -> Promise[pb.RangeResponse]:
        return resolved(pb.RangeResponse())


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(Alarm(), Alarm), (TimeoutError(), TimeoutError), (IndexError(), BackendError)],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_a_signal_handler_raises_while_an_answer_is_read_is_no_unexpected_answer(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception]
) -> None:
    """The fault: the program's own time limit reached it as an error of etcd."""
    monkeypatch.setattr("coordlock_etcd.transport.connection.Attempt", AnsweredAtOnce)
    connection = Connection([Endpoint("127.0.0.1:1")], timeout=5)

    def read(_: pb.RangeResponse) -> None:
        raise raised

    with pytest.raises(expected):
        connection.call(RANGE, pb.RangeRequest(), read).result(0)
    connection.close()
