"""Calls to a cluster: each with a deadline, a login where needed, and another host where safe."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from coordlock.errors import BackendUnavailable
from coordlock.promise import Promise, resolved
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.endpoints import Endpoint, Endpoints
from coordlock_etcd.errors import SERVICE, had_no_effect, is_elsewhere, needs_login, translate
from coordlock_etcd.interpreter import starts_threads
from coordlock_etcd.rpc import AUTHENTICATE, Method
from coordlock_etcd.starter import Starter

__all__ = ["Connection", "Metadata"]

log = logging.getLogger("coordlock")

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)

Metadata = tuple[tuple[str, str], ...]

#: A member without a leader fails such calls at once, instead of letting them wait for one.
_HAS_LEADER: Final = ("hasleader", "true")
_AUTH_IS_OFF: Final = "authentication is not enabled"


class Connection:
    """Calls to one cluster, over the endpoint that is in use.

    Args:
        endpoints: the members; closed with the connection.
        timeout: how long a call may take, in seconds.
        login: the user and the password; None for none.
        token: where there is no login, the token of somebody else's; asked for each call.
        moved: called after another endpoint or connection has come into use, from any thread.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        timeout: float,
        login: tuple[str, str] | None = None,
        token: Callable[[], str | None] = lambda: None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.endpoints: Final = endpoints
        self.timeout: Final = timeout
        self.moved = moved
        self._login = login
        self._foreign_token = token
        self._lock = threading.Lock()
        self._token: Promise[str | None] | None = None
        self._calls: set[grpc.RpcContext] = set()
        self._closed = False
        #: The newest state of the store that any answer or event has shown.
        self.revision = 0
        self.starter: Final = Starter()

    def saw(self, revision: int) -> None:
        """Something shows the store at ``revision``, so that nothing asked later may be older."""
        with self._lock:
            self.revision = max(self.revision, revision)

    def call(
        self,
        method: Method[Request, Reply],
        request: Request,
        *,
        timeout: float | None = None,
        at: Endpoint | None = None,
    ) -> Promise[Reply]:
        """Send ``request`` and promise the reply, within ``timeout`` seconds.

        With ``at``, only to that endpoint, whether it has a leader or not. Methods that are streams
        for etcd may be called too: one request and one reply look the same on the wire.
        """
        return _Call(self, method, request, timeout or self.timeout, at).start()

    def token(self) -> Future[str | None]:
        """The token to send, after a login where there was none; None when there is no need."""
        if self._login is None:
            return resolved(self._foreign_token())
        with self._lock:
            if self._token is not None:
                return self._token
            token: Promise[str | None] = Promise()
            self._token = token
        user, password = self._login
        request = pb.AuthenticateRequest(name=user, password=password)
        answer = _Call(self, AUTHENTICATE, request, self.timeout, None, anonymous=True).start()
        answer.add_done_callback(lambda future: self._logged_in(token, future))
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
        self.endpoints.close()

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

    def _logged_in(
        self, token: Promise[str | None], answer: Future[pb.AuthenticateResponse]
    ) -> None:
        error = answer.exception()
        if error is None:
            token.resolve(answer.result().token)
        elif _AUTH_IS_OFF in str(error):
            # As etcd's own client does: credentials don't hurt where nobody asks for them.
            log.warning("etcd: credentials are configured, but authentication is not enabled")
            token.resolve(None)
        else:
            with self._lock:
                self._token = None
            token.fail(error)


class _Call(Generic[Request, Reply]):
    """One call, over as many attempts as it takes; advanced by gRPC's callbacks."""

    def __init__(
        self,
        connection: Connection,
        method: Method[Request, Reply],
        request: Request,
        timeout: float,
        at: Endpoint | None,
        anonymous: bool = False,
    ) -> None:
        self._connection = connection
        self._method = method
        self._request = request
        self._deadline = time.monotonic() + timeout
        self._at = at
        self._anonymous = anonymous
        self._hosts_left = 1 if at else len(connection.endpoints.all)
        self._may_log_in = not anonymous
        self._promise: Promise[Reply] = Promise()

    def start(self) -> Promise[Reply]:
        self._log_in()
        return self._promise

    def _log_in(self) -> None:
        nobody: Future[str | None] = resolved(None)
        token = nobody if self._anonymous else self._connection.token()
        token.add_done_callback(self._send)

    def _send(self, token: Future[str | None]) -> None:
        if (error := token.exception()) is not None:
            self._promise.fail(error)
            return
        self._connection.starter.run(lambda: self._start(token.result()))

    def _start(self, token: str | None) -> None:
        try:
            self._attempt(token)
        except Exception as refused:
            # ValueError on a closed channel, and what gRPC likes at the interpreter's end.
            reason = "the client is closed" if self._connection.closed else str(refused)
            self._promise.fail(BackendUnavailable(SERVICE, reason))

    def _attempt(self, token: str | None) -> None:
        connection, method = self._connection, self._method
        endpoint = self._at or connection.endpoints.current
        connection.check()
        channel = endpoint.channel
        call = channel.unary_unary(method.path, method.encode, method.decode).future(
            self._request,
            timeout=max(0.0, self._deadline - time.monotonic()),
            metadata=connection.metadata(token, anywhere=self._at is not None),
        )
        connection.follow(call)
        call.add_done_callback(lambda _: self._done(endpoint, channel, token, call))

    def _done(
        self, endpoint: Endpoint, channel: grpc.Channel, token: str | None, call: Any
    ) -> None:
        self._connection.forsake(call)
        try:
            self._judge(endpoint, channel, token, call)
        except Exception as error:
            self._promise.fail(BackendUnavailable(SERVICE, repr(error)))

    def _judge(
        self, endpoint: Endpoint, channel: grpc.Channel, token: str | None, call: Any
    ) -> None:
        code, details = call.code(), call.details() or ""
        if code is grpc.StatusCode.OK:
            reply = call.result()
            self._connection.saw(reply.header.revision)
            self._promise.resolve(reply)
            return
        if self._may_log_in and needs_login(code, details) and self._connection.forget(token):
            # Refused before it did anything, so any request may be sent again.
            self._may_log_in = False
            self._log_in()
            return
        if self._at is None and is_elsewhere(code, details):
            silent = code is grpc.StatusCode.DEADLINE_EXCEEDED
            self._connection.leave(endpoint, channel, silent=silent)
            self._hosts_left -= 1
            if self._hosts_left and had_no_effect(code, details):
                self._log_in()
                return
        if self._connection.closed:
            self._promise.fail(BackendUnavailable(SERVICE, "the client is closed"))
        else:
            self._promise.fail(translate(code, details, endpoint.host))
