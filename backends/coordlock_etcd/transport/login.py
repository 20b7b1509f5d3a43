"""The token that calls carry, and the login that gives it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from coordlock.errors import BackendUnavailable
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import SERVICE

__all__ = ["Login"]

log = Log("coordlock")

_AUTH_IS_OFF: Final = "authentication is not enabled"


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
        user, password = self._credentials
        request = pb.AuthenticateRequest(name=user, password=password)
        token: Promise[str | None] = Promise()
        try:
            with self._lock:
                if self._token is not None:
                    return self._token
                self._token = token
            self._authenticate(request).add_done_callback(partial(self._answered, token))
        except BaseException:  # Ctrl-C: others must not wait for what may never have been sent
            with self._lock:
                if self._token is token:
                    self._token = None
            token.fail(BackendUnavailable(SERVICE, "the login was interrupted"))
            raise
        return token

    def forget(self, token: str | None) -> None:
        """Log in anew, because etcd refused ``token``."""
        with self._lock:
            known = self._token  # pending or kept; failed ones are dropped at once
            if known is not None and known.done() and known.result() == token:
                self._token = None

    def _answered(self, token: Promise[str | None], answer: Promise[str]) -> None:
        error = answer.exception()
        if error is None:
            token.resolve(answer.result())
        elif _AUTH_IS_OFF in str(error):
            # As etcd's own client does: credentials don't hurt where etcd does not ask for them.
            log.warning("etcd: credentials are configured, but authentication is not enabled")
            token.resolve(None)
        else:
            with self._lock:
                if self._token is token:
                    self._token = None
            token.fail(error)
