"""Requests that go to etcd together, in one transaction: one entry of its log, one answer.

No request waits for others. It is handed over to a thread, and what is asked before that thread
gets to it, or while it waits for a login, goes along: the busier the process, the larger the batch.
The price of a call and of an entry of the log is paid once for the whole batch.

Why each request is answered as if it had gone alone:

- A transaction is done as a whole or not at all. Where a condition does not hold, or etcd refuses a
  request, nothing was done, and each request is sent by itself. Only a transaction that takes the
  last of etcd's space is done and yet refused. To create twice is to find what is there. To find
  nothing to delete tells nothing then, so it is not told.
- A batch has one request for a queue at most. So creation revisions in a queue differ, and no other
  request of the batch changes what a request sees of its queue.
- Creations and deletions go in separate batches. etcd refuses to create without space or without
  the lease, and must not refuse to delete for that.

A lost answer leaves all requests of a batch in doubt, as each would have been alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from coordlock.errors import AuthenticationFailed, BackendUnavailable, TooLarge
from coordlock.runtime.promise import Promise
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE, NoSpace, NotPermitted
from coordlock_etcd.requests import Request
from coordlock_etcd.rpc import TXN, Method
from coordlock_etcd.transport.call import settle
from coordlock_etcd.transport.connection import Connection

__all__ = ["Batches"]

Result = TypeVar("Result")

#: How many requests go together at most. An enqueue takes two operations.
_MOST: Final = requests.MAX_OPERATIONS // 2
#: How long a batch takes requests, as a share of what a request may take: all have the time of the
#: first. Only a batch that waits for a login is open for so long.
_GATHERS: Final = 0.1


class Batches(Generic[Result]):
    """Sends requests of one kind by ``method``, or several together."""

    def __init__(self, connection: Connection, method: Method[Any, Any]) -> None:
        self.connection: Final = connection
        self.method: Final = method
        #: How many requests go together at most: fewer, once a batch was too large for the server.
        self.most = _MOST
        # Re-entrant, because a signal handler may ask for more.
        self.lock: Final = threading.RLock()
        self._newest: _Batch[Result] | None = None

    def call(
        self, queue: str, request: Request, read: Callable[[Any], Result | Promise[Result]]
    ) -> Promise[Result]:
        """As `Connection.call`, for a request that concerns only ``queue``."""
        part = _Part(request, read)
        batch = self._newest
        if batch is None or not batch.add(queue, part):
            batch = _Batch(self, queue, part)
            batch.send()
            # Only now, for Ctrl-C may keep a batch from being handed over.
            self._newest = batch
        return part.promise


class _Part(Generic[Result]):
    """One request."""

    __slots__ = ("promise", "read", "request")

    def __init__(self, request: Request, read: Callable[[Any], Result | Promise[Result]]) -> None:
        self.request = request
        self.read = read
        self.promise: Promise[Result] = Promise()

    def read_again(self, reply: Any) -> Result | Promise[Result]:
        """What ``reply`` means if etcd may have done the request before."""
        result = self.read(reply)
        if result is False:  # nothing was there to delete, perhaps because it was done
            raise BackendUnavailable(SERVICE, "space was exceeded; it may have been deleted")
        return result


class _Batch(Generic[Result]):
    """Requests that go together."""

    def __init__(self, owner: Batches[Result], queue: str, first: _Part[Result]) -> None:
        self._owner = owner
        self._parts = {queue: first}
        self._room = owner.most - 1
        self._begun = time.monotonic()
        self._sealed = False

    def add(self, queue: str, part: _Part[Result]) -> bool:
        """Take ``part`` along; False if it is too late, or not possible."""
        is_late = time.monotonic() - self._begun > self._owner.connection.timeout * _GATHERS
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
        self._owner.connection.send(self._message, self._read).add_done_callback(self._ended)

    def _message(self) -> tuple[Method[Any, Any], Request]:
        self._seal()
        if len(self._parts) == 1:
            [part] = self._parts.values()
            return self._owner.method, part.request
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
        left = self._begun + self._owner.connection.timeout - time.monotonic()
        for part in parts:
            read = part.read_again if isinstance(error, NoSpace) else part.read
            alone = self._owner.connection.call(
                self._owner.method, part.request, read, timeout=max(left, 0.001)
            )
            alone.add_done_callback(part.promise.follow)


def _was_refused(error: BaseException) -> bool:
    """Whether etcd did nothing because of a request, perhaps of one of many."""
    if isinstance(error, AuthenticationFailed):
        return isinstance(error, NotPermitted)
    return not isinstance(error, BackendUnavailable)
