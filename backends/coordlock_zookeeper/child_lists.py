"""The children of queues' nodes: one list answers all requests that come at about the same time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise, failed
from coordlock_zookeeper import nodes
from coordlock_zookeeper.answers import promise_of
from coordlock_zookeeper.errors import SERVICE, NoNode

__all__ = ["ChildList", "ChildLists"]


@dataclass(frozen=True)
class ChildList:
    """The children of a queue's node at one moment.

    Attributes:
        path: the node's.
        children: their names, in no order.
        zxid: the transaction that last added or removed one.
    """

    path: str
    children: Sequence[str]
    zxid: int

    @cached_property
    def positions(self) -> list[tuple[int, str]]:
        """The contenders among them, in order; found once for all requests that share this."""
        return nodes.survey(self.children)


class ChildLists:
    """The lists that one session asks for.

    A list is as long as its queue, so it costs time on the server, the network and here. While one
    is under way, all further requests for the same queue share the next. So a thousand requests at
    once cost a few lists, and a request that comes alone is sent at once.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.RLock()
        #: The queues' nodes of which a list is under way, and the requests for the next one.
        self._next: Final[dict[str, list[Promise[ChildList]]]] = {}

    def ask(self, parent: str) -> Promise[ChildList]:
        """The children of ``parent``, by a list that is sent now or later, not earlier.

        It fails with `NoNode` and what `coordlock_zookeeper.errors.translate` makes of the rest.
        """
        promise: Promise[ChildList] = Promise()
        mine: list[Promise[ChildList]] = []
        try:
            with self._lock:
                waiting = self._next.setdefault(parent, mine)
                if waiting is not mine:
                    waiting.append(promise)
                    return promise
            self._send(parent, [promise], mine)
        except BaseException:
            # Ctrl-C, in the thread that asks: no request may wait for what was perhaps never sent.
            interrupted = BackendUnavailable(SERVICE, "another request was interrupted")
            self._answered(parent, [promise], mine, failed(interrupted))
            raise
        return promise

    def _send(
        self, parent: str, wanted: list[Promise[ChildList]], waiting: list[Promise[ChildList]]
    ) -> None:
        answer = promise_of(self._client.get_children_async(parent, include_data=True))
        answer.add_done_callback(partial(self._answered, parent, wanted, waiting))

    def _answered(
        self,
        parent: str,
        wanted: list[Promise[ChildList]],
        waiting: list[Promise[ChildList]],
        answer: Promise[Any],
    ) -> None:
        error = answer.exception()
        after: list[Promise[ChildList]] = []
        with self._lock:
            # After an interruption another list may be under way.
            if self._next.get(parent) is waiting:
                del self._next[parent]
            if not (error is None or isinstance(error, NoNode)):
                wanted += waiting  # there is no connection to ask once more
                waiting = []
            if waiting:
                after = self._next.setdefault(parent, after)
        if waiting:
            self._send(parent, waiting, after)
        if error is not None:
            for promise in wanted:
                promise.fail(copy(error))  # each is raised, and collects tracebacks
            return
        children, stat = answer.result()
        child_list = ChildList(parent, children, stat.pzxid)
        for promise in wanted:
            promise.resolve(child_list)
