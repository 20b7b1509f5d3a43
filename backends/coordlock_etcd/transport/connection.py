"""Calls to a cluster: each with a deadline, a login where needed, and another host where safe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Self, TypeVar

from google.protobuf.message import Message

from coordlock.errors import ConfigurationError
from coordlock.runtime.promise import Promise
from coordlock.settings import Settings
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.rpc import AUTHENTICATE, Method
from coordlock_etcd.transport.call import SHORT_ATTEMPTS, SILENCE_S, Call, CallThreads
from coordlock_etcd.transport.cluster import Cluster, Endpoint
from coordlock_etcd.transport.greenlets import make_room
from coordlock_etcd.transport.login import Login, TokenSource
from coordlock_etcd.transport.tls import channel_credentials

__all__ = ["Connection"]

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)
Result = TypeVar("Result")


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
        self.cluster: Final = Cluster(endpoints)
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

    def patience(self, attempts: int) -> float:
        """Seconds for a request that its caller, who must know of each attempt, sends again.

        There were ``attempts`` before.
        """
        return min(self.timeout, SILENCE_S) if attempts < SHORT_ATTEMPTS else self.timeout

    def call(
        self,
        method: Method[Request, Reply],
        request: Request,
        read: Callable[[Reply], Result | Promise[Result]],
        *,
        timeout: float | None = None,
        at: Endpoint | None = None,
        once: bool = False,
    ) -> Promise[Result]:
        """Send ``request``; what ``read`` makes of the reply, within ``timeout`` seconds.

        That is what it returns, or what the future comes to that it returns, or what it raises.
        A request without an answer for `SILENCE_S` is sent again: a leader that dies takes along
        what its members had handed over to it, and nobody ever answers that. With ``once``, no
        request is sent again that may have had an effect.

        With ``at``, only to that endpoint, whether it has a leader or not. Methods that are streams
        for etcd may be called too: one request and one reply look the same on the wire.
        """
        within = timeout or self.timeout
        return Call(
            self.cluster, self.threads, self.login, method, request, read, within, at, once=once
        ).begin()

    def close(self) -> None:
        """End all calls and close the channels. Blocks; idempotent."""
        self.cluster.closed = True
        self.threads.close()
        self.cluster.close()
        self.threads.join(self.timeout)

    def _authenticate(self, request: pb.AuthenticateRequest) -> Promise[str]:
        return Call(
            self.cluster,
            self.threads,
            None,
            AUTHENTICATE,
            request,
            lambda reply: reply.token,
            self.timeout,
        ).begin()
