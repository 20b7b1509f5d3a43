"""One call to a cluster, over as many attempts as it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from coordlock.errors import BackendError, BackendUnavailable, CoordlockError
from coordlock.runtime.promise import Promise
from coordlock_etcd.endpoints import Endpoint
from coordlock_etcd.errors import SERVICE, had_no_effect, is_elsewhere, needs_login, translate
from coordlock_etcd.rpc import Method

if TYPE_CHECKING:
    from coordlock_etcd.connection import Connection

__all__ = ["Call", "settle"]

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)
Result = TypeVar("Result")


def settle(
    promise: Promise[Result], read: Callable[[Reply], Result | Future[Result]], reply: Reply
) -> None:
    """Complete ``promise`` with what ``read`` makes of ``reply``: see `Connection.call`."""
    try:
        result = read(reply)
    except CoordlockError as error:
        promise.fail(error)
    except Exception as error:
        # An answer that makes no sense must not pass for an error of the caller's.
        promise.fail(BackendError(SERVICE, f"unexpected answer: {error!r}"))
    else:
        if isinstance(result, Future):
            result.add_done_callback(promise.follow)
        else:
            promise.resolve(result)


class Call(Generic[Request, Reply, Result]):
    """One call; its attempts follow each other, in threads of the starter's and of gRPC's.

    Args:
        message: gives the method and the request, when they are sent, in the thread that does it.
        read: as for `Connection.call`, like the others.
        anonymous: send no token.
    """

    __slots__ = (
        *("_anonymous", "_at", "_channel", "_connection", "_deadline", "_endpoint", "_hosts_left"),
        *("_is_expected", "_may_log_in", "_message", "_promise", "_read", "_token"),
    )

    def __init__(
        self,
        connection: Connection,
        message: Callable[[], tuple[Method[Request, Reply], Request]],
        read: Callable[[Reply], Result | Future[Result]],
        timeout: float,
        at: Endpoint | None = None,
        anonymous: bool = False,
    ) -> None:
        self._connection = connection
        self._message = message
        self._read = read
        self._deadline = time.monotonic() + timeout
        self._at = at
        self._anonymous = anonymous
        self._hosts_left = 1 if at else len(connection.endpoints.all)
        self._may_log_in = not anonymous
        self._promise: Promise[Result] = Promise()
        # Of the attempt under way:
        self._token: str | None = None
        self._endpoint = connection.endpoints.current
        self._channel: grpc.Channel | None = None
        self._is_expected = False

    def begin(self) -> Promise[Result]:
        """Make the first attempt; what will come of all."""
        self._log_in()
        return self._promise

    def _log_in(self) -> None:
        if self._anonymous:
            self._attempt()
        elif self._connection.logs_in:
            self._connection.token().add_done_callback(self._logged_in)
        else:
            self._token = self._connection.foreign_token()
            self._attempt()

    def _logged_in(self, token: Future[str | None]) -> None:
        if (error := token.exception()) is not None:
            self._promise.fail(error)
        else:
            self._token = token.result()
            self._attempt()

    def _attempt(self) -> None:
        # Closing leaves a given channel alone, and so can cancel only what was started.
        given = self._connection.endpoints.current.is_given
        self._connection.starter.run(None if given else self._block, self._start)

    def _block(self) -> Callable[[], None]:
        try:
            stub, request = self._prepared()
            reply = stub(request, **self._terms())
        except grpc.RpcError as error:
            return partial(self._conclude, error)
        except Exception as refused:
            return partial(self._refuse, refused)
        return partial(self._succeed, reply)

    def _start(self) -> None:
        try:
            self._connection.check()
            stub, request = self._prepared()
            call = stub.future(request, **self._terms())
        except Exception as refused:
            self._refuse(refused)
        else:
            self._connection.follow(call)
            call.add_done_callback(self._done)

    def _prepared(self) -> tuple[Any, Request]:
        """What makes the call, and of what."""
        if self._connection.closed:
            raise ValueError("the client is closed")
        method, request = self._message()
        self._endpoint = self._at or self._connection.endpoints.current
        self._channel, stub = self._endpoint.stub(method)
        self._is_expected = method.is_logged
        if self._is_expected:
            self._connection.lookout.expect(self)
        return stub, request

    def _terms(self) -> dict[str, Any]:
        metadata = self._connection.metadata(self._token, anywhere=self._at is not None)
        return {"timeout": max(0.0, self._deadline - time.monotonic()), "metadata": metadata}

    def give_up(self) -> None:
        """The request was lost with the leader. What may still come of it counts for nothing."""
        reason = f"{self._endpoint.host}: no answer, and the cluster has another leader now"
        self._promise.fail(BackendUnavailable(SERVICE, reason))

    def _was_given_up(self) -> bool:
        return self._is_expected and not self._connection.lookout.answered(self)

    def _refuse(self, refused: Exception) -> None:
        # ValueError on a closed channel, and what gRPC likes at the interpreter's end.
        self._was_given_up()
        reason = "the client is closed" if self._connection.closed else str(refused)
        self._promise.fail(BackendUnavailable(SERVICE, reason))

    def _done(self, call: Any) -> None:
        self._connection.forsake(call)
        try:
            reply = call.result()
        except Exception:  # the call itself, or that it was cancelled
            self._conclude(call)
        else:
            self._succeed(reply)

    def _succeed(self, reply: Any) -> None:
        self._connection.saw(reply.header.revision)
        self._connection.lookout.saw(reply.header.raft_term)
        if self._was_given_up():
            return
        settle(self._promise, self._read, reply)

    def _conclude(self, call: Any) -> None:
        if self._was_given_up():
            return
        try:
            self._judge(call.code(), call.details() or "")
        except Exception as error:
            self._promise.fail(BackendUnavailable(SERVICE, repr(error)))

    def _judge(self, code: grpc.StatusCode, details: str) -> None:
        connection = self._connection
        if self._may_log_in and needs_login(code, details) and connection.forget(self._token):
            # Refused before it did anything, so any request may be sent again.
            self._may_log_in = False
            self._log_in()
            return
        if self._at is None and is_elsewhere(code, details):
            assert self._channel is not None
            silent = code is grpc.StatusCode.DEADLINE_EXCEEDED
            connection.leave(self._endpoint, self._channel, silent=silent)
            self._hosts_left -= 1
            if self._hosts_left and had_no_effect(code, details):
                self._log_in()
                return
        if connection.closed:
            self._promise.fail(BackendUnavailable(SERVICE, "the client is closed"))
        else:
            self._promise.fail(translate(code, details, self._endpoint.host))
