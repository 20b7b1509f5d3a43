from __future__ import annotations

import grpc
import pytest
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import (
    NoSpace,
    NotPermitted,
    had_no_effect,
    is_elsewhere,
    is_silence,
    is_unresolved,
    needs_login,
    translate,
)
from coordlock_etcd.rpc import RANGE
from grpc import StatusCode

from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    SessionLost,
    TooLarge,
)

#: What etcd 3.4 to 3.6 and gRPC answer, and what the kernel is told.
ANSWERS: list[tuple[StatusCode, str, type[BackendError]]] = [
    (StatusCode.NOT_FOUND, "etcdserver: requested lease not found", SessionLost),
    (StatusCode.UNAVAILABLE, "etcdserver: no leader", BackendUnavailable),
    (StatusCode.UNAVAILABLE, "etcdserver: leader changed", BackendUnavailable),
    (StatusCode.UNAVAILABLE, "etcdserver: request timed out", BackendUnavailable),
    (StatusCode.UNAVAILABLE, "Socket closed", BackendUnavailable),
    (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", BackendUnavailable),
    (StatusCode.CANCELLED, "Channel closed!", BackendUnavailable),
    (StatusCode.INTERNAL, "RST_STREAM with error code 2", BackendUnavailable),
    (StatusCode.UNKNOWN, "Stream removed", BackendUnavailable),
    (StatusCode.UNIMPLEMENTED, "unknown service etcdserverpb.KV", BackendUnavailable),
    (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests", BackendUnavailable),
    (
        StatusCode.OUT_OF_RANGE,
        "etcdserver: mvcc: required revision has been compacted",
        BackendUnavailable,
    ),
    (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", NoSpace),
    (
        StatusCode.FAILED_PRECONDITION,
        "etcdserver: rpc not supported for learner",
        BackendUnavailable,
    ),
    (StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", NotPermitted),
    (StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token", AuthenticationFailed),
    (StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", AuthenticationFailed),
    (
        StatusCode.INVALID_ARGUMENT,
        "etcdserver: authentication failed, invalid user ID or password",
        AuthenticationFailed,
    ),
    (StatusCode.INVALID_ARGUMENT, "etcdserver: key is not provided", BackendError),
    (StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: compacted", BackendError),
    (
        StatusCode.INVALID_ARGUMENT,
        "etcdserver: too many operations in txn request",
        TooLarge,
    ),
    (StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large", TooLarge),
    (
        StatusCode.RESOURCE_EXHAUSTED,
        "grpc: received message larger than max (2200119 vs. 2097152)",
        TooLarge,
    ),
    (StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max", BackendUnavailable),
]


@pytest.mark.parametrize(("code", "details", "kind"), ANSWERS)
def test_every_answer_has_its_error(
    code: StatusCode, details: str, kind: type[BackendError]
) -> None:
    error = translate(code, details, "h:2379")
    assert type(error) is kind
    assert error.service == "etcd"
    assert error.reason


@pytest.mark.parametrize(
    ("said", "option"),
    [
        ("etcdserver: too many operations in txn request", "--max-txn-ops"),
        ("etcdserver: request is too large", "--max-request-bytes"),
    ],
)
def test_what_exceeds_a_limit_of_the_server_names_its_option(said: str, option: str) -> None:
    assert option in str(translate(StatusCode.INVALID_ARGUMENT, said))


def test_a_full_database_is_not_worth_a_retry_and_says_what_to_do() -> None:
    code, details = StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"
    error = translate(code, details)
    assert not isinstance(error, BackendUnavailable)
    assert "alarm disarm" in str(error)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("UNKNOWN: ipv4:127.0.0.1:1: tcp handshaker shutdown", "os.closerange"),
        ("connection attempt timed out before receiving SETTINGS frame", "tls=true?"),
        ("Socket closed", "tls=true?"),
        ("Failed parsing HTTP/2 (Expected SETTINGS frame as the first frame)", "tls=true?"),
        ("Handshake read failed (Socket closed)", "does it speak TLS?"),
        ("Tls handshake failed: CERTIFICATE_VERIFY_FAILED", "the option ca"),
        ("Unwrap failed (TSI_DATA_CORRUPTED)", "cert and key"),
    ],
)
def test_a_failed_connection_comes_with_a_hint(said: str, hint: str) -> None:
    details = f"failed to connect to all addresses; last error: UNAVAILABLE: ipv4:1.2.3.4:5: {said}"
    reason = translate(StatusCode.UNAVAILABLE, details, "h:5").reason
    assert said in reason
    assert hint in reason
    assert "all addresses" not in reason


@pytest.mark.parametrize(
    ("said", "is_told"),
    [
        ("connection attempt timed out before receiving SETTINGS frame", False),
        ("Socket closed", False),
        ("Tls handshake failed: CERTIFICATE_VERIFY_FAILED", True),
    ],
)
def test_whether_a_host_that_has_answered_is_an_etcd_is_not_asked(said: str, is_told: bool) -> None:
    details = f"failed to connect to all addresses; last error: UNAVAILABLE: ipv4:1.2.3.4:5: {said}"
    reason = translate(StatusCode.UNAVAILABLE, details, "h:5", has_answered=True).reason
    assert said in reason
    assert ("the option ca" in reason) is is_told
    assert "?" not in reason


def test_a_refused_connection_needs_no_hint() -> None:
    details = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"
    reason = translate(StatusCode.UNAVAILABLE, details, "h:1").reason
    assert reason == "h:1: UNKNOWN: Connection refused"


def test_only_what_reached_no_etcd_may_be_sent_to_another_host() -> None:
    unsent = "failed to connect to all addresses; last error: ..."
    assert had_no_effect(StatusCode.UNAVAILABLE, unsent)
    assert had_no_effect(StatusCode.UNIMPLEMENTED, "")
    assert not had_no_effect(StatusCode.UNAVAILABLE, "Socket closed")
    assert not had_no_effect(StatusCode.UNAVAILABLE, "etcdserver: no leader")
    assert not had_no_effect(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


@pytest.mark.parametrize("host", ["127.0.0.1:1", "nowhere.invalid:2379"])
def test_the_installed_grpc_says_in_known_words_that_nothing_was_sent(host: str) -> None:
    """Its words are no promise. If they have changed, change `_UNSENT` and `_UNRESOLVED`."""
    with grpc.insecure_channel(f"dns:///{host}") as channel, pytest.raises(grpc.RpcError) as failed:
        channel.unary_unary(RANGE.path, RANGE.encode, RANGE.decode)(pb.RangeRequest(), timeout=60)
    code, details = failed.value.code(), failed.value.details() or ""
    assert had_no_effect(code, details), f"grpcio {grpc.__version__} says {details!r}"
    assert is_unresolved(code, details) is ("invalid" in host)


def test_silence_is_what_grpc_reports_and_what_etcd_says_at_the_same_moment() -> None:
    assert is_silence(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    said = "etcdserver: request timed out, possibly due to previous leader failure"
    assert is_silence(StatusCode.UNAVAILABLE, said)
    assert not is_silence(StatusCode.UNAVAILABLE, "etcdserver: no leader")


def test_an_endpoint_is_left_when_another_may_do_better() -> None:
    assert is_elsewhere(StatusCode.UNAVAILABLE, "etcdserver: no leader")
    assert is_elsewhere(StatusCode.DEADLINE_EXCEEDED, "")
    assert not is_elsewhere(StatusCode.CANCELLED, "")
    assert not is_elsewhere(StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
    assert not is_elsewhere(StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")


def test_a_token_is_renewed_when_etcd_refuses_it() -> None:
    assert needs_login(StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")
    assert needs_login(StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty")
    old = "etcdserver: revision of auth store is old"
    assert needs_login(StatusCode.INVALID_ARGUMENT, old)
    assert not needs_login(StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")
