"""The token that calls carry, and the login that gives it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb

__all__ = ["Login", "TokenSource"]

log = Log("coordlock")

_AUTH_IS_OFF: Final = "authentication is not enabled"


class TokenSource(Protocol):
    """Gives the tokens that calls carry."""

    def token(self) -> Promise[str | None]:
        """The token to send; None for none."""

    def forget(self, token: str | None) -> None:
        """Etcd has refused ``token``."""


class Login:
    """The login of one client, repeated when etcd refuses its token.

    Args:
        credentials: the user and the password.
        authenticate: sends the request for a token.
    """

    def __init__(
        self,
        credentials: tuple[str, str],
        authenticate: Callable[[pb.AuthenticateRequest], Promise[str]],
    ) -> None:
        self._credentials = credentials
        self._authenticate = authenticate
        self._lock = threading.RLock()
        self._token: Promise[str | None] | None = None

    def token(self) -> Promise[str | None]:
        """The token to send, after a login if need be; None where etcd asks for no token."""
        with self._lock:
            known = self._token
            if known is not None and not (known.done() and known.exception()):
                return known
        user, password = self._credentials
        request = pb.AuthenticateRequest(name=user, password=password)
        token: Promise[str | None] = Promise()
        self._authenticate(request).add_done_callback(partial(_answered, token))
        # Only now: others must not wait for what Ctrl-C kept from being sent. Two that come at once
        # may log in twice.
        self._token = token
        return token

    def forget(self, token: str | None) -> None:
        """Log in anew, because etcd refused ``token``."""
        with self._lock:
            known = self._token
            if known is not None and known.done() and not known.exception():
                self._token = None if known.result() == token else known


def _answered(token: Promise[str | None], answer: Promise[str]) -> None:
    error = answer.exception()
    if error is None:
        token.resolve(answer.result())
    elif _AUTH_IS_OFF in str(error):
        # As etcd's own client does: credentials don't hurt where etcd does not ask for them.
        log.warning("etcd: credentials are configured, but authentication is not enabled")
        token.resolve(None)
    else:
        token.fail(error)
