"""Reading queues: the children of their nodes, and what the nodes of contenders hold."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kazoo.protocol.serialization import GetChildren2, GetData, Sync

from coordlock.errors import AuthenticationFailed
from coordlock.model.admission import blockers
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Snapshot, are_known, is_known
from coordlock.model.names import unescape
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from coordlock_zookeeper import nodes
from coordlock_zookeeper.requests import Answer, Requests

__all__ = ["ChildList", "ChildLists", "QueueReader"]


class QueueReader:
    """Reads the queues of a `nodes.Layout` in one session.

    Every method sends what it can before it waits; see `Requests`.

    Attributes:
        lists: of the queues' nodes.
    """

    def __init__(self, requests: Requests, layout: nodes.Layout) -> None:
        self._ask = requests.ask
        self._layout = layout
        self.lists: Final = ChildLists(requests)

    def read(
        self,
        queues: Sequence[str],
        upto: Contender | None = None,
        *,
        owners: bool = False,
        is_synced: bool = True,
        conflicting: bool = False,
    ) -> Steps[tuple[Snapshot, ...]]:
        """A snapshot of each of ``queues``, as it is now or later; see `part`.

        A server may lag behind others. Where ``is_synced``, it first catches up.
        """
        paths = [self._layout.queue(queue) for queue in queues]
        synced = self._ask(Sync, paths[0]) if is_synced else None
        listed = [self.lists.ask(path) for path in paths]
        if synced is not None:
            yield synced
        snapshots = []
        for queue, answer in zip(queues, listed, strict=True):
            child_list = yield answer
            part = self.part(queue, child_list, upto, owners, conflicting)
            snapshots.append((yield from part))
        return tuple(snapshots)

    def joined(self, queue: str, child_list: ChildList, me: Contender) -> Steps[Snapshot]:
        """The snapshot of ``queue`` for ``me``, a contender that was just created."""
        snapshot = yield from self.part(queue, child_list, me)
        can_share = isinstance(me.claim, Mode) and me.claim is not Mode.NL
        if not (snapshot.omitted and can_share) or blockers(snapshot, me):
            return snapshot
        # The nearest shares. The list tells of all the others, too.
        ahead, _ = nodes.nearest(child_list.path, child_list.positions, me, conflicting=True)
        return replace(snapshot, omitted=0) if ahead == (me,) else snapshot

    def part(
        self,
        queue: str,
        child_list: ChildList,
        upto: Contender | None,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Steps[Snapshot]:
        """The snapshot of ``queue`` that ``child_list`` shows, up to ``upto``.

        Nodes are read where the names do not tell enough: for owners, and for convertible claims.
        Contenders that have left meanwhile are left out.
        """
        contenders, omitted = nodes.nearest(
            child_list.path, child_list.positions, upto, conflicting=conflicting
        )
        if owners or not are_known(contenders):
            answers = [
                self._ask(GetData, contender.key, None)
                if owners or not is_known(contender)
                else None
                for contender in contenders
            ]
            complete = []
            for contender, answer in zip(contenders, answers, strict=True):
                if answer is None:
                    complete.append(contender)
                elif (found := (yield answer)[0]) is not None:
                    complete.append(self._layout.read(contender, *found))
            contenders = tuple(complete)
        return Snapshot(queue, contenders, child_list.zxid, omitted)

    def names(self) -> Steps[list[str]]:
        """See `Backend.queues`. Two round trips: a queue's node stays when its contenders leave."""
        root = self._layout.root
        synced = self._ask(Sync, root or "/")
        listed = self._ask(GetChildren2, root or "/", None)
        yield synced
        found, _ = yield listed
        asked = [
            (name, self._ask(GetChildren2, f"{root}/{child}", None))
            for child in ([] if found is None else found[0])
            if (name := unescape(child)) is not None
        ]
        names = []
        for name, answer in asked:
            try:
                found, _ = yield answer
            except AuthenticationFailed:
                names.append(name)  # it may have contenders
            else:
                if found is not None and any(map(_is_contender, found[0])):
                    names.append(name)
        return names


def _is_contender(child: str) -> bool:
    return nodes.sequence_of(child) is not None


@dataclass(frozen=True)
class ChildList:
    """The children of a queue's node at one moment.

    Attributes:
        path: the node's.
        children: their names, in no order.
        positions: the contenders among them, in order.
        zxid: the transaction that last added or removed one.
        exists: whether there is such a node.
    """

    path: str
    children: Sequence[str]
    positions: list[tuple[int, str]]
    zxid: int
    exists: bool = True

    @classmethod
    def of(cls, path: str, children: Sequence[str], zxid: int, *, exists: bool = True) -> ChildList:
        """The list that consists of ``children``."""
        return cls(path, children, nodes.ordered_names(children), zxid, exists)


class _Sent(list[Promise[ChildList]]):
    """A list that is under way, and the requests that wait for the next one."""

    answer: Promise[Answer]


class ChildLists:
    """The lists that one session asks for.

    A list is as long as its queue, so it costs time on the server, the network and here. While one
    is under way, all further requests for the same queue share the next. So a thousand requests at
    once cost a few lists, and a request that comes alone is sent at once.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        # Without a lock: a signal handler that strikes inside of it may wait for the I/O thread.
        self._under_way: Final[dict[str, _Sent]] = {}  # by the queues' nodes

    def ask(self, parent: str) -> Promise[ChildList]:
        """The children of ``parent``, by a list that is sent now or later, not earlier."""
        promise: Promise[ChildList] = Promise()
        if (sent := self._under_way.get(parent)) is not None:
            sent.append(promise)
            if not sent.answer.done():
                return promise
            promise = Promise()  # the next list may have been sent before
        self._send(parent, [promise])
        return promise

    def _send(self, parent: str, wanted: Sequence[Promise[ChildList]]) -> None:
        sent = _Sent()
        request = self._requests.made(GetChildren2, parent, None)
        sent.answer = self._requests.send(request, partial(self._answered, parent, wanted, sent))
        # Not before: no request may wait for what Ctrl-C has kept from being sent. Where two
        # threads send at once, both lists are good, and one is waited for.
        self._under_way[parent] = sent
        if sent.answer.done():
            self._under_way.pop(parent, None)

    def _answered(
        self,
        parent: str,
        wanted: Sequence[Promise[ChildList]],
        sent: _Sent,
        answer: Promise[Answer],
    ) -> None:
        self._under_way.pop(parent, None)
        if sent:
            self._send(parent, sent)
        if (error := answer.exception()) is not None:
            for promise in wanted:
                promise.fail(copy(error))  # each is raised, and collects tracebacks
            return
        found, zxid = answer.result()
        children, zxid = ((), zxid) if found is None else (found[0], found[1].pzxid)
        child_list = ChildList.of(parent, children, zxid, exists=found is not None)
        for promise in wanted:
            promise.resolve(child_list)
