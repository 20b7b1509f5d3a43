"""What is told of a cluster whose members say nothing, or may not say it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import NotPermitted
from coordlock_etcd.status import status
from coordlock_etcd.transport import Connection

from coordlock.errors import AuthenticationFailed, BackendUnavailable
from coordlock.runtime.promise import Promise, failed, resolved

DENIED = NotPermitted("etcd", "permission denied")
SILENT = BackendUnavailable("etcd", "two: no answer")
STATUS = pb.StatusResponse(version="3.5.30", leader=1, header=pb.ResponseHeader(member_id=1))


class Endpoint:
    def __init__(self, host: str, answer: Promise[pb.StatusResponse]) -> None:
        self.host = host
        self.answer = answer

    def call(self, *_: object) -> Promise[pb.StatusResponse]:
        return self.answer


class Cluster:
    """Endpoints with these answers."""

    def __init__(self, *answers: pb.StatusResponse | Exception) -> None:
        self.cluster = self
        self.endpoints = [
            Endpoint(host, failed(one) if isinstance(one, Exception) else resolved(one))
            for host, one in zip(("one", "two"), answers, strict=False)
        ]

    def to(self, endpoint: Endpoint) -> Endpoint:
        return endpoint


def described(*answers: pb.StatusResponse | Exception) -> Any:
    return status(cast(Connection, Cluster(*answers))).result(0)


def test_who_may_not_ask_for_the_version_is_told_so_and_all_else() -> None:
    found = described(DENIED, SILENT)
    assert found.version == "unknown"
    assert found.endpoints == ("one", "two (no answer)")
    [silent, unknown] = found.warnings
    assert "two: no answer" in silent
    assert "role root" in unknown


def test_one_answer_is_enough_for_the_version() -> None:
    found = described(STATUS, DENIED)
    assert (found.version, found.endpoints) == ("3.5.30", ("one (leader)", "two"))
    assert found.warnings == ()


@pytest.mark.parametrize("error", [SILENT, AuthenticationFailed("etcd", "invalid password")])
def test_without_any_answer_there_is_nothing_to_tell(error: Exception) -> None:
    with pytest.raises(type(error)):
        described(error, SILENT)
