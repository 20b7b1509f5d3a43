"""The nodes above contenders: made when they are first needed, and gone when they are empty."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, settled
from coordlock_zookeeper.answers import above, full, promise_of
from coordlock_zookeeper.errors import NodeExists, NoNode, UnknownRequest

__all__ = ["CreateContainer", "Parents"]

#: How many queues' nodes are remembered.
_MOST_KNOWN: Final = 10_000
# A child that keeps the server from removing a queue's node, and its sequence with it, though
# another client made the node a container.
_KEEPER: Final = "keep-sequence"
_CONTAINER: Final = 4
_INT: Final = struct.Struct("!i")


class Parents:
    """The nodes of the queues under ``root``, and the nodes above them.

    Args:
        client: the `KazooClient`.
        root: the path under which the queues are; "" is the top.
        acl: of the nodes made.
        are_lasting: queues' nodes stay when they are empty, because in a new node the sequence
            would start again, and here it is the fencing token.
    """

    def __init__(self, client: Any, root: str, acl: Sequence[Any], *, are_lasting: bool) -> None:
        self._client = client
        self._root = root
        self._acl = acl
        self._are_lasting = are_lasting
        self._are_containers = not are_lasting
        #: The queues' nodes that exist as far as known, and "" for the root.
        self._known: set[str] = set()

    def create(self, queue: str) -> list[Promise[Any]]:
        """Send requests for the node ``queue`` and those above it, unless they are known."""
        if queue in self._known:
            return []
        client, acl = self._client, self._acl
        asked = []
        if "" not in self._known:
            parts = self._root.split("/")
            ancestors = ["/".join(parts[: end + 1]) for end in range(1, len(parts))]
            asked = [(client.create_async(one, acl=acl), one) for one in ancestors]
        if self._are_containers:
            container = client.handler.async_result()
            client._call(CreateContainer(full(client, queue), acl), container)
            asked.append((container, queue))
        else:
            asked.append((client.create_async(queue, acl=acl), queue))
        if self._are_lasting:
            keeper = f"{queue}/{_KEEPER}"
            asked.append((client.create_async(keeper, acl=acl), keeper))
        return [promise_of(answer, above(path)) for answer, path in asked]

    def check(self, created: Iterable[Promise[Any]]) -> Steps[None]:
        """Raise why ``created`` could not be made, unless another attempt may succeed."""
        for answer in created:
            yield settled(answer)
        were_containers = self._are_containers
        for answer in created:
            error = answer.exception()
            if isinstance(error, UnknownRequest) and were_containers:
                self._are_containers = False  # a server before 3.5
            elif not (error is None or isinstance(error, (NodeExists, NoNode))):
                raise error

    def remember(self, queues: Iterable[str]) -> None:
        """The nodes ``queues`` exist."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.update(queues, ("",))

    def forget(self, queues: Iterable[str]) -> None:
        """The nodes ``queues``, or the root, may be gone."""
        self._known.difference_update(queues, ("",))


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """A request for a node that the server removes after its last child has left.

    It is ZooKeeper's ``createContainer`` (opcode 19, since 3.5.1). kazoo has no call for it, but
    sends any object that has these attributes. The opcode matters: servers accept ``create2`` with
    the same flags, but the node then never goes. ``path`` includes the chroot.
    """

    path: str
    acl: Sequence[Any]
    type: ClassVar[int] = 19

    def serialize(self) -> bytes:
        """The request's body: path, empty data, ACL, flags."""
        parts = [_text(self.path), _INT.pack(0), _INT.pack(len(self.acl))]
        for one in self.acl:
            parts += [_INT.pack(one.perms), _text(one.id.scheme), _text(one.id.id)]
        parts.append(_INT.pack(_CONTAINER))
        return b"".join(parts)

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> bool:
        """The reply holds the path and the stat, which are not needed."""
        return True


def _text(text: str) -> bytes:
    if not text:
        return _INT.pack(-1)  # null, as kazoo sends it
    data = text.encode()
    return _INT.pack(len(data)) + data
