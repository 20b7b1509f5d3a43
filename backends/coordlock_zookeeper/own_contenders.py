"""The contenders of one session: how they are made, found again and removed.

A contender is an ephemeral sequential node. Several that are enqueued together are a *set*: one
multi makes them, and another deletes them. A multi tells the paths that it has made, and nothing
else. So it makes a *marker*, too: a node without a sequence, whose path is known before. A request
that follows at once reads the marker's stat: it names the transaction, which all nodes of the set
share, and the session that owns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from kazoo.protocol.serialization import Create, Create2, Delete, Exists, GetData, SetData, Sync

from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    Evicted,
    SessionLost,
    TooLarge,
    VersionMismatch,
)
from coordlock.model.admission import is_blocked
from coordlock.model.contender import Contender, Entry, Owner, Snapshot
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_zookeeper import nodes
from coordlock_zookeeper.errors import SERVICE, BadVersion, NodeExists, NoNode, NotEmpty
from coordlock_zookeeper.multis import failure
from coordlock_zookeeper.nodes import session_name
from coordlock_zookeeper.parents import Parents
from coordlock_zookeeper.queues import Listed, QueueReader
from coordlock_zookeeper.requests import EPHEMERAL, SEQUENTIAL, Answer, Requests
from coordlock_zookeeper.session import ZookeeperSession

__all__ = ["OwnContenders"]

log = Log("coordlock.zookeeper")

#: One for each entry; None when another attempt is needed.
_Snapshots = tuple[Snapshot, ...] | None


class OwnContenders:
    """Makes and removes contenders in one session.

    Every method sends what it can before it waits; see `Requests`.

    Args:
        layout: where the queues are, and how contenders are named.
        unwanted: the paths of nodes to delete that may still exist, also of earlier sessions.

    Attributes:
        session: the session that owns the contenders.
        queues: reads the queues.
    """

    def __init__(
        self,
        session: ZookeeperSession,
        layout: nodes.Layout,
        unwanted: dict[str, None],
    ) -> None:
        self.session: Final = session
        self._requests: Final[Requests] = session.requests
        self._ask: Final = session.requests.ask
        self.queues: Final = QueueReader(session.requests, layout)
        self._layout = layout
        self._acl = session.data.acl
        self._unwanted = unwanted
        self._parents = Parents(session.requests, layout.root, self._acl)
        #: The entries that were sent, with the contender's path where it is known.
        self._sent: dict[str, str | None] = {}

    def enqueue(
        self, entries: Sequence[Entry], unless_blocked: bool = False
    ) -> Steps[tuple[Snapshot, ...]]:
        """See `Backend.enqueue`. One round trip where the queues' nodes exist."""
        if unless_blocked:
            # Synced, so that no contender blocks that has left.
            present = yield from self.queues.read([entry.queue for entry in entries])
            if any(map(is_blocked, present, entries)):
                return present
        again = any(entry.id in self._sent for entry in entries)
        first = self._adopt(entries) if again else self._create(entries)
        for attempt in (first, self._create(entries)):
            try:
                snapshots = yield from attempt
            except (BackendUnavailable, SessionLost):
                raise  # the contenders may exist: the entries stay in doubt
            except BackendError:
                self.discard(entries)
                raise
            if snapshots is not None:
                if again:
                    yield from self._discard_twins(entries)
                if self.session.has_ended:  # its caller has an error
                    self.discard(entries)
                return snapshots
            self.discard(entries)
        paths = ", ".join(map(self._path, entries))
        raise BackendUnavailable(SERVICE, f"other programs keep deleting {paths}")

    def _create(self, entries: Sequence[Entry]) -> Steps[_Snapshots]:
        """Make the contenders; their snapshots."""
        paths = [self._path(entry) for entry in entries]
        parents: list[Promise[Answer]] = []
        for entry, path in zip(entries, paths, strict=True):
            self._sent[entry.id] = None
            parents += self._parents.create(path)
        is_set = len(entries) > 1
        created = self._send(entries)
        marked = self._ask(Exists, self._marker(entries), None) if is_set else None
        listed = [self.queues.listed(path) for path in paths]
        answer, _ = yield created
        failed = failure(answer) if is_set else None
        # The marker exists where an earlier attempt took effect late.
        if failed is not None and not isinstance(failed[1], (NoNode, NodeExists)):
            raise failed[1]
        if answer is None or failed is not None:
            yield from self._parents.check(parents)
            self._parents.forget(paths)
            return None
        # The answer is a path and a stat, or the paths of the marker and of the set.
        names = [path.rpartition("/")[2] for path in (answer[1:] if is_set else answer[:1])]
        made = [f"{path}/{name}" for path, name in zip(paths, names, strict=True)]
        self._sent.update({entry.id: path for entry, path in zip(entries, made, strict=True)})
        self._parents.remember(paths)
        stat = answer[1] if marked is None else (yield marked)[0]
        if stat is None:
            return None  # another program deleted the marker
        if stat.ephemeralOwner != self.session.number:
            # A given client's session expired while this was sent, and kazoo started another.
            self.discard(entries)
            raise SessionLost(SERVICE, "the server expired the session")
        return (yield from self._snapshots(entries, made, stat, listed))

    def _send(self, entries: Sequence[Entry]) -> Promise[Answer]:
        """Send the request that makes one contender, or a set, the marker first; or `TooLarge`."""
        if len(entries) == 1:
            return self._requests.send(self._made(Create2, entries[0]))
        marker = self._requests.made(Create, self._marker(entries), b"", self._acl, EPHEMERAL)
        try:
            return self._requests.transact(
                [marker, *(self._made(Create, entry) for entry in entries)]
            )
        except TooLarge as error:
            many = f"{len(entries)} locks in one step are too many: {error.reason}"
            raise TooLarge(SERVICE, many) from None

    def _made(self, kind: Any, entry: Entry) -> Any:
        path, data = self._layout.prefix(entry), entry.owner.encode(entry.value)
        return self._requests.made(kind, path, data, self._acl, EPHEMERAL | SEQUENTIAL)

    def _adopt(self, entries: Sequence[Entry]) -> Steps[_Snapshots]:
        """Find the contenders that an attempt without an answer made, or discard what it left.

        A contender of an earlier session is not taken: the server removes it when that session
        expires. kazoo's own recipe takes it, and believes to hold a lock that another client then
        gets. Of a set, all contenders must be there, made by one transaction.
        """
        found = yield from self._find(entries)
        # By the transactions that made them. What made one of a set has made all of it.
        adopted: dict[int, list[tuple[str, Any]]] = {}
        for path, asked in [(path, self._ask(Exists, path, None)) for path in chain(*found)]:
            stat, _ = yield asked
            if stat is not None and stat.ephemeralOwner == self.session.number:
                adopted.setdefault(stat.czxid, []).append((path, stat))
        for _, made in sorted(adopted.items()):  # the first: it must not wait for its own twins
            if len(made) == len(entries):
                listed = [self.queues.listed(self._path(entry)) for entry in entries]
                paths = [path for path, _ in made]
                return (yield from self._snapshots(entries, paths, made[0][1], listed))
        for path in chain(*found):
            self._discard_node(path)
        self._parents.forget(map(self._path, entries))  # they may have gone since that attempt
        return None

    def _find(self, entries: Sequence[Entry]) -> Steps[list[list[str]]]:
        """The paths of all nodes with the id of each entry."""
        paths = [self._path(entry) for entry in entries]
        synced, listed = self._ask(Sync, paths[0]), [self.queues.listed(path) for path in paths]
        yield synced
        found = []
        for entry, answer in zip(entries, listed, strict=True):
            contenders, _ = yield answer
            # Not by the id: a negative sequence hides where it ends.
            prefix = self._layout.prefix(entry)
            found.append([one.key for one in contenders if one.key.startswith(prefix)])
        return found

    def _discard_twins(self, entries: Sequence[Entry]) -> Steps[None]:
        """Discard what earlier attempts made that took effect after they had been looked for."""
        for entry, paths in zip(entries, (yield from self._find(entries)), strict=True):
            for path in paths:
                if path != self._sent[entry.id]:
                    self._discard_node(path)

    def _snapshots(
        self,
        entries: Sequence[Entry],
        made: Sequence[str],
        stat: Any,
        listed: Sequence[Promise[Listed]],
    ) -> Steps[_Snapshots]:
        """The snapshots with the contenders whose paths are ``made``, by what ``stat`` tells."""
        snapshots = []
        for entry, path, answer in zip(entries, made, listed, strict=True):
            self._sent[entry.id] = path
            queue = yield answer
            # More than ten characters where it is negative.
            order = int(path.removeprefix(self._layout.prefix(entry)))
            if nodes.is_spent(order):
                yield from self._remove_spent(entries, self._path(entry))
                return None
            me = Contender(
                entry.id,
                path,
                entry.claim,
                order,
                token=int(stat.czxid),
                session=session_name(stat.ephemeralOwner),
                owner=entry.owner,
                value=entry.value,
                version=1,
            )
            snapshots.append((yield from self.queues.joined(entry.queue, queue, me)))
        return tuple(snapshots)

    def _remove_spent(self, entries: Sequence[Entry], queue: str) -> Steps[None]:
        """Remove the node ``queue``, whose counter is spent, so that the next attempt remakes it.

        Its czxids go on. While it has contenders from before, no other may enter.
        """
        self.discard(entries)
        self._parents.forget([queue])
        try:
            yield from self.delete(queue)
        except NotEmpty:
            reason = f"the sequence numbers of {queue} are used up: its contenders must leave first"
            raise BackendUnavailable(SERVICE, reason) from None

    def publish(self, me: Contender, value: bytes, version: int) -> Steps[None]:
        """See `Backend.publish`."""
        data = (me.owner or Owner("", 0)).encode(value)
        try:
            found, _ = yield self._ask(SetData, me.key, data, version - 1)
        except BadVersion:
            found, _ = yield self._ask(GetData, me.key, None)
            if found is not None and (found[0], found[1].version) != (data, version):
                raise VersionMismatch(me.key, version) from None
        if found is None:
            raise Evicted(me.key.rpartition("/")[0])

    def withdraw(self, entries: Sequence[Entry]) -> Steps[bool]:
        """See `Backend.withdraw`. One request where it knows all paths and all exist."""
        removed = yield from self._remove(entries)
        if not removed:
            removed = True
            for paths in (yield from self._find(entries)):
                was_there = False
                for path in paths:
                    was_there |= yield from self.delete(path)
                removed &= was_there
            if len(entries) > 1:
                yield from self.delete(self._marker(entries))
        for entry in entries:
            self._forget(entry)
        return removed

    def _remove(self, entries: Sequence[Entry]) -> Steps[bool]:
        """Delete contenders in one step; False, and nothing done, where that is not possible.

        Those that stand first tell that they have: see `nodes.announces_release`.
        """
        paths = [self._sent.get(entry.id) or "" for entry in entries]
        if not all(paths):
            return False
        made, known_first = self._requests.made, self.session.watches.known_first
        passing_on = [made(SetData, path, b"", -1) for path in paths if path in known_first]
        if len(paths) > 1:
            paths.append(self._marker(entries))
        elif not passing_on:
            return (yield from self.delete(paths[0]))
        deletions = [made(Delete, path, -1) for path in paths]
        failed = failure((yield self._requests.transact([*passing_on, *deletions]))[0])
        # A given client's ACL may not let it set data.
        if failed is not None and not isinstance(failed[1], (NoNode, AuthenticationFailed)):
            raise failed[1]
        return failed is None

    def delete(self, path: str) -> Steps[bool]:
        """Delete a node; whether it was there."""
        deleted, _ = yield self._ask(Delete, path, -1)
        return deleted is not None

    def discard(self, entries: Sequence[Entry]) -> None:
        """Send deletions of what was made for ``entries``; later requests come after them."""
        for entry in entries:
            if (path := self._forget(entry)) is not None:
                self._discard_node(path)
        if len(entries) > 1:
            self._discard_node(self._marker(entries))

    def _forget(self, entry: Entry) -> str | None:
        """No contender of ``entry`` is left, or it is not wanted; its path, where it is known."""
        path = self._sent.pop(entry.id, None)
        if path is not None:
            self.session.watches.known_first.discard(path)
        return path

    def _discard_node(self, path: str) -> None:
        """Delete a node that is not wanted, without waiting for the answer.

        Contenders would wait behind it for as long as the session lives. So `sweep` asks again
        until there is an answer.
        """
        self._unwanted[path] = None
        self._ask(Delete, path, -1).add_done_callback(partial(self._node_discarded, path))

    def _node_discarded(self, path: str, answer: Promise[Any]) -> None:
        error = answer.exception()
        if error is not None:
            log.debug("could not delete %s: %s", path, error)
        if not isinstance(error, (BackendUnavailable, SessionLost)):
            self._unwanted.pop(path, None)

    def sweep(self) -> None:
        """Delete unwanted nodes that may still exist. Sends nothing when there are none."""
        for path in list(self._unwanted):
            self._discard_node(path)

    def _path(self, entry: Entry) -> str:
        return self._layout.queue(entry.queue)

    def _marker(self, entries: Sequence[Entry]) -> str:
        # The name sorts behind those that have a sequence, in other libraries too. Not in the first
        # queue: a tree's root has a long list, and its leaf has a short one.
        return f"{self._path(entries[-1])}/~{entries[-1].id}-set"
