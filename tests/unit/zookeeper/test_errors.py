"""Whatever kazoo raises comes out as coordlock's."""

from __future__ import annotations

import inspect
import pickle

import kazoo.exceptions
import kazoo.handlers.threading
import kazoo.retry
import pytest
from coordlock_zookeeper.errors import (
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    translate,
)

from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    CoordlockError,
    SessionLost,
)

EVERY = sorted(
    {
        kind
        for module in (kazoo.exceptions, kazoo.retry, kazoo.handlers.threading)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Exception)
    },
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_exception_of_kazoo_is_translated(kind: type[Exception]) -> None:
    error = translate(kind())
    assert isinstance(error, BackendError)
    assert error.service == "zookeeper"
    assert error.reason
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ConnectionLoss", BackendUnavailable),
        ("ConnectionClosedError", BackendUnavailable),
        ("OperationTimeoutError", BackendUnavailable),
        ("SessionMovedError", BackendUnavailable),
        ("ThrottledOpError", BackendUnavailable),
        ("NotReadOnlyCallError", BackendUnavailable),
        ("SessionExpiredError", SessionLost),
        ("NoAuthError", AuthenticationFailed),
        ("AuthFailedError", AuthenticationFailed),
        ("InvalidACLError", AuthenticationFailed),
        ("SessionClosedRequireSaslError", AuthenticationFailed),
        ("NoNodeError", NoNode),
        ("NodeExistsError", NodeExists),
        ("NotEmptyError", NotEmpty),
        ("BadVersionError", BadVersion),
        ("UnimplementedError", BackendError),
        ("MarshallingError", BackendError),
    ],
)
def test_what_each_means(name: str, expected: type[CoordlockError]) -> None:
    assert type(translate(getattr(kazoo.exceptions, name)())) is expected


def test_coordlocks_own_errors_stay_what_they_are() -> None:
    error = SessionLost("ZooKeeper", "gone")
    assert translate(error) is error


def test_what_is_no_error_of_the_service_means_that_there_was_no_answer() -> None:
    out_of_turn = RuntimeError("xids do not match, expected %r received %r", 23, 24)
    for error in (out_of_turn, ConnectionRefusedError("refused"), ValueError()):
        assert type(translate(error)) is BackendUnavailable
