"""Calls to a cluster: each with a deadline, a login where needed, and another host where safe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

import grpc
from google.protobuf.message import Message

from coordlock.errors import BackendUnavailable, ConfigurationError
from coordlock.runtime.promise import Promise
from coordlock.settings import Settings
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.rpc import AUTHENTICATE, MEMBER_LIST, RANGE, STATUS, Method
from coordlock_etcd.transport.call import Call, CallThreads, metadata
from coordlock_etcd.transport.cluster import Cluster, Endpoint
from coordlock_etcd.transport.greenlets import prepare
from coordlock_etcd.transport.login import Login, token_of
from coordlock_etcd.transport.lost_requests import LostRequests
from coordlock_etcd.transport.members import Members
from coordlock_etcd.transport.tls import channel_credentials

__all__ = ["Connection"]

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)
Result = TypeVar("Result")

#: Seconds for the question for a member's term.
_LOOK: Final = 1.0


class Connection:
    """Calls to one cluster, over the endpoint that is in use.

    Args:
        endpoints: the members; closed with the connection.
        timeout: how long a call may take, in seconds.
        credentials: the user and the password; None for no login.
        given_token: where there is no login, gives the token of a given client.
        prefix: of the keys that may be read.
        learns: whether to learn the cluster's members: see `Members`.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        timeout: float,
        credentials: tuple[str, str] | None = None,
        given_token: Callable[[], str | None] | None = None,
        prefix: bytes = b"/",
        learns: bool | None = False,
    ) -> None:
        self.timeout: Final = timeout
        self.cluster: Final = Cluster(endpoints, LostRequests(self._ask_term))
        self.threads: Final = CallThreads()
        self.login: Final = Login(credentials, given_token, self._authenticate)
        #: For calls: None where they carry no token.
        self._login = self.login if credentials or given_token else None
        self.members: Final = Members(self.cluster, learns, self._list_members)
        self._prefix: Final = prefix

    @classmethod
    def configure(cls, settings: Settings, prefix: bytes, client: object | None) -> Self:
        """A connection for ``settings``; with ``client``, see `EtcdBackend.configure`."""
        prepare(has_channel=client is not None)
        if client is None:
            tls = channel_credentials(settings.options)
            # All hosts get their chance within one request.
            connect_within = settings.request_timeout / (len(settings.hosts) + 1)
            endpoints = [Endpoint(host, tls, connect_within) for host in settings.hosts]
        else:
            endpoints = [Endpoint("the given client", given=_channel_of(client))]
        if not endpoints:
            raise ConfigurationError("etcd needs a host: etcd://host:2379")
        credentials = None
        if settings.username is not None:
            if not settings.username:
                raise ConfigurationError("etcd needs a username beside the password")
            credentials = (settings.username, settings.password or "")
        wanted = settings.options["learn_members"]
        learns = None if wanted == "auto" else wanted
        return cls(
            endpoints,
            settings.request_timeout,
            credentials,
            None if client is None else partial(token_of, client),
            prefix,
            False if client is not None else learns,
        )

    def call(
        self,
        method: Method[Request, Reply],
        request: Request,
        read: Callable[[Reply], Result | Promise[Result]],
        *,
        timeout: float | None = None,
        at: Endpoint | None = None,
    ) -> Promise[Result]:
        """Send ``request``; what ``read`` makes of the reply, within ``timeout`` seconds.

        That is what it returns, or what the future comes to that it returns, or what it raises.
        With ``at``, only to that endpoint, whether it has a leader or not. Methods that are streams
        for etcd may be called too: one request and one reply look the same on the wire.
        """
        return self.send(lambda: (method, request), read, timeout=timeout, at=at)

    def send(
        self,
        message: Callable[[], tuple[Method[Request, Reply], Request]],
        read: Callable[[Reply], Result | Promise[Result]],
        *,
        timeout: float | None = None,
        at: Endpoint | None = None,
    ) -> Promise[Result]:
        """As `call`, of what ``message`` gives at each attempt, in the thread that makes it."""
        within = timeout or self.timeout
        return Call(self.cluster, self.threads, self._login, message, read, within, at).begin()

    def call_now(self, method: Method[Request, Reply], request: Request) -> Reply:
        """Send ``request`` once and wait for the reply, in this thread alone.

        For the interpreter's end: other calls need threads, which can't be started then.
        """
        token = self.login.token()
        if not token.done():
            raise BackendUnavailable(SERVICE, "not logged in")
        channel = self.cluster.current.channel
        return channel.unary_unary(method.path, method.encode, method.decode)(
            request, timeout=self.timeout, metadata=metadata(token.result())
        )

    def close(self) -> None:
        """End all calls and close the channels that are ours. Blocks; idempotent."""
        self.cluster.cancel()
        self.threads.close()
        self.cluster.lost_requests.close()
        self.cluster.close()
        self.threads.join(self.timeout)
        self.cluster.lost_requests.join(_LOOK)

    def _authenticate(self, request: pb.AuthenticateRequest) -> Promise[str]:
        message = AUTHENTICATE, request
        return Call(
            self.cluster,
            self.threads,
            None,
            lambda: message,
            lambda reply: reply.token,
            self.timeout,
        ).begin()

    def _list_members(self, at: Endpoint | None) -> Promise[pb.MemberListResponse]:
        request = pb.MemberListRequest(linearizable=at is None)
        return self.call(MEMBER_LIST, request, lambda reply: reply, at=at)

    def _ask_term(self) -> int:
        """The term of the member in use, asked in this thread; 0 if it does not say."""
        token = self.login.token()
        if not token.done() or token.exception() is not None:
            return 0
        # Where there are users, newer releases show their status to root alone.
        method: Method[Any, Any] = STATUS if token.result() is None else RANGE
        request = pb.StatusRequest() if method is STATUS else requests.term(self._prefix)
        try:
            _, stub = self.cluster.current.stub(method)
            reply = stub(request, timeout=_LOOK, metadata=metadata(token.result(), anywhere=True))
        except Exception:  # it does not answer, or does not let us read, or the client is closed
            return 0
        return int(reply.header.raft_term)


def _channel_of(client: object) -> grpc.Channel:
    """The channel of an ``etcd3.Etcd3Client``."""
    channel = getattr(client, "channel", None)
    if not isinstance(channel, grpc.Channel):
        raise ConfigurationError(
            f"client must be an etcd3.Etcd3Client, not {type(client).__qualname__}"
        )
    return channel
