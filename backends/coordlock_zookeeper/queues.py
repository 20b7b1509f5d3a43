"""Reading queues: the children of their nodes, and what the nodes of contenders hold."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Final

from kazoo.protocol.serialization import GetChildren2, GetData, Sync

from coordlock.errors import AuthenticationFailed
from coordlock.model.admission import blockers
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Snapshot, is_known
from coordlock.model.names import unescape
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from coordlock_zookeeper import nodes
from coordlock_zookeeper.requests import Answer, Requests

__all__ = ["Listed", "QueueReader"]

#: The contenders of a queue in their order, none where it has no node, and the transaction that
#: last added or removed one.
Listed = tuple[Sequence[Contender], int]


class _Sent(list[Promise[Listed]]):
    """A list that is under way, and the requests that wait for the next one."""

    answer: Promise[Answer]


class QueueReader:
    """Reads the queues of a `nodes.Layout` in one session.

    Every method sends what it can before it waits; see `Requests`.

    A list of contenders is as long as its queue, so it costs time on the server, the network and
    here. While one is under way, all further requests for the same queue share the next. So a
    thousand requests at once cost a few lists, and a request that comes alone is sent at once.
    """

    def __init__(self, requests: Requests, layout: nodes.Layout) -> None:
        self._requests = requests
        self._ask = requests.ask
        self._layout = layout
        # Without a lock: a signal handler that strikes inside of it may wait for the I/O thread.
        self._under_way: Final[dict[str, _Sent]] = {}  # by the queues' nodes

    def read(
        self,
        queues: Sequence[str],
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Steps[tuple[Snapshot, ...]]:
        """A snapshot of each of ``queues``, as it is now or later; see `part`.

        A server may lag behind others. It first catches up, unless contenders before ``upto``, one
        of this session, are all that matters: a session sees what it wrote itself, so the list can
        only show some that have left.
        """
        paths = [self._layout.queue(queue) for queue in queues]
        synced = self._ask(Sync, paths[0]) if owners or upto is None else None
        listed = [self.listed(path) for path in paths]
        if synced is not None:
            yield synced
        snapshots = []
        for queue, answer in zip(queues, listed, strict=True):
            part = self.part(queue, (yield answer), upto, owners, conflicting)
            snapshots.append((yield from part))
        return tuple(snapshots)

    def joined(self, queue: str, listed: Listed, me: Contender) -> Steps[Snapshot]:
        """The snapshot of ``queue`` for ``me``, a contender that was just created."""
        snapshot = yield from self.part(queue, listed, me)
        if not (snapshot.omitted and isinstance(me.claim, Mode)) or blockers(snapshot, me):
            return snapshot
        # The nearest shares. The list tells of all the others, too.
        ahead, _ = nodes.nearest(listed[0], me, conflicting=True)
        return replace(snapshot, omitted=0) if ahead == (me,) else snapshot

    def part(
        self,
        queue: str,
        listed: Listed,
        upto: Contender | None,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Steps[Snapshot]:
        """The snapshot of ``queue`` as it is ``listed``, up to ``upto``.

        Nodes are read where the names do not tell enough: for owners, and for convertible claims.
        Contenders that have left meanwhile are left out.
        """
        contenders, omitted = nodes.nearest(listed[0], upto, conflicting=conflicting)
        asked = {
            contender: self._ask(GetData, contender.key, None)
            for contender in contenders
            if owners or not is_known(contender)
        }
        complete = []
        for contender in contenders:
            if contender not in asked:
                complete.append(contender)
            elif (found := (yield asked[contender])[0]) is not None:
                complete.append(self._layout.read(contender, *found))
        return Snapshot(queue, tuple(complete), listed[1], omitted)

    def names(self) -> Steps[list[str]]:
        """See `Backend.queues`. Two round trips: a queue's node stays when its contenders leave."""
        root = self._layout.root
        synced = self._ask(Sync, root or "/")
        listed = self._ask(GetChildren2, root or "/", None)
        yield synced
        found, _ = yield listed
        asked = [
            (name, self.listed(f"{root}/{child}"))
            for child in ([] if found is None else found[0])
            if (name := unescape(child)) is not None
        ]
        names = []
        for name, answer in asked:
            try:
                contenders, _ = yield answer
            except AuthenticationFailed:
                names.append(name)  # it may have contenders
            else:
                if contenders:
                    names.append(name)
        return names

    def listed(self, parent: str) -> Promise[Listed]:
        """The contenders below ``parent``, by a list that is sent now or later, not earlier."""
        promise: Promise[Listed] = Promise()
        if (sent := self._under_way.get(parent)) is not None:
            sent.append(promise)
            if not sent.answer.done():
                return promise
            promise = Promise()  # the next list may have been sent before
        self._send(parent, [promise])
        return promise

    def _send(self, parent: str, wanted: Sequence[Promise[Listed]]) -> None:
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
        wanted: Sequence[Promise[Listed]],
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
        listed = nodes.in_order(parent, children), zxid
        for promise in wanted:
            promise.resolve(listed)
