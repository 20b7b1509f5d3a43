"""Requests that are not sent at once, each by itself: some wait for others, some go with others.

`Limiter`: a queue has only a few requests under way. `Batches`: requests of several queues go to
etcd together, in one transaction: one entry of its log, one answer.

No timer delays a batch. A thread sends it, and takes along what callers ask for until it gets to
that, or while it waits for a login: the busier the process, the larger the batch. The whole batch
costs one call and one entry of the log.

Why each request is answered as if it had gone alone:

- A transaction is done as a whole or not at all. Where a condition does not hold, or etcd refuses a
  request, nothing was done, and each request is sent by itself. Only a transaction that takes the
  last of etcd's space is done and yet refused, so that error is the answer to all.
- A batch has one request for a queue at most. So creation revisions in a queue differ, and no other
  request of the batch changes what a request sees of its queue.
- Creations and deletions go in separate batches. etcd refuses to create without space or without
  the lease, and must not refuse to delete for that.

A lost answer leaves the outcome of all requests of a batch unknown, as it would for each alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from coordlock.errors import AuthenticationFailed, BackendUnavailable, TooLarge
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE, NoSpace, NotPermitted
from coordlock_etcd.rpc import TXN, Method
from coordlock_etcd.transport.call import settle
from coordlock_etcd.transport.connection import Connection

__all__ = ["Batches", "Limiter"]

Result = TypeVar("Result")

#: How many requests go together at most. An enqueue takes two operations.
_MAX_BATCH: Final = requests.MAX_OPERATIONS // 2
#: How long a batch takes requests, as a share of what a request may take: all have the time of the
#: first. Only a batch that waits for a login is open for so long.
_GATHERING_SHARE: Final = 0.1


class _Queue(Generic[Result]):
    """The requests for one queue."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way: dict[Promise[Result], None] = {}
        self.waiting: deque[tuple[Callable[[], Promise[Result]], Promise[Result]]] = deque()


class Limiter(Generic[Result]):
    """Lets ``most`` requests for a queue be under way; others wait for their turn, in order.

    etcd looks at a whole queue to find its end, so thousands of requests for one queue at once
    would keep it busy for minutes: requests would time out, heartbeats too. Here they wait unsent.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._lock = threading.RLock()
        self._queues: dict[str, _Queue[Result]] = {}

    def submit(self, queue: str, send: Callable[[], Promise[Result]]) -> Promise[Result]:
        """The answer to what ``send`` sends, here and now or when others have been answered."""
        with self._lock:
            state = self._queues.get(queue)
            if state is not None and (state.waiting or len(state.under_way) >= self._most):
                # Ctrl-C may have kept an answer from passing its turn on.
                state.under_way = {one: None for one in state.under_way if not one.done()}
                if len(state.under_way) >= (1 if state.waiting else self._most):
                    # A request that is under way will pass its turn on, under this lock.
                    promise: Promise[Result] = Promise()
                    state.waiting.append((send, promise))
                    return promise
        answer = send()
        if not answer.done():
            state = _Queue()
            # Nothing is called under the lock, where a signal handler could run and wait for an
            # answer that needs it.
            with self._lock:
                if queue not in self._queues:
                    self._queues[queue] = state
                self._queues[queue].under_way[answer] = None
            self._pass_on_after(queue, answer)
        return answer

    def _pass_on_after(self, queue: str, answer: Promise[Result]) -> None:
        # At once, if it has been answered meanwhile.
        answer.add_done_callback(lambda answered: self._pass_on(queue, answered))

    def _pass_on(self, queue: str, answered: Promise[Result]) -> None:
        """Give the turn to the next request, or to the one after it if that fails at once."""
        while (turn := self._next(queue, answered)) is not None:
            send, promise = turn
            answered = promise
            try:
                send().add_done_callback(promise.follow)
            except BaseException as error:
                promise.fail(BackendUnavailable(SERVICE, f"the request was not sent: {error!r}"))
                if not isinstance(error, Exception):
                    self._pass_on(queue, promise)
                    raise  # Ctrl-C is for the caller
            if not promise.done():
                self._pass_on_after(queue, promise)
                return

    def _next(
        self, queue: str, answered: Promise[Result]
    ) -> tuple[Callable[[], Promise[Result]], Promise[Result]] | None:
        with self._lock:
            state = self._queues.get(queue)
            if state is None:
                return None
            state.under_way.pop(answered, None)
            if state.waiting:
                send, promise = state.waiting.popleft()
                state.under_way[promise] = None
                return send, promise
            if not state.under_way:
                del self._queues[queue]
            return None


class Batches(Generic[Result]):
    """Sends requests of one kind, alone or several together."""

    def __init__(self, connection: Connection) -> None:
        self.connection: Final = connection
        #: How many requests go together at most: fewer, once a batch was too large for the server.
        self.most = _MAX_BATCH
        # Re-entrant, because a signal handler may ask for more.
        self.lock: Final = threading.RLock()
        self._newest: _Batch[Result] | None = None

    def call(
        self,
        queue: str,
        request: pb.TxnRequest,
        read: Callable[[Any], Result | Promise[Result]],
        timeout: float,
    ) -> Promise[Result]:
        """As `Connection.call` with ``once``, for a request that concerns only ``queue``."""
        part = _Part(request, read)
        batch = self._newest
        if batch is None or batch.timeout != timeout or not batch.add(queue, part):
            batch = _Batch(self, queue, part, timeout)
            batch.send()
            # Only now, for Ctrl-C may keep a batch from being handed over.
            self._newest = batch
        return part.promise


class _Part(Generic[Result]):
    """One request."""

    __slots__ = ("promise", "read", "request")

    def __init__(
        self, request: pb.TxnRequest, read: Callable[[Any], Result | Promise[Result]]
    ) -> None:
        self.request = request
        self.read = read
        self.promise: Promise[Result] = Promise()


class _Batch(Generic[Result]):
    """Requests that go together."""

    def __init__(
        self, owner: Batches[Result], queue: str, first: _Part[Result], timeout: float
    ) -> None:
        self.timeout: Final = timeout
        self._owner = owner
        self._parts = {queue: first}
        self._room = owner.most - 1
        self._begun = SYSTEM_CLOCK.now()
        self._sealed = False

    def add(self, queue: str, part: _Part[Result]) -> bool:
        """Take ``part`` along; False if it is too late, or not possible."""
        is_late = SYSTEM_CLOCK.now() - self._begun > self.timeout * _GATHERING_SHARE
        # Nothing is called under the lock: a signal handler would run there, which may ask for the
        # same queue, or wait for an answer that needs the lock.
        with self._owner.lock:
            if is_late or self._sealed or not self._room or queue in self._parts:
                return False
            self._parts[queue] = part
            self._room -= 1
            return True

    def send(self) -> None:
        """Hand the batch over. It takes requests until it is on its way."""
        self._owner.connection.send(
            self._message, self._read, timeout=self.timeout, once=True
        ).add_done_callback(self._ended)

    def _message(self) -> tuple[Method[Any, Any], pb.TxnRequest]:
        self._seal()
        if len(self._parts) == 1:
            [part] = self._parts.values()
            return TXN, part.request
        return TXN, requests.together([part.request for part in self._parts.values()])

    def _seal(self) -> None:
        with self._owner.lock:
            self._sealed = True

    def _read(self, reply: Any) -> bool:
        """Answer each request; False if etcd has done none of them."""
        parts = list(self._parts.values())
        if len(parts) == 1:
            answers = [reply]
        elif reply.succeeded:
            answers = list(requests.apart([part.request for part in parts], reply))
        else:
            return False
        for part, answer in zip(parts, answers, strict=True):
            settle(part.promise, part.read, answer)
        return True

    def _ended(self, answer: Promise[bool]) -> None:
        self._seal()  # the batch may never have been sent
        parts = list(self._parts.values())
        self._parts = {}
        error = answer.exception()
        if error is None and answer.result():
            return
        if error is not None and (len(parts) == 1 or not _was_refused(error)):
            for part in parts:
                part.promise.fail(error)
            return
        if isinstance(error, TooLarge):
            self._owner.most = max(1, len(parts) // 2)
        left = self._begun + self.timeout - SYSTEM_CLOCK.now()
        for part in parts:
            alone = self._owner.connection.call(
                TXN, part.request, part.read, timeout=max(left, 0.001), once=True
            )
            alone.add_done_callback(part.promise.follow)


def _was_refused(error: BaseException) -> bool:
    """Whether etcd did nothing because of a request, perhaps of one of many."""
    if isinstance(error, AuthenticationFailed):
        return isinstance(error, NotPermitted)
    return not isinstance(error, BackendUnavailable | NoSpace)
