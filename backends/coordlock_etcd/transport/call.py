"""One attempt to make a call to a cluster."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from coordlock.errors import BackendUnavailable
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.rpc import Method
from coordlock_etcd.transport.cluster import Endpoint, check_threads
from coordlock_etcd.transport.threads import Action, CallThreads

__all__ = ["Attempt", "metadata"]

#: A member without a leader fails such calls at once, instead of letting them wait for one.
_HAS_LEADER: Final = ("hasleader", "true")


def metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """What accompanies a call."""
    return (_HAS_LEADER,) if token is None else (_HAS_LEADER, ("token", token))


class Attempt:
    """One attempt, which gRPC gives up after ``seconds``.

    Attributes:
        reply: fails with the `grpc.RpcError`, or with `BackendUnavailable` where gRPC makes no
            call.
        until: when gRPC gives it up.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        method: Method[Any, Any],
        request: Message,
        token: str | None,
        seconds: float,
    ) -> None:
        self.endpoint: Final = endpoint
        self.sent: Final = SYSTEM_CLOCK.now()
        self.until: Final = self.sent + seconds
        self.reply: Final[Promise[Any]] = Promise()
        self._method = method
        self._request = request
        self._terms: dict[str, Any] = {"timeout": seconds, "metadata": metadata(token)}

    def begin(self, threads: CallThreads) -> Promise[Any]:
        """Make it, in one of ``threads`` or in gRPC's; the reply."""
        threads.run(self._block, self._start, partial(self._refuse, "no thread can be started"))
        return self.reply

    def _block(self) -> Action:
        try:
            reply = self.endpoint.stub(self._method)(self._request, **self._terms)
        except grpc.RpcError as error:
            return partial(self.reply.fail, error)
        except Exception as refused:
            return partial(self._refuse, refused)
        return partial(self.reply.resolve, reply)

    def _start(self) -> None:
        try:
            check_threads()
            call = self.endpoint.stub(self._method).future(self._request, **self._terms)
        except Exception as refused:
            self._refuse(refused)
        else:
            call.add_done_callback(partial(self._done, threading.get_ident()))

    def _refuse(self, refused: Exception | str) -> None:
        # ValueError on a closed channel, and what gRPC raises at the interpreter's end.
        self.reply.fail(BackendUnavailable(SERVICE, str(refused)))

    def _done(self, starter: int, call: Any) -> None:
        if threading.get_ident() != starter:  # gRPC's thread, which brings all other answers, too
            THREAD.must_not_wait = True
        try:
            reply = call.result()
        except Exception:  # the call has failed, or was cancelled
            self.reply.fail(call)
        else:
            self.reply.resolve(reply)
