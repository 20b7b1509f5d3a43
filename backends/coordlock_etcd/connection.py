"""Calls to a cluster: each with a deadline, a login where needed, and another host where safe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from coordlock.errors import BackendUnavailable
from coordlock.log import Log
from coordlock.runtime.promise import Promise, resolved
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.call import Call
from coordlock_etcd.endpoints import Endpoint, Endpoints
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.interpreter import starts_threads
from coordlock_etcd.lookout import Lookout
from coordlock_etcd.rpc import AUTHENTICATE, RANGE, STATUS, Method
from coordlock_etcd.starter import Starter

__all__ = ["Connection", "Metadata"]

log = Log("coordlock")

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)
Result = TypeVar("Result")

Metadata = tuple[tuple[str, str], ...]

#: A member without a leader fails such calls at once, instead of letting them wait for one.
_HAS_LEADER: Final = ("hasleader", "true")
#: Seconds in which a member tells its term.
_LOOK: Final = 1.0
_AUTH_IS_OFF: Final = "authentication is not enabled"


class Connection:
    """Calls to one cluster, over the endpoint that is in use.

    Args:
        endpoints: the members; closed with the connection.
        timeout: how long a call may take, in seconds.
        login: the user and the password; None for none.
        token: where there is no login, the token of somebody else's; asked for each call.
        moved: called after another endpoint or connection has come into use, from any thread.
        prefix: of the keys that may be read.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        timeout: float,
        login: tuple[str, str] | None = None,
        token: Callable[[], str | None] = lambda: None,
        moved: Callable[[], None] = lambda: None,
        prefix: bytes = b"/",
    ) -> None:
        self.endpoints: Final = endpoints
        self.timeout: Final = timeout
        self.moved = moved
        self._login = login
        self.foreign_token: Final = token
        self._lock = threading.RLock()
        self._token: Promise[str | None] | None = None
        self._calls: set[grpc.RpcContext] = set()
        self._closed = False
        #: The newest state of the store that any answer or event has shown.
        self.revision = 0
        self.starter: Final = Starter()
        self._prefix: Final = prefix
        self.lookout: Final = Lookout(self._ask_term)

    def saw(self, revision: int) -> None:
        """Something shows the store at ``revision``, so that nothing asked later may be older."""
        if revision > self.revision:
            with self._lock:
                self.revision = max(self.revision, revision)

    def call(
        self,
        method: Method[Request, Reply],
        request: Request,
        read: Callable[[Reply], Result | Future[Result]],
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
        read: Callable[[Reply], Result | Future[Result]],
        *,
        timeout: float | None = None,
        at: Endpoint | None = None,
    ) -> Promise[Result]:
        """As `call`, of what ``message`` gives at each attempt, in the thread that makes it."""
        return Call(self, message, read, timeout or self.timeout, at).begin()

    @property
    def logs_in(self) -> bool:
        """Whether calls need a token that takes a login; else they have `foreign_token`."""
        return self._login is not None

    def token(self) -> Future[str | None]:
        """The token to send, after a login where there was none; None when there is no need."""
        if self._login is None:
            return resolved(self.foreign_token())
        user, password = self._login
        request = pb.AuthenticateRequest(name=user, password=password)
        token: Promise[str | None] = Promise()
        try:
            with self._lock:
                if self._token is not None:
                    return self._token
                self._token = token
            call = Call(
                self,
                lambda: (AUTHENTICATE, request),
                lambda reply: reply.token,
                self.timeout,
                anonymous=True,
            )
            call.begin().add_done_callback(lambda future: self._logged_in(token, future))
        except BaseException:  # Ctrl-C: others must not wait for what may never have been sent
            with self._lock:
                if self._token is token:
                    self._token = None
            token.fail(BackendUnavailable(SERVICE, "the login was interrupted"))
            raise
        return token

    def forget(self, token: str | None) -> bool:
        """Log in anew, because etcd refused ``token``; False when there is no login to do it."""
        if self._login is None:
            return False
        with self._lock:
            known = self._token  # pending or kept; failed ones are dropped at once
            if known is not None and known.done() and known.result() == token:
                self._token = None
        return True

    def leave(self, endpoint: Endpoint, channel: grpc.Channel, *, silent: bool) -> None:
        """Use another endpoint, because ``endpoint`` has failed.

        When it was ``silent`` also another connection than ``channel``, whichever endpoint is next.
        """
        if self._closed:
            return
        renewed = silent and endpoint.renew(channel)
        if self.endpoints.leave(endpoint):
            log.info("etcd: %s failed, using %s", endpoint.host, self.endpoints.current.host)
            self.moved()
        elif renewed:
            self.moved()

    def call_now(self, method: Method[Request, Reply], request: Request) -> Reply:
        """Send ``request`` once and wait for the reply, in this thread alone.

        For the interpreter's end: other calls need threads, which can't be started then.
        """
        token = self.token()
        if not token.done():
            raise BackendUnavailable(SERVICE, "not logged in")
        channel = self.endpoints.current.channel
        return channel.unary_unary(method.path, method.encode, method.decode)(
            request, timeout=self.timeout, metadata=self.metadata(token.result())
        )

    def cancel(self) -> None:
        """End all calls and admit no more. Never blocks."""
        with self._lock:
            self._closed = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def close(self) -> None:
        """End all calls and close the channels that are ours. Blocks; idempotent."""
        self.cancel()
        self.starter.close()
        self.lookout.close()
        self.endpoints.close()
        self.starter.join(self.timeout)
        self.lookout.join(_LOOK)

    def follow(self, call: grpc.RpcContext) -> None:
        """Let `close` end ``call``, on channels that are not ours too."""
        with self._lock:
            if not self._closed:
                self._calls.add(call)
                return
        call.cancel()

    def forsake(self, call: grpc.RpcContext) -> None:
        """``call`` has ended."""
        with self._lock:
            self._calls.discard(call)

    def check(self, *, takes_thread: bool = False) -> None:
        """Raise ValueError where a call must not be started: after `close`, or without threads.

        One thread of gRPC's serves all calls of a channel as long as there are any. A call that
        ``takes_thread`` needs one of its own, too.
        """
        with self._lock:
            serves = bool(self._calls) and not takes_thread
        if self._closed:
            raise ValueError("the client is closed")
        if not serves and not starts_threads():
            raise ValueError("the interpreter ends and starts no threads")

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def metadata(self, token: str | None, *, anywhere: bool = False) -> Metadata:
        """What accompanies a call; ``anywhere`` lets members without a leader answer it."""
        pairs = [] if anywhere else [_HAS_LEADER]
        if token is not None:
            pairs.append(("token", token))
        return tuple(pairs)

    def _ask_term(self) -> int:
        """The term of the member in use, asked in this thread; 0 if it does not say."""
        token = self.token()
        if not token.done() or token.exception() is not None:
            return 0
        metadata = self.metadata(token.result(), anywhere=True)
        # Where there are users, newer releases tell their status to root alone.
        method: Method[Any, Any] = STATUS if token.result() is None else RANGE
        request = pb.StatusRequest() if method is STATUS else requests.term(self._prefix)
        try:
            _, stub = self.endpoints.current.stub(method)
            reply = stub(request, timeout=_LOOK, metadata=metadata)
        except Exception:  # it does not answer, or does not let us read, or the client is closed
            return 0
        return int(reply.header.raft_term)

    def _logged_in(self, token: Promise[str | None], answer: Future[str]) -> None:
        error = answer.exception()
        if error is None:
            token.resolve(answer.result())
        elif _AUTH_IS_OFF in str(error):
            # As etcd's own client does: credentials don't hurt where nobody asks for them.
            log.warning("etcd: credentials are configured, but authentication is not enabled")
            token.resolve(None)
        else:
            with self._lock:
                if self._token is token:
                    self._token = None
            token.fail(error)
