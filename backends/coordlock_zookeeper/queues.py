"""Reading queues: lists of children, and what the nodes of contenders hold."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from coordlock.errors import AuthenticationFailed
from coordlock.model.contender import Contender, Entry, Snapshot, are_known, is_known
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from coordlock_zookeeper import nodes
from coordlock_zookeeper.answers import promise_of
from coordlock_zookeeper.child_lists import ChildList, ChildLists
from coordlock_zookeeper.contenders import NodeReader
from coordlock_zookeeper.errors import NoNode

__all__ = ["QueueReader"]


class QueueReader:
    """Reads the queues of a `nodes.Layout` in one session.

    The server answers the requests of one connection in the order in which they were sent. So every
    method sends what it can before it waits.

    Attributes:
        lists: of the queues' nodes.
    """

    def __init__(self, client: Any, layout: nodes.Layout, read: NodeReader) -> None:
        self._client = client
        self._layout = layout
        self._read_node = read
        self.lists: Final = ChildLists(client)

    def snapshot(self, queue: str, upto: Contender | None, owners: bool) -> Steps[Snapshot]:
        """See `Backend.snapshot`."""
        path = self._layout.queue(queue)
        # A server may lag behind others. Without `sync` a session still sees what it wrote itself,
        # so the list can only show contenders before its own that have left.
        synced = promise_of(self._client.sync_async(path)) if owners else None
        listed = self.lists.ask(path)
        if synced is not None:
            yield synced
        return (yield from self._read(queue, listed, upto, owners))

    def look(self, entries: Sequence[Entry]) -> Steps[tuple[Snapshot, ...]]:
        """The queues of ``entries``, now or later: a contender that has left blocks nobody."""
        paths = [self._layout.queue(entry.queue) for entry in entries]
        synced = promise_of(self._client.sync_async(paths[0]))
        listed = [self.lists.ask(path) for path in paths]
        yield synced
        snapshots = []
        for entry, answer in zip(entries, listed, strict=True):
            snapshots.append((yield from self._read(entry.queue, answer)))
        return tuple(snapshots)

    def _read(
        self,
        queue: str,
        listed: Promise[ChildList],
        upto: Contender | None = None,
        owners: bool = False,
    ) -> Steps[Snapshot]:
        try:
            child_list = yield listed
        except NoNode:
            return Snapshot(queue, ())
        return (yield from self.part(queue, child_list, upto, owners))

    def part(
        self, queue: str, child_list: ChildList, upto: Contender | None, owners: bool = False
    ) -> Steps[Snapshot]:
        """The snapshot of ``queue`` that ``child_list`` shows, up to ``upto``.

        Nodes are read where the names do not tell enough: for owners, and for convertible claims.
        Contenders that have left meanwhile are left out.
        """
        contenders, omitted = nodes.part(child_list.path, child_list.positions, upto)
        if owners or not are_known(contenders):
            answers = [
                promise_of(self._client.get_async(one.key)) if owners or not is_known(one) else None
                for one in contenders
            ]
            complete = []
            for one, answer in zip(contenders, answers, strict=True):
                with suppress(NoNode):
                    complete.append(
                        one if answer is None else self._read_node(one, *(yield answer))
                    )
            contenders = tuple(complete)
        return Snapshot(queue, contenders, child_list.zxid, omitted)

    def names(self) -> Steps[list[str]]:
        """See `Backend.queues`. Two round trips: a queue's node stays when its contenders leave."""
        root = self._layout.root
        synced = promise_of(self._client.sync_async(root or "/"))
        listed = promise_of(self._client.get_children_async(root or "/"))
        yield synced
        try:
            children = yield listed
        except NoNode:
            return []
        asked = [
            (name, promise_of(self._client.get_children_async(f"{root}/{child}")))
            for child in children
            if (name := self._layout.queue_of(child)) is not None
        ]
        names = []
        for name, answer in asked:
            with suppress(NoNode):
                try:
                    may_have_contenders = any(map(_is_contender, (yield answer)))
                except AuthenticationFailed:
                    may_have_contenders = True
                if may_have_contenders:
                    names.append(name)
        return names


def _is_contender(child: str) -> bool:
    return nodes.sequence_of(child) is not None
