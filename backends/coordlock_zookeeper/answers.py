"""kazoo's answers as coordlock's promises."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Create, Create2, Delete

from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import translate

__all__ = ["Dated", "above", "ask", "full", "promise_of", "request"]

_BY_PARENT: Final = frozenset({Create.type, Create2.type, Delete.type})
#: What an answer says, None where there is no such node, and the last transaction that it shows.
Dated = tuple[Any, int]


def promise_of(result: Any, path: str = "") -> Promise[Any]:
    """A promise for ``result``, kazoo's ``AsyncResult``; it fails with coordlock's errors.

    ``path`` is the node whose ACL decides: an error names it.
    """
    promise: Promise[Any] = Promise()

    def answered(result: Any) -> None:
        # kazoo fails all requests of a broken connection with one exception object. Raised as it
        # is, it would collect the traceback of each; so every request gets an error of its own.
        error = result.exception
        if error is None:
            promise.resolve(result.value)
        else:
            promise.fail(translate(error, path))

    result.rawlink(answered)
    return promise


def request(client: Any, request: Any, promise: Promise[Any] | None = None) -> Promise[Any]:
    """Send ``request``, one of kazoo's own objects, whose path is a `full` one; see `promise_of`.

    It costs a part of what kazoo's methods do: for what each lock sends. ``promise`` is what is
    returned, where the caller has made it before.
    """
    promise = Promise() if promise is None else promise
    client._call(request, _Reply(client.handler, promise, _decides(request)))
    return promise


def ask(
    client: Any, request: Any, answered: Callable[[Promise[Dated]], None] | None = None
) -> Promise[Dated]:
    """Send ``request``, one of kazoo's own objects, whose path is a `full` one.

    ``answered`` is called in kazoo's I/O thread, between what the server has sent before the answer
    and what it sends after it.
    """
    promise: Promise[Dated] = Promise()
    if answered is not None:
        promise.add_done_callback(answered)  # before the answer can come
    client._call(request, _Answer(client, promise, _decides(request)))
    return promise


def full(client: Any, path: str) -> str:
    """What ``path`` is called in the whole tree; ``client`` may see a part of it only."""
    return path if not client.chroot else f"{client.chroot}{path}".removesuffix("/")


def above(path: str) -> str:
    """The node above ``path``: its ACL decides on creating and deleting that."""
    return path.rpartition("/")[0] or "/"


def _decides(request: Any) -> str:
    """The node whose ACL decides on ``request``; empty for what concerns several."""
    path: str = getattr(request, "path", "")
    return above(path) if getattr(request, "type", None) in _BY_PARENT else path


class _Reply:
    """Takes the answer to a request, in place of kazoo's ``AsyncResult``."""

    __slots__ = ("_handler", "_path", "_promise")

    def __init__(self, handler: Any, promise: Promise[Any], path: str) -> None:
        self._path = path
        self._handler = handler
        self._promise = promise

    def set(self, value: Any = None) -> None:
        self._complete(partial(self._promise.resolve, value))

    def set_exception(self, error: Exception) -> None:
        self._complete(partial(self._promise.fail, translate(error, self._path)))

    def _complete(self, complete: Callable[[], object]) -> None:
        if self._handler.running:
            self._handler.completion_queue.put(complete)
        else:
            complete()


class _Answer:
    """Takes the answer to a request, in place of kazoo's ``AsyncResult``, which has no date."""

    __slots__ = ("_client", "_path", "_promise")

    def __init__(self, client: Any, promise: Promise[Dated], path: str) -> None:
        self._path = path
        self._client = client
        self._promise = promise

    def set(self, value: Any = None) -> None:
        # kazoo has noted before what the answer's head says.
        self._promise.resolve((value, self._client.last_zxid))

    def set_exception(self, error: Exception) -> None:
        if isinstance(error, NoNodeError):
            self.set()
        else:
            self._promise.fail(translate(error, self._path))
