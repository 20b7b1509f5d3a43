"""Contenders in several queues that one multi makes, and another one deletes.

A multi tells the paths that it has made, and nothing else. So it makes a marker, too: a node whose
path is known before, in the first queue's node. A request that follows at once reads what the
server knows of it: the transaction, which all of them share, and the session that owns them. The
marker has no sequence, so it is no contender; its name sorts behind those that have one, in other
libraries too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordlock.errors import BackendError, BackendUnavailable, SessionLost, TooLarge
from coordlock.model.admission import is_blocked
from coordlock.model.contender import Entry, Snapshot
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, settled
from coordlock_zookeeper import nodes
from coordlock_zookeeper.answers import promise_of
from coordlock_zookeeper.child_lists import ChildList
from coordlock_zookeeper.errors import SERVICE, NodeExists, NoNode
from coordlock_zookeeper.queues import ATTEMPTS, Queues
from coordlock_zookeeper.transactions import LONGEST, failure

__all__ = ["SetQueues"]

#: Where each contender of a set stands, and what is known of all of them.
_Made = tuple[list[str], Any]


class SetQueues(Queues):
    """The queues of one client, which takes places in several of them at once."""

    def enqueue_all(
        self, entries: Sequence[Entry], unless_blocked: bool = False
    ) -> Steps[tuple[Snapshot, ...]]:
        """See `EntrySets.enqueue_all`. One round trip where the queues' nodes exist."""
        if unless_blocked:
            present = yield from self.look(entries)
            if any(map(is_blocked, present, entries)):
                return present
        again = any(entry.id in self._sent for entry in entries)
        attempt = self._adopt_all if again else self._create_all
        for _ in range(ATTEMPTS):
            try:
                snapshots = yield from attempt(entries, again)
            except (BackendUnavailable, SessionLost):
                raise  # the contenders may exist: the entries stay in doubt
            except BackendError:
                self._forget_all(entries)
                raise
            if snapshots is not None:
                return snapshots
            self._forget_all(entries)
            attempt = self._create_all
        raise BackendUnavailable(SERVICE, "the queues are being deleted again and again")

    def withdraw_all(self, entries: Sequence[Entry]) -> Steps[bool]:
        """See `EntrySets.withdraw_all`. One request where the contenders are known."""
        paths = [self._sent.get(entry.id) for entry in entries]
        known = [path for path in paths if path is not None]
        if len(known) == len(entries):
            removed = yield from self._delete_all(known, self._marker(entries))
        else:
            removed = True
            for entry in entries:
                removed &= yield from self.withdraw(entry)
            yield from self.delete(self._marker(entries))
        for entry in entries:
            self._sent.pop(entry.id, None)
        return removed

    def discard_all(self, entries: Sequence[Entry], snapshots: Sequence[Snapshot]) -> None:
        """Delete what was made, without waiting for the answer."""
        for entry, snapshot in zip(entries, snapshots, strict=True):
            if (contender := snapshot.find(entry.id)) is not None:
                self.discard(contender.key)
        self.discard(self._marker(entries))

    def _create_all(
        self, entries: Sequence[Entry], again: bool
    ) -> Steps[tuple[Snapshot, ...] | None]:
        """Send the entries, ``again`` when an attempt was left without an answer.

        None when another attempt is needed.
        """
        multi = self._client.transaction()
        multi.create(self._marker(entries), acl=self.acl, ephemeral=True)
        for entry in entries:
            stem = nodes.stem(entry.id, entry.claim, self._style)
            path = f"{self._path(entry.queue)}/{stem}"
            data = entry.owner.encode(entry.value)
            multi.create(path, data, acl=self.acl, ephemeral=True, sequence=True)
        size = sum(len(one.serialize()) + 9 for one in multi.operations) + 17
        if size > LONGEST:
            raise TooLarge(
                SERVICE,
                f"{len(entries)} locks in one step are too many: their request of {size} bytes is "
                f"over what servers take, {LONGEST}",
            )
        parents: list[Promise[Any]] = []
        for entry in entries:
            self._sent[entry.id] = None
            parents += self._create_parents(self._path(entry.queue))
        committed = promise_of(multi.commit_async())
        marked = promise_of(self._client.exists_async(self._marker(entries)))
        listed = [self._child_lists.ask(self._path(entry.queue)) for entry in entries]
        results = yield committed
        if (failed := failure(results)) is not None:
            _, error = failed
            for answer in (marked, *listed):
                yield settled(answer)
            self._known -= {"", *(self._path(entry.queue) for entry in entries)}
            yield from self._raise_cause(parents)
            if isinstance(error, NodeExists):  # the marker: an attempt took effect late
                return (yield from self._adopt_all(entries, again))
            if not isinstance(error, NoNode):
                raise error
            return None
        for entry, path in zip(entries, results[1:], strict=True):
            self._sent[entry.id] = path
            self._remember(self._path(entry.queue))
        stat = yield marked
        if stat is None:
            return None  # another program deleted the marker
        if stat.ephemeralOwner != self._session.number:
            # A given client's session expired while this was sent, and kazoo started another.
            self._forget_all(entries)
            raise SessionLost(SERVICE, "the server expired the session")
        return (yield from self._enqueued_all(entries, (results[1:], stat), listed, again))

    def _adopt_all(
        self, entries: Sequence[Entry], again: bool
    ) -> Steps[tuple[Snapshot, ...] | None]:
        """The snapshots with the contenders that an attempt without answer made.

        None where they are not there, not all, or not of this session; then none is left.
        """
        synced = promise_of(self._client.sync_async(self._marker(entries)))
        marked = promise_of(self._client.exists_async(self._marker(entries)))
        listed = [self._child_lists.ask(self._path(entry.queue)) for entry in entries]
        yield synced
        marker = yield marked
        paths: list[str] = []
        for entry, answer in zip(entries, listed, strict=True):
            try:
                children = (yield answer).children
            except NoNode:
                children = ()
            parent = self._path(entry.queue)
            found = [f"{parent}/{one}" for one in children if nodes.has_id(one, entry.id)]
            stats = [promise_of(self._client.exists_async(path)) for path in found]
            for path, asked in zip(found, stats, strict=True):
                stat = yield asked
                if marker is not None and stat is not None and stat.czxid == marker.czxid:
                    paths.append(path)
                else:
                    self.discard(path)
        if (
            marker is None
            or marker.ephemeralOwner != self._session.number
            or len(paths) < len(entries)
        ):
            for path in (*paths, self._marker(entries)):
                yield from self.delete(path)
            return None
        return (yield from self._enqueued_all(entries, (paths, marker), listed, again))

    def _enqueued_all(
        self,
        entries: Sequence[Entry],
        made: _Made,
        listed: Sequence[Promise[ChildList]],
        again: bool,
    ) -> Steps[tuple[Snapshot, ...] | None]:
        """The snapshots with the contenders that were ``made``; None when others are needed."""
        paths, stat = made
        first = nodes.sequence_of(paths[0])
        if first is not None and nodes.is_spent(first):
            self.discard(self._marker(entries))  # it would keep its queue from being made anew
        snapshots = []
        for entry, path, answer in zip(entries, paths, listed, strict=True):
            self._sent[entry.id] = path
            try:
                child_list = yield answer
            except NoNode:
                return None  # another program deleted the contender and its queue
            snapshot = yield from self._enqueued(entry, path, stat, child_list, again)
            if snapshot is None:
                return None
            snapshots.append(snapshot)
        return tuple(snapshots)

    def _delete_all(self, paths: Sequence[str], marker: str) -> Steps[bool]:
        """Delete ``paths`` and ``marker``, in one step if all are there; whether the paths were.

        No place depends on the marker, which another program may have deleted.
        """
        multi = self._client.transaction()
        for path in (*paths, marker):
            multi.delete(path)
        failed = failure((yield promise_of(multi.commit_async())))
        if failed is None:
            return True
        if not isinstance(failed[1], NoNode):
            raise failed[1]
        removed = True
        for path in paths:
            removed &= yield from self.delete(path)
        yield from self.delete(marker)
        return removed

    def _forget_all(self, entries: Sequence[Entry]) -> None:
        """Remove the contenders, if there are any, before whatever is sent next."""
        for entry in entries:
            self._forget(entry)
        self.discard(self._marker(entries))

    def _marker(self, entries: Sequence[Entry]) -> str:
        return f"{self._path(entries[0].queue)}/~{entries[0].id}-set"
