"""etcd's errors, as coordlock's. The only place where gRPC status codes are judged."""

from __future__ import annotations

from typing import Final

from grpc import StatusCode

from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    SessionLost,
    TooLarge,
)

__all__ = [
    "SERVICE",
    "NoSpace",
    "NotPermitted",
    "WatchRefused",
    "client_closed",
    "clock_is_wrong",
    "had_no_effect",
    "is_elsewhere",
    "is_silence",
    "is_unresolved",
    "needs_login",
    "translate",
]

SERVICE: Final = "etcd"

#: What gRPC says when no connection came about, so that nothing was sent.
_UNRESOLVED: Final = ("errors resolving", "dns resolution", "name resolution")
_UNSENT: Final = ("failed to connect", *_UNRESOLVED)
#: What gRPC says of a failed connection, and what a person may have to do about it.
_HINTS: Final = (
    ("bad_certificate", "the server wants a client certificate: the options cert and key"),
    ("certificate", "the option ca must name the authority that signed the server's certificate"),
    ("peer name", "the server's certificate is for another host"),
    (
        "handshaker shutdown",
        "gRPC cannot open connections; if this process has closed files that it did not open, as "
        "os.closerange does, start it again",
    ),
    ("data_corrupted", "the server may want a client certificate: the options cert and key"),
)
_WANTS_TLS: Final = "is this an etcd endpoint, and does it want tls=true?"
#: What to ask about a host that has never answered.
_GUESSES: Final = (
    ("handshake", "is this an etcd endpoint, and does it speak TLS?"),
    *(
        (word, _WANTS_TLS)
        for word in ("settings frame", "socket closed", "connection reset", "http")
    ),
)
#: Limits of the server, which refuses a request that exceeds them, and does nothing of it.
_LIMITS: Final = (
    (
        "too many operations",
        "do less in one transaction, in which each of several locks takes two operations, or raise "
        "the servers' --max-txn-ops, which is 128 by default",
    ),
    ("request is too large", "write less at once, or raise the servers' --max-request-bytes"),
    ("grpc: received message", "write less at once, or raise the servers' --max-request-bytes"),
)
_SILENT_CODES: Final = frozenset(
    {
        StatusCode.UNAVAILABLE,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.CANCELLED,
        StatusCode.INTERNAL,
        StatusCode.UNKNOWN,
        StatusCode.ABORTED,
    }
)


def had_no_effect(code: StatusCode, details: str) -> bool:
    """Whether the request certainly reached no etcd, so that it may be sent to another host."""
    return code is StatusCode.UNIMPLEMENTED or (
        code is StatusCode.UNAVAILABLE and details.lower().startswith(_UNSENT)
    )


def is_silence(code: StatusCode, details: str) -> bool:
    """Whether no answer came in time. etcd knows the time that a client gives, and may say so."""
    return code is StatusCode.DEADLINE_EXCEEDED or "etcdserver: request timed out" in details


def is_unresolved(code: StatusCode, details: str) -> bool:
    """Whether the host's name has no address, so that its channel asks again less and less often.

    gRPC's pauses grow to two minutes, longer than a session lives.
    """
    return code is StatusCode.UNAVAILABLE and details.lower().startswith(_UNRESOLVED)


def is_elsewhere(code: StatusCode, details: str) -> bool:
    """Whether another member of the cluster may do better."""
    return (
        code in _SILENT_CODES - {StatusCode.CANCELLED}
        or code is StatusCode.UNIMPLEMENTED
        or "not supported for learner" in details
    )


def needs_login(code: StatusCode, details: str, *, had_token: bool = True) -> bool:
    """Whether etcd wants a new token. It refused the request before it did anything.

    Without a token, etcd takes the name in the client's certificate for the user. So etcd may
    refuse a request without one because authentication has been turned on meanwhile.
    """
    if code is StatusCode.PERMISSION_DENIED and not had_token:
        return True
    return code is StatusCode.UNAUTHENTICATED or any(
        text in details
        for text in ("invalid auth token", "user name is empty", "revision of auth store is old")
    )


class NoSpace(BackendError):
    """The database is full. The transaction that filled it fails with this, too, and was made."""


class NotPermitted(AuthenticationFailed):
    """The user is known, and may not do that."""


class WatchRefused(BackendUnavailable):
    """etcd has refused a watch: the stream's token has ended, or the right to read is missing."""


def client_closed() -> BackendUnavailable:
    """Why a request is not sent any more."""
    return BackendUnavailable(SERVICE, "the client is closed")


def clock_is_wrong(early: float) -> BackendError:
    """Why a call was given up ``early`` seconds before its deadline, which others would be, too."""
    return BackendError(
        SERVICE,
        f"gRPC gave a call up {early:.1f} s early, because it takes deadlines from time.time(), "
        "which is not the time of this machine: if a test has frozen it, leave gRPC out, as with "
        "freezegun.configure(extend_ignore_list=['grpc']), or use memory://",
    )


def translate(
    code: StatusCode, details: str, host: str = "", *, has_answered: bool = False
) -> BackendError:
    """The error for a call to ``host`` that ended with ``code`` and ``details``.

    ``has_answered``: the host has answered before, so it is an etcd.
    """
    at = f"{host}: " if host else ""
    text = details.removeprefix("etcdserver: ") or code.name
    if "lease not found" in text:
        return SessionLost(SERVICE, "etcd does not know the lease any more")
    if needs_login(code, details) or "authentication failed" in text:
        return AuthenticationFailed(SERVICE, at + text)
    if code is StatusCode.PERMISSION_DENIED:
        return NotPermitted(
            SERVICE,
            f"{at}{text}; the user must be allowed to read and write below the root, "
            "and each key of a transaction",
        )
    if code is StatusCode.UNIMPLEMENTED:
        return BackendUnavailable(SERVICE, f"{at}{text}; is this an etcd endpoint of 3.4 or later?")
    if "required revision has been compacted" in text:
        # It happened between the two requests of one reading. Another reading is newer.
        return BackendUnavailable(SERVICE, at + text)
    for said, advice in _LIMITS:
        if said in text:
            return TooLarge(SERVICE, f"{at}{text}; {advice}")
    if code is StatusCode.RESOURCE_EXHAUSTED:
        return _exhausted(at, text)
    if code in _SILENT_CODES or "not supported for learner" in text:
        # gRPC reports on a single address, too, as the last of many.
        said = text.rpartition("last error: ")[2]
        return BackendUnavailable(SERVICE, at + said + _hint(text, has_answered))
    return BackendError(SERVICE, f"{at}{text} ({code.name})")


def _exhausted(at: str, text: str) -> BackendError:
    if "space exceeded" in text:
        # Writes fail until an operator acts, so trying again does not help.
        return NoSpace(
            SERVICE,
            f"{at}{text}: compact and defragment it, or raise its quota, "
            "then disarm the alarm with `etcdctl alarm disarm`",
        )
    return BackendUnavailable(SERVICE, at + text)


def _hint(text: str, has_answered: bool) -> str:
    said = text.lower()
    if not said.startswith(_UNSENT):
        return ""
    hints = _HINTS if has_answered else _HINTS + _GUESSES
    return next((f"; {hint}" for word, hint in hints if word in said), "")
