"""kazoo's exceptions as coordlock's: the only place that knows both."""

from __future__ import annotations

from typing import Final

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NotReadOnlyCallError,
    OperationTimeoutError,
    RequestTimeoutError,
    SASLException,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
    ThrottledOpError,
)

from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    CoordlockError,
    SessionLost,
)

__all__ = [
    "SERVICE",
    "BadVersion",
    "NoNode",
    "NodeExists",
    "NotEmpty",
    "closed",
    "translate",
]

SERVICE: Final = "zookeeper"


class _Expected(BackendError):
    """An answer that the code which can meet it handles."""


class NoNode(_Expected):
    """The node does not exist."""


class NodeExists(_Expected):
    """The node exists already."""


class BadVersion(_Expected):
    """The node is at another version."""


class NotEmpty(_Expected):
    """The node has children."""


_MEANINGS: Final[tuple[tuple[type[Exception], type[BackendError], str], ...]] = (
    # kazoo derives the first from the second, which is not what happened.
    (ConnectionClosedError, BackendUnavailable, "the client's connection is closed"),
    (ConnectionLoss, BackendUnavailable, "the connection was lost"),
    (OperationTimeoutError, BackendUnavailable, "the operation timed out"),
    (SessionMovedError, BackendUnavailable, "the session moved to another server"),
    (
        NotReadOnlyCallError,
        BackendUnavailable,
        "the server is read-only, cut off from its quorum",
    ),
    (RequestTimeoutError, BackendUnavailable, "the request timed out"),
    (ThrottledOpError, BackendUnavailable, "the server is overloaded and throttles requests"),
    (SessionExpiredError, SessionLost, "the server expired the session"),
    (NoNodeError, NoNode, "the node does not exist"),
    (NodeExistsError, NodeExists, "the node exists already"),
    (BadVersionError, BadVersion, "the node is at another version"),
    (NotEmptyError, NotEmpty, "the node has children"),
    (NoAuthError, AuthenticationFailed, "the node's ACL does not allow this"),
    (
        InvalidACLError,
        AuthenticationFailed,
        "the server does not know the credentials for the ACL",
    ),
    (
        SessionClosedRequireSaslError,
        AuthenticationFailed,
        "the server accepts only authenticated sessions",
    ),
)


def closed() -> BackendUnavailable:
    """Why nothing is asked any more."""
    return BackendUnavailable(SERVICE, "the connection is closed")


def translate(error: BaseException, path: str = "") -> CoordlockError:
    """The error of `coordlock.errors` that says what ``error`` means. Never raises.

    ``path`` is the node whose ACL decides, where that is known.
    """
    if isinstance(error, CoordlockError):
        return error
    if isinstance(error, NoAuthError) and path:
        return AuthenticationFailed(SERVICE, f"the ACL of the node {path} does not allow this")
    for kind, meaning, reason in _MEANINGS:
        if isinstance(error, kind):
            return meaning(SERVICE, reason)
    if isinstance(error, (AuthFailedError, SASLException)):
        return AuthenticationFailed(SERVICE, str(error) or "the credentials were refused")
    if isinstance(error, KazooException):
        return BackendError(SERVICE, f"{type(error).__name__}: {error}".removesuffix(": "))
    # Of the network; or the answer could not be understood, as where a server leaves one out.
    return BackendUnavailable(SERVICE, str(error) or type(error).__name__)
