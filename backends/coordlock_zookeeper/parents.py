"""The nodes above contenders: made when they are first needed, and gone when they are empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from kazoo.protocol.serialization import Create

from coordlock.errors import BackendError
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import SERVICE, NodeExists
from coordlock_zookeeper.requests import Answer, CreateContainer, Requests

__all__ = ["Parents"]

#: How many queues' nodes are remembered.
_MOST_KNOWN: Final = 10_000
#: The flag of a container. kazoo has no name for it.
_CONTAINER: Final = 4


class Parents:
    """The nodes of the queues under ``root``, and the nodes above them.

    Args:
        root: the path under which the queues are; "" is the top.
        acl: of the nodes made.
    """

    def __init__(self, requests: Requests, root: str, acl: Sequence[Any]) -> None:
        self._ask = requests.ask
        self._chroot = requests.chroot
        self._root = root
        self._acl = acl
        #: The queues' nodes that exist as far as known, and "" for the root.
        self._known: set[str] = set()

    def create(self, queue: str) -> list[Promise[Answer]]:
        """Send requests for the node ``queue`` and those above it, unless they are known."""
        if queue in self._known:
            return []
        missing = []
        if "" not in self._known:
            parts = self._root.split("/")
            missing = ["/".join(parts[: end + 1]) for end in range(1, len(parts))]
        created = [self._ask(Create, path, b"", self._acl, 0) for path in missing]
        created.append(self._ask(CreateContainer, queue, b"", self._acl, _CONTAINER))
        return created

    def check(self, created: Sequence[Promise[Answer]]) -> Steps[None]:
        """Raise why ``created`` could not be made, unless another attempt may succeed."""
        for answer in created:
            with suppress(NodeExists):
                made, _ = yield answer
                if made is None and answer is created[0] and "" not in self._known:
                    # It is at the top of what this client sees.
                    raise BackendError(SERVICE, f"the chroot {self._chroot} does not exist")

    def remember(self, queues: Iterable[str]) -> None:
        """The nodes ``queues`` exist."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.update(queues, ("",))

    def forget(self, queues: Iterable[str]) -> None:
        """The nodes ``queues``, or the root, may be gone."""
        self._known.difference_update(queues, ("",))
