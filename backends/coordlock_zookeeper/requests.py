"""Requests to ZooKeeper, and its answers as promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Create, Create2, Delete, Transaction
from kazoo.protocol.states import Callback

from coordlock.errors import TooLarge
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import SERVICE, translate

__all__ = ["EPHEMERAL", "SEQUENTIAL", "Answer", "CreateContainer", "Requests"]

#: Flags of a node that is made. kazoo has no names for them.
EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2
#: The longest request that a server takes, unless configured otherwise (jute.maxbuffer), in bytes.
#: It closes the connection on a longer one.
_MAX_REQUEST: Final = 0xFFFFF

#: What is asked for, None where there is no such node, and the last transaction that it shows.
Answer = tuple[Any, int]


class CreateContainer(Create2):  # type: ignore[misc]
    """A request for a node that the server removes after its last child has left.

    It is ZooKeeper's ``createContainer`` (since 3.5.1), which kazoo lacks. The opcode matters:
    servers accept ``create2`` with the same flags, but the node then never goes.
    """

    __slots__ = ()
    type = 19


class Requests:
    """Sends requests over one kazoo client.

    The server answers the requests of one connection in the order in which they were sent. Promises
    are completed in kazoo's I/O thread, between what the server has sent before the answer and what
    it sends after it. They fail with coordlock's errors.

    Args:
        client: the `KazooClient`.
        call: sends a request without blocking, and has its answer put into an object like kazoo's
            ``AsyncResult``.

    Attributes:
        chroot: the node below which a given client has all paths; empty for none.
    """

    def __init__(self, client: Any, call: Callable[[Any, Any], object] | None = None) -> None:
        self._client = client
        self.chroot: Final[str] = client.chroot
        self._call = client._call if call is None else call

    @property
    def are_possible(self) -> bool:
        """Whether there is a connection."""
        return bool(self._client.connected)

    def made(self, kind: Any, path: str, *arguments: object) -> Any:
        """A request of one of kazoo's kinds, which all begin with a path."""
        chroot = self.chroot
        return kind(f"{chroot}{path}".removesuffix("/") if chroot else path, *arguments)

    def ask(self, kind: Any, path: str, *arguments: object) -> Promise[Answer]:
        """Send a request of one of kazoo's kinds, which all begin with a path."""
        return self.send(self.made(kind, path, *arguments))

    def transact(self, operations: Sequence[Any]) -> Promise[Answer]:
        """Send a multi, of operations that were `made` before. Raises `TooLarge`."""
        request = Transaction(operations)
        size = len(request.serialize()) + 8
        if size > _MAX_REQUEST:
            raise TooLarge(
                SERVICE,
                f"a transaction of {size} bytes is too large; servers take {_MAX_REQUEST} at a "
                "time",
            )
        return self.send(request)

    def send(
        self, request: Any, then: Callable[[Promise[Answer]], object] | None = None
    ) -> Promise[Answer]:
        """Send a request that was `made` before; ``then`` is the promise's first callback."""
        promise: Promise[Answer] = Promise()
        if then is not None:
            promise.add_done_callback(then)  # before the answer can come
        self._call(request, _Reply(self._client, promise, request))
        return promise

    def after_events(self, action: Callable[..., object], *arguments: object) -> None:
        """Call ``action`` behind all events that came before the answer that is looked at."""
        # A given client has a thread of its own for events.
        self._client.handler.dispatch_callback(Callback("watch", action, arguments))


class _Reply:
    """Takes the answer to a request, in place of kazoo's ``AsyncResult``."""

    __slots__ = ("_client", "_promise", "_request")

    def __init__(self, client: Any, promise: Promise[Answer], request: Any) -> None:
        self._client = client
        self._promise = promise
        self._request = request

    def set(self, value: Any = None) -> None:
        # kazoo has noted before what the answer's head says.
        self._promise.resolve((value, self._client.last_zxid))

    def set_exception(self, error: Exception) -> None:
        if isinstance(error, NoNodeError):
            self.set()
        else:
            # kazoo fails all requests of a broken connection with one exception object. Raised as
            # it is, it would collect the traceback of each; so every request gets its own.
            self._promise.fail(translate(error, _decisive(self._request)))


def _decisive(request: Any) -> str:
    """The node whose ACL decides on ``request``; empty for what concerns several.

    The ACL of the parent decides who may create or delete a node.
    """
    path: str = getattr(request, "path", "")
    return (
        path.rpartition("/")[0] or "/" if isinstance(request, (Create, Create2, Delete)) else path
    )
