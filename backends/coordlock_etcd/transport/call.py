"""One call to a cluster, over as many attempts as it takes, and the threads that make calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from coordlock.errors import BackendError, BackendUnavailable, CoordlockError
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.process import PROCESS, THREAD
from coordlock.runtime.promise import Promise
from coordlock.runtime.worker import Worker
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
from coordlock_etcd.rpc import Method
from coordlock_etcd.transport.cluster import Cluster, Endpoint
from coordlock_etcd.transport.login import TokenSource

__all__ = ["SHORT_ATTEMPTS", "SILENCE_S", "Call", "CallThreads", "metadata", "settle"]

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)
Result = TypeVar("Result")

Action = Callable[[], None]

_DEADLINE_EXCEEDED: Final = grpc.StatusCode.DEADLINE_EXCEEDED
#: Seconds of silence after which a request is sent again that may be.
SILENCE_S: Final = 1.5
#: How many attempts of a call are given up after that. The next one has all the time that is left:
#: an answer may take longer than `SILENCE_S`.
SHORT_ATTEMPTS: Final = 2
#: Seconds without calls after which the threads for them end.
IDLE_S: Final = 60.0
#: Seconds before a call's deadline in which gRPC may give it up.
_EARLY_S: Final = 0.2
#: A member without a leader fails such calls at once, instead of letting them wait for one.
_HAS_LEADER: Final = ("hasleader", "true")


def metadata(token: str | None, *, anywhere: bool = False) -> tuple[tuple[str, str], ...]:
    """What accompanies a call; ``anywhere`` lets members without a leader answer it."""
    who = () if token is None else (("token", token),)
    return who if anywhere else (_HAS_LEADER, *who)


def settle(
    promise: Promise[Result], read: Callable[[Reply], Result | Promise[Result]], reply: Reply
) -> None:
    """Complete ``promise`` with what ``read`` makes of ``reply``: see `Connection.call`."""
    try:
        result = read(reply)
    except CoordlockError as error:
        promise.fail(error)
    except Exception as error:
        # An answer that makes no sense must not pass for an error of the caller.
        promise.fail(BackendError(SERVICE, f"unexpected answer: {error!r}"))
    else:
        if isinstance(result, Promise):
            result.add_done_callback(promise.follow)
        else:
            promise.resolve(result)


class Call(Generic[Request, Reply, Result]):
    """One call; its attempts follow each other, in threads of `CallThreads` and of gRPC.

    Args:
        login: gives the token to send; None to send none.
        read: as for `Connection.call`, like ``once`` and the others.
    """

    def __init__(
        self,
        cluster: Cluster,
        threads: CallThreads,
        login: TokenSource | None,
        method: Method[Request, Reply],
        request: Request,
        read: Callable[[Reply], Result | Promise[Result]],
        timeout: float,
        at: Endpoint | None = None,
        *,
        once: bool = False,
    ) -> None:
        self._cluster = cluster
        self._threads = threads
        self._login = login
        self._method = method
        self._request = request
        self._read = read
        self._deadline = SYSTEM_CLOCK.now() + timeout
        #: The answer may not be older than what was seen by now.
        self._seen = cluster.revision if method.is_linearizable else 0
        self._at = at
        self._hosts_left = 1 if at else len(cluster.endpoints)
        self._short_attempts = 0 if once else SHORT_ATTEMPTS
        self._may_log_in = True
        #: What kept it from the hosts that it has tried so far.
        self._unreached: list[str] = []
        self._promise: Promise[Result] = Promise()
        # Of the attempt under way:
        self._token: str | None = None
        self._endpoint = cluster.current
        self._channel: grpc.Channel | None = None
        self._sent = self._until = 0.0

    def begin(self) -> Promise[Result]:
        """Make the first attempt; the promise of the answer."""
        self._log_in()
        return self._promise

    def _log_in(self) -> None:
        if self._login is None:
            self._attempt()
        else:
            self._login.token().add_done_callback(self._logged_in)

    def _logged_in(self, token: Promise[str | None]) -> None:
        if (error := token.exception()) is not None:
            self._promise.fail(error)
        else:
            self._token = token.result()
            self._attempt()

    def _attempt(self) -> None:
        refuse = partial(self._refuse, "no thread can be started")
        self._threads.run(self._block, self._start, refuse)

    def _block(self) -> Callable[[], None]:
        try:
            reply = self._stub()(self._request, **self._terms())
        except grpc.RpcError as error:
            return partial(self._conclude, error)
        except Exception as refused:
            return partial(self._refuse, refused)
        return partial(self._succeed, reply)

    def _start(self) -> None:
        try:
            self._cluster.admit()
            call = self._stub().future(self._request, **self._terms())
        except Exception as refused:
            self._refuse(refused)
        else:
            call.add_done_callback(partial(self._done, threading.get_ident()))

    def _stub(self) -> Any:
        """What makes the call."""
        if self._cluster.closed:
            raise ValueError("the client is closed")
        self._endpoint = self._at or self._cluster.current
        self._channel, stub = self._endpoint.stub(self._method)
        return stub

    def _terms(self) -> dict[str, Any]:
        self._sent = now = SYSTEM_CLOCK.now()
        is_short = self._short_attempts and now + SILENCE_S < self._deadline
        self._until = now + SILENCE_S if is_short else max(now, self._deadline)
        carried = metadata(self._token, anywhere=self._at is not None)
        return {"timeout": self._until - now, "metadata": carried}

    def _refuse(self, refused: Exception | str) -> None:
        # ValueError on a closed channel, and what gRPC raises at the interpreter's end.
        reason = "the client is closed" if self._cluster.closed else str(refused)
        self._promise.fail(BackendUnavailable(SERVICE, reason))

    def _done(self, starter: int, call: Any) -> None:
        if threading.get_ident() != starter:  # gRPC's thread, which brings all other answers, too
            THREAD.must_not_wait = True
        try:
            reply = call.result()
        except Exception:  # the call has failed, or was cancelled
            self._conclude(call)
        else:
            self._succeed(reply)

    def _succeed(self, reply: Any) -> None:
        self._endpoint.answered()
        if reply is None:  # for gRPC that is a success, too
            self._refuse(f"{self._endpoint.host}: the answer came without its message")
            return
        if reply.header.revision < self._seen:
            # Servers before 3.4.42, 3.5.28 and 3.6.9 may show the past after a pause.
            self._cluster.saw_older(reply.header.revision)
            self._refuse("the answer is older than what was seen before")
            return
        self._cluster.saw(reply.header.revision)
        settle(self._promise, self._read, reply)

    def _conclude(self, call: Any) -> None:
        try:
            self._judge(call.code(), call.details() or "")
        except Exception as error:
            self._promise.fail(BackendUnavailable(SERVICE, repr(error)))

    def _judge(self, code: grpc.StatusCode, details: str) -> None:
        login = self._login if self._may_log_in else None
        is_refused = needs_login(code, details, had_token=self._token is not None)
        if login is not None and is_refused:
            login.forget(self._token)
            # etcd refused the request before it did anything, so any may be sent again.
            self._may_log_in = False
            self._log_in()
            return
        if (early := self._until - SYSTEM_CLOCK.now()) > _EARLY_S and code is _DEADLINE_EXCEEDED:
            self._promise.fail(clock_is_wrong(early))
            return
        is_silent = is_silence(code, details)
        is_usable = is_silent and not self._endpoint.is_silent_again(self._sent, self._channel)
        if self._at is None and is_elsewhere(code, details) and not is_usable:
            assert self._channel is not None
            is_stuck = is_silent or is_unresolved(code, details)
            self._cluster.fail_over(self._endpoint, self._channel, is_stuck=is_stuck)
            self._hosts_left -= 1
            if self._hosts_left and had_no_effect(code, details):
                self._unreached.append(self._error(code, details).reason)
                self._log_in()
                return
        if is_silent and SYSTEM_CLOCK.now() < self._deadline and self._short_attempts:
            self._short_attempts -= 1
            self._log_in()
            return
        if self._cluster.closed:
            self._promise.fail(client_closed())
            return
        error = self._error(code, details)
        if self._unreached and isinstance(error, BackendUnavailable):
            error = BackendUnavailable(SERVICE, "; ".join([*self._unreached, error.reason]))
        self._promise.fail(error)

    def _error(self, code: grpc.StatusCode, details: str) -> BackendError:
        endpoint = self._endpoint
        return translate(code, details, endpoint.host, has_answered=endpoint.has_answered)


class CallThreads:
    """Two threads that make calls: one blocks for a call, the other starts calls.

    Signal handlers run in the main thread, between any two steps of Python code. gRPC's Python code
    takes its channel's lock in such steps: a KeyboardInterrupt there leaves the lock taken, and all
    callers that need the channel waiting for good. Handing over is one step of C.

    A call that blocks costs much less than a call that is started: for the latter, gRPC starts a
    thread where no other call is under way, and hands the answer over to it. So the first call
    blocks the thread for that, and other calls are started meanwhile.
    """

    def __init__(self) -> None:
        self._calls: Final = Worker("coordlock-etcd-call", IDLE_S, must_not_wait=True)
        self._starts: Final = Worker("coordlock-etcd-start", IDLE_S, must_not_wait=True)
        #: Taken while a call blocks the thread for that. If Ctrl-C strikes between taking it and
        #: handing over, it stays taken, and all calls are started.
        self._calling: Final = threading.Lock()
        self._closed = False
        self._pid = PROCESS.id

    def run(self, call: Callable[[], Action], start: Action, refuse: Action) -> None:
        """Make a call: by ``call`` and then what it returns, or by ``start``. Never blocks.

        ``call`` blocks, so it runs in a thread for such calls, if that one is free. Otherwise
        ``start`` runs, perhaps in the caller's thread unless that is the main one. If no thread
        can be started, only ``refuse`` runs, because the caller must not wait. The three functions
        must not raise.
        """
        if self._closed or PROCESS.id != self._pid:  # which has no such threads
            start()
        elif self._calling.acquire(blocking=False):
            self._calls.run(partial(self._call, call, refuse))
        elif threading.current_thread() is threading.main_thread():
            self._starts.run(lambda: start() if self._starts.has_thread else refuse())
        else:
            start()

    def close(self) -> None:
        """Let the threads end, after what was handed over."""
        self._closed = True
        self._calls.end()
        self._starts.end()

    def join(self, timeout: float) -> None:
        """Wait for the thread in which a call may be under way, for up to ``timeout`` seconds."""
        self._calls.finish(timeout)

    def _call(self, call: Callable[[], Action], refuse: Action) -> None:
        # At the interpreter's end no thread can be started, and no event loop waits.
        may_block = self._calls.has_thread or not threading.main_thread().is_alive()
        finish = call() if may_block else refuse
        # A callback of the answer may want the thread next.
        self._calling.release()
        finish()
