"""Calls to a cluster: each with a deadline, a login where needed, and another host where safe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final, Self, TypeVar

import grpc
from google.protobuf.message import Message

from coordlock.errors import BackendError, BackendUnavailable, ConfigurationError, CoordlockError
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise
from coordlock.settings import Settings
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import (
    SERVICE,
    client_closed,
    clock_is_wrong,
    had_no_effect,
    is_elsewhere,
    is_silence,
    is_unresolved,
    needs_login,
    translate,
)
from coordlock_etcd.rpc import AUTHENTICATE, Method
from coordlock_etcd.transport.call import Attempt
from coordlock_etcd.transport.cluster import Cluster, Endpoint
from coordlock_etcd.transport.greenlets import make_room
from coordlock_etcd.transport.login import Login, TokenSource
from coordlock_etcd.transport.threads import CallThreads
from coordlock_etcd.transport.tls import channel_credentials

__all__ = ["Connection"]

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)
Result = TypeVar("Result")

#: Seconds of silence after which a request is sent again that may be.
SILENCE_S: Final = 1.5
#: How many attempts in a row the client gives up after `SILENCE_S`. It gives the next one all the
#: time that is left: etcd may need longer for a change while it answers others at once.
_SHORT_ATTEMPTS: Final = 2
#: What reading an answer raises that makes no sense. Others are a signal handler's: the main thread
#: reads what is answered at once.
_MALFORMED: Final = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
#: Seconds before a call's deadline in which gRPC may give it up.
_EARLY_S: Final = 0.2


class Connection:
    """Calls to one cluster, over the endpoint that is in use.

    Args:
        endpoints: the members; closed with the connection.
        timeout: how long a call may take, in seconds.
        credentials: the user and the password; None for no login.
        login: gives tokens where there are no credentials.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        timeout: float,
        credentials: tuple[str, str] | None = None,
        login: TokenSource | None = None,
    ) -> None:
        self.timeout: Final = timeout
        self.cluster = Cluster(endpoints)
        self.threads: Final = CallThreads()
        #: None where calls carry no token.
        self.login: Final = Login(credentials, self._authenticate) if credentials else login

    @classmethod
    def configure(cls, settings: Settings, client: object | None) -> Self:
        """A connection for ``settings``; with ``client``, see `EtcdBackend.configure`."""
        make_room(len(settings.hosts))
        login: TokenSource | None = None
        tls = channel_credentials(settings.options)
        # All hosts get their chance within one request.
        connect_within = settings.request_timeout / (len(settings.hosts) + 1)
        endpoints = [Endpoint(host, tls, connect_within) for host in settings.hosts]
        if client is not None:
            from coordlock_etcd.transport.given import GivenEndpoint, GivenLogin

            endpoints, login = [GivenEndpoint(client)], GivenLogin(client)
        if not endpoints:
            raise ConfigurationError("etcd needs a host: etcd://host:2379")
        credentials = None
        if settings.username is not None:
            if not settings.username:
                raise ConfigurationError("etcd needs a username beside the password")
            credentials = (settings.username, settings.password or "")
        return cls(endpoints, settings.request_timeout, credentials, login)

    def to(self, endpoint: Endpoint) -> Connection:
        """Calls to ``endpoint`` alone."""
        alone = copy(self)
        alone.cluster = Cluster([endpoint])
        return alone

    def patience(self, attempts: int) -> float:
        """Seconds that the caller waits for an answer, after ``attempts`` that got none."""
        return min(self.timeout, SILENCE_S) if attempts < _SHORT_ATTEMPTS else self.timeout

    def call(
        self,
        method: Method[Request, Reply],
        request: Request,
        read: Callable[[Reply], Result | Promise[Result]],
        *,
        timeout: float | None = None,
        once: bool = False,
    ) -> Promise[Result]:
        """Send ``request``; what ``read`` makes of the reply, within ``timeout`` seconds.

        That is what it returns, or what the promise comes to that it returns, or what it raises.
        A login that is needed before takes its own time.
        A request without an answer for `SILENCE_S` is sent again: a leader that dies takes along
        what its members had handed over to it, and nobody ever answers that. With ``once``, no
        request is sent again that may have had an effect.

        Methods that are streams for etcd may be called too: one request and one reply look the
        same on the wire.
        """

        def steps() -> Steps[Result]:
            reply = yield from self._ask(method, request, timeout or self.timeout, once)
            try:
                result = read(reply)
            except CoordlockError:
                raise
            except _MALFORMED as error:
                # An answer that makes no sense must not pass for an error of the caller.
                raise BackendError(SERVICE, f"unexpected answer: {error!r}") from error
            if isinstance(result, Promise):
                result = yield result
            return result

        return run_in_background(steps())

    def _ask(
        self, method: Method[Any, Any], request: Message, timeout: float, once: bool
    ) -> Steps[Any]:
        """The reply to ``request``, over as many attempts as it takes."""
        cluster, deadline = self.cluster, SYSTEM_CLOCK.now() + timeout
        # The answer may not be older than what was seen by now.
        seen = cluster.revision if method.is_linearizable else 0
        login = renewable = None if method is AUTHENTICATE else self.login
        # What kept it from the hosts that it has tried so far.
        unreached: list[str] = []
        silences = 0
        while not self.cluster.closed:
            began = SYSTEM_CLOCK.now()
            token = None if login is None else (yield login.token())
            # A login has its own time: servers hash passwords slowly.
            deadline += SYSTEM_CLOCK.now() - began
            left = max(0.0, deadline - SYSTEM_CLOCK.now())
            seconds = left if once else min(left, self.patience(silences))
            attempt = Attempt(cluster.current, method, request, token, seconds)
            try:
                reply = yield attempt.begin(self.threads)
            except grpc.RpcError as failed:
                code, details = failed.code(), failed.details() or ""
            else:
                cluster.answered(attempt.endpoint, reply, seen)
                return reply
            if renewable is not None and needs_login(code, details, had_token=token is not None):
                # etcd refused the request before it did anything, so any may be sent again.
                renewable.forget(token)
                renewable = None
                continue
            early = attempt.until - SYSTEM_CLOCK.now()
            if early > _EARLY_S and code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise clock_is_wrong(early)
            endpoint = attempt.endpoint
            error = translate(code, details, endpoint.host, has_answered=endpoint.has_answered)
            if is_silent := is_silence(code, details):
                silences += 1
                cluster.silent(attempt.sent)
            is_usable = is_silent and not cluster.is_silent
            if is_elsewhere(code, details) and not is_usable:
                cluster.fail_over(endpoint, is_stuck=is_silent or is_unresolved(code, details))
                if had_no_effect(code, details) and len(unreached) + 1 < len(cluster.endpoints):
                    unreached.append(error.reason)
                    continue
            if cluster.closed or (is_silent and not once and SYSTEM_CLOCK.now() < deadline):
                continue
            if unreached and isinstance(error, BackendUnavailable):
                raise BackendUnavailable(SERVICE, "; ".join([*unreached, error.reason]))
            raise error
        raise client_closed()

    def close(self) -> None:
        """End all calls and close the channels. Blocks; idempotent."""
        self.cluster.closed = True
        self.threads.close()
        self.cluster.close()
        self.threads.join(self.timeout)

    def _authenticate(self, request: pb.AuthenticateRequest) -> Promise[str]:
        return self.call(AUTHENTICATE, request, lambda reply: reply.token)
