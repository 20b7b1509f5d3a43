"""The token that calls carry, and the login that gives it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from coordlock.errors import BackendUnavailable
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, resolved
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import SERVICE

__all__ = ["Login", "token_of"]

log = Log("coordlock")

_AUTH_IS_OFF: Final = "authentication is not enabled"


def token_of(client: object | None) -> str | None:
    """The token with which ``client``, an ``etcd3.Etcd3Client``, is logged in, if it is."""
    metadata: Sequence[tuple[str, str]] = getattr(client, "metadata", None) or ()
    return dict(metadata).get("token")


class Login:
    """The login of one client, repeated when etcd refuses its token.

    Args:
        credentials: the user and the password; None for no login.
        given_token: where there is no login, gives the token of a given client; asked for each
            call.
        authenticate: sends the request for a token.
    """

    def __init__(
        self,
        credentials: tuple[str, str] | None,
        given_token: Callable[[], str | None] | None,
        authenticate: Callable[[pb.AuthenticateRequest], Promise[str]],
    ) -> None:
        self._credentials = credentials
        self.given_token: Final = given_token or (lambda: None)
        self._authenticate = authenticate
        self._lock = threading.RLock()
        self._token: Promise[str | None] | None = None

    @property
    def is_needed(self) -> bool:
        """Whether calls need a token that takes a login; else they have `given_token`."""
        return self._credentials is not None

    def token(self) -> Promise[str | None]:
        """The token to send, after a login if need be; None where etcd asks for no token."""
        if self._credentials is None:
            return resolved(self.given_token())
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

    def forget(self, token: str | None) -> bool:
        """Log in anew, because etcd refused ``token``; False when there is no login to do it."""
        if self._credentials is None:
            return False
        with self._lock:
            known = self._token  # pending or kept; failed ones are dropped at once
            if known is not None and known.done() and known.result() == token:
                self._token = None
        return True

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
