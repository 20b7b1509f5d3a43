"""The queues as znodes: the requests, in order, by which contenders come, are seen, and go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kazoo.security import OPEN_ACL_UNSAFE

from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    Evicted,
    SessionLost,
    VersionMismatch,
)
from coordlock.model.admission import is_blocked
from coordlock.model.contender import Contender, Entry, Owner, Snapshot, are_known, is_known
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, settled
from coordlock_zookeeper import nodes
from coordlock_zookeeper.answers import promise_of
from coordlock_zookeeper.child_lists import ChildList, ChildLists
from coordlock_zookeeper.container import CreateContainer
from coordlock_zookeeper.contenders import Described, session_name
from coordlock_zookeeper.errors import (
    SERVICE,
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    Unsupported,
)
from coordlock_zookeeper.session import ZookeeperSession

__all__ = ["ATTEMPTS", "Queues"]

log = Log("coordlock.zookeeper")

# How often a contender's parents are made before the deletions of other programs win.
ATTEMPTS: Final = 5
_KNOWN: Final = 10_000
# A child that keeps the server from removing a queue's node, and its sequence with it, though
# another client made the node a container.
_KEEPER: Final = "keep-sequence"


class Queues:
    """What one client keeps about the queues under one root, for one session.

    Requests of one connection are answered in the order in which they were sent, and every method
    sends what it can before it waits.

    Args:
        session: whose contenders are made here.
        root: the path under which queues live; "" is the top.
        acl: of the nodes made; None: the client's default.
        described: makes contenders complete by what their nodes hold.
        style: how the contenders made here are named.
        unwanted: the nodes that are to go and that may still be there, of earlier sessions too.
    """

    def __init__(
        self,
        session: ZookeeperSession,
        root: str,
        acl: Sequence[Any] | None,
        described: Described,
        style: nodes.Style,
        unwanted: dict[str, None],
    ) -> None:
        self._session = session
        self._client = session.client
        self._root = root
        self._at_top = not root and not self._client.chroot
        #: Of the nodes made.
        self.acl: Final = acl or self._client.default_acl or OPEN_ACL_UNSAFE
        self._described = described
        self._sequence_tokens = described.tokens == "sequence"
        self._style: Final = style
        # With a container the sequence would start again, and tokens must not.
        self._containers = not self._sequence_tokens
        self._unwanted = unwanted
        #: The queues' nodes that exist, as far as known, and "" for the root.
        self._known: set[str] = set()
        self._child_lists = ChildLists(self._client)
        #: The entries that were sent, with the path of the contender where it is known.
        self._sent: dict[str, str | None] = {}

    def enqueue(self, entry: Entry, unless_blocked: bool = False) -> Steps[Snapshot]:
        """See `Backend.enqueue`. One round trip where the queue's node exists."""
        if unless_blocked:
            [present] = yield from self.look([entry])
            if is_blocked(present, entry):
                return present
        parent = self._path(entry.queue)
        again = entry.id in self._sent
        attempt = self._adopt if again else self._create
        for _ in range(ATTEMPTS):
            try:
                snapshot = yield from attempt(entry, parent, again)
            except (BackendUnavailable, SessionLost):
                raise  # the contender may exist: the entry stays in doubt
            except BackendError:
                self._forget(entry)
                raise
            if snapshot is not None:
                return snapshot
            self._forget(entry)
            attempt = self._create
        raise BackendUnavailable(SERVICE, f"{parent} is being deleted again and again")

    def look(self, entries: Sequence[Entry]) -> Steps[tuple[Snapshot, ...]]:
        """The queues of ``entries``, as they are now or later: what has left refuses nobody."""
        paths = [self._path(entry.queue) for entry in entries]
        synced = promise_of(self._client.sync_async(paths[0]))
        listed = [self._child_lists.ask(path) for path in paths]
        yield synced
        snapshots = []
        for entry, path, answer in zip(entries, paths, listed, strict=True):
            snapshots.append((yield from self._read(entry.queue, path, answer)))
        return tuple(snapshots)

    def _create(self, entry: Entry, parent: str, again: bool) -> Steps[Snapshot | None]:
        """Send the entry, ``again`` when an attempt was left without an answer.

        None when another attempt is needed.
        """
        self._sent[entry.id] = None
        parents = self._create_parents(parent)
        created = promise_of(
            self._client.create_async(
                f"{parent}/{nodes.stem(entry.id, entry.claim, self._style)}",
                entry.owner.encode(entry.value),
                acl=self.acl,
                ephemeral=True,
                sequence=True,
                include_data=True,
            )
        )
        listed = self._child_lists.ask(parent)
        try:
            path, stat = yield created
        except NoNode:
            yield settled(listed)
            self._known -= {"", parent}
            yield from self._raise_cause(parents)
            return None
        self._remember(parent)
        if stat.ephemeralOwner != self._session.number:
            # A given client's session expired while this was sent, and kazoo started another.
            self.discard(path)
            raise SessionLost(SERVICE, "the server expired the session")
        self._sent[entry.id] = path
        try:
            child_list = yield listed
        except NoNode:
            return None  # another program deleted the contender and its queue
        return (yield from self._enqueued(entry, path, stat, child_list, again))

    def _enqueued(
        self, entry: Entry, path: str, stat: Any, child_list: ChildList, again: bool
    ) -> Steps[Snapshot | None]:
        """The snapshot with the entry's contender ``path``; None when another one is needed."""
        parent, _, own = path.rpartition("/")
        sequence = nodes.sequence_of(own)
        assert sequence is not None  # the server appended it
        self._sent[entry.id] = path
        if nodes.is_spent(sequence):
            yield from self._start_again(entry, parent)
            return None
        if self._sequence_tokens and sequence == 0:
            return None  # tokens are positive, and the next sequence is 1
        if again:
            for child in child_list.children:
                if nodes.has_id(child, entry.id) and child != own:
                    # An earlier attempt took effect late, after it had been looked for.
                    self.discard(f"{parent}/{child}")
        me = replace(
            nodes.contender(parent, own),
            id=entry.id,  # this and the path are the same again, and kept once
            key=path,
            claim=entry.claim,
            token=self._described.token(own, stat),
            session=session_name(stat.ephemeralOwner),
            owner=entry.owner,
            value=entry.value,
            version=1,
        )
        contenders, omitted = nodes.part(parent, child_list.places, me)
        if not are_known(contenders):
            contenders = yield from self._describe(contenders, unknown=True)
        return Snapshot(entry.queue, contenders, child_list.zxid, omitted)

    def _adopt(self, entry: Entry, parent: str, again: bool) -> Steps[Snapshot | None]:
        """The snapshot with the contender that an attempt without answer made; None without one.

        A contender of an earlier session is not taken: the server removes it when that session
        expires. kazoo's own recipe takes it, and so believes to hold a lock that another client
        gets then.
        """
        synced = promise_of(self._client.sync_async(parent))
        listed = self._child_lists.ask(parent)
        yield synced
        try:
            child_list = yield listed
        except NoNode:
            return None
        found = [child for _, child in child_list.places if nodes.has_id(child, entry.id)]
        stats = [promise_of(self._client.exists_async(f"{parent}/{child}")) for child in found]
        for child, answer in zip(found, stats, strict=True):
            stat = yield answer
            if stat is not None and stat.ephemeralOwner == self._session.number:
                # `_enqueued` removes the others.
                path = f"{parent}/{child}"
                return (yield from self._enqueued(entry, path, stat, child_list, again))
        for child in found:
            yield from self.delete(f"{parent}/{child}")
        return None

    def _start_again(self, entry: Entry, parent: str) -> Steps[None]:
        """Remove the queue, whose counter is spent, so that another attempt makes it anew.

        Its czxids go on. While it has contenders from before, no other may enter.
        """
        self._forget(entry)
        if self._sequence_tokens:
            raise BackendError(
                SERVICE,
                f"the sequence of {parent} has reached {2**31 - 1}, so there are no more tokens: "
                "use token=czxid, whose tokens are larger, or another name",
            )
        self._known.discard(parent)
        try:
            yield from self.delete(parent)
        except NotEmpty:
            raise BackendUnavailable(
                SERVICE, f"the counter of {parent} is spent: its contenders must leave first"
            ) from None

    def _forget(self, entry: Entry) -> None:
        """Remove the contender, if there is one, before whatever is sent next."""
        path = self._sent.pop(entry.id, None)
        if path is not None:
            self.discard(path)

    def snapshot(self, queue: str, upto: Contender | None, owners: bool) -> Steps[Snapshot]:
        """See `Backend.snapshot`."""
        parent = self._path(queue)
        # A server may lag behind others. Without `sync` a session still sees what it wrote itself,
        # so what stands before its own contender can only be too much.
        synced = promise_of(self._client.sync_async(parent)) if owners else None
        listed = self._child_lists.ask(parent)
        if synced is not None:
            yield synced
        return (yield from self._read(queue, parent, listed, upto, owners))

    def _read(
        self,
        queue: str,
        parent: str,
        listed: Promise[ChildList],
        upto: Contender | None = None,
        owners: bool = False,
    ) -> Steps[Snapshot]:
        try:
            child_list = yield listed
        except NoNode:
            return Snapshot(queue, ())
        contenders, omitted = nodes.part(parent, child_list.places, upto)
        if owners or not are_known(contenders):
            contenders = yield from self._describe(contenders, unknown=not owners)
        return Snapshot(queue, contenders, child_list.zxid, omitted)

    def _describe(
        self, contenders: Sequence[Contender], *, unknown: bool
    ) -> Steps[tuple[Contender, ...]]:
        """``contenders`` with what their nodes tell, less those that have left since.

        Where only the ``unknown`` matters: of convertible ones what they claim.
        """
        answers = [
            None if unknown and is_known(one) else promise_of(self._client.get_async(one.key))
            for one in contenders
        ]
        complete = []
        for one, answer in zip(contenders, answers, strict=True):
            if answer is None:
                complete.append(one)
                continue
            try:
                data, stat = yield answer
            except NoNode:
                continue
            complete.append(self._described(one, data, stat))
        return tuple(complete)

    def publish(self, me: Contender, value: bytes, version: int) -> Steps[None]:
        """See `PublishedValues.publish`."""
        data = (me.owner or Owner("", 0)).encode(value)
        try:
            try:
                yield promise_of(self._client.set_async(me.key, data, version - 1))
            except BadVersion:
                found, stat = yield promise_of(self._client.get_async(me.key))
                if (found, stat.version) != (data, version):
                    raise VersionMismatch(me.key, version) from None
        except NoNode:
            raise Evicted(me.key.rpartition("/")[0]) from None

    def withdraw(self, entry: Entry) -> Steps[bool]:
        """See `Backend.withdraw`. One request where the contender is known."""
        path = self._sent.get(entry.id)
        if path is not None:
            removed = yield from self.delete(path)
        else:
            removed = yield from self._withdraw_all(entry)
        self._sent.pop(entry.id, None)
        return removed

    def _withdraw_all(self, entry: Entry) -> Steps[bool]:
        parent = self._path(entry.queue)
        synced = promise_of(self._client.sync_async(parent))
        listed = promise_of(self._client.get_children_async(parent))
        yield synced
        try:
            children = yield listed
        except NoNode:
            return False
        removed = False
        for child in children:
            if nodes.has_id(child, entry.id):
                removed |= yield from self.delete(f"{parent}/{child}")
        return removed

    def delete(self, path: str) -> Steps[bool]:
        """Delete a node; whether it was there."""
        try:
            yield promise_of(self._client.delete_async(path))
        except NoNode:
            return False
        return True

    def discard(self, path: str) -> None:
        """Delete a node of this client's that is not wanted, without waiting for the answer.

        Contenders would stand behind it for as long as the session lives. So `sweep` asks again
        until there is an answer.
        """
        self._unwanted[path] = None
        promise_of(self._client.delete_async(path)).add_done_callback(
            partial(self._discarded, path)
        )

    def _discarded(self, path: str, answer: Promise[Any]) -> None:
        error = answer.exception()
        if error is not None and not isinstance(error, NoNode):
            log.debug("could not delete %s: %s", path, error)
        if not isinstance(error, (BackendUnavailable, SessionLost)):
            self._unwanted.pop(path, None)

    def sweep(self) -> None:
        """Delete what is unwanted and may still be there. Sends nothing when there is nothing."""
        for path in list(self._unwanted):
            self.discard(path)

    def names(self) -> Steps[list[str]]:
        """See `Backend.queues`. Two round trips: a queue's node stays when its contenders leave."""
        synced = promise_of(self._client.sync_async(self._root or "/"))
        listed = promise_of(self._client.get_children_async(self._root or "/"))
        yield synced
        try:
            children = yield listed
        except NoNode:
            return []
        asked = [
            (name, promise_of(self._client.get_children_async(f"{self._root}/{child}")))
            for child in children
            if (name := nodes.name_of(child, at_top=self._at_top)) is not None
        ]
        names = []
        for name, answer in asked:
            with suppress(NoNode):
                if (yield from _may_have_contenders(answer)):
                    names.append(name)
        return names

    def _create_parents(self, parent: str) -> list[Promise[Any]]:
        """Ask for the nodes above a contender that are not known to exist."""
        if parent in self._known:
            return []
        asked = []
        if "" not in self._known:
            parts = self._root.split("/")
            ancestors = ["/".join(parts[: end + 1]) for end in range(1, len(parts))]
            asked = [self._client.create_async(one, acl=self.acl) for one in ancestors]
        if self._containers:
            container = self._client.handler.async_result()
            full = f"{self._client.chroot}{parent}"
            self._client._call(CreateContainer(full, self.acl), container)
            asked.append(container)
        else:
            asked.append(self._client.create_async(parent, acl=self.acl))
        if self._sequence_tokens:
            asked.append(self._client.create_async(f"{parent}/{_KEEPER}", acl=self.acl))
        return [promise_of(one) for one in asked]

    def _raise_cause(self, parents: list[Promise[Any]]) -> Steps[None]:
        """Raise why the parents could not be made, unless another attempt may do better."""
        for answer in parents:
            yield settled(answer)
        errors = [error for one in parents if (error := one.exception()) is not None]
        for error in errors:
            if isinstance(error, Unsupported) and self._containers:
                self._containers = False  # a server before 3.5
            elif not isinstance(error, (NodeExists, NoNode)):
                raise error

    def _remember(self, parent: str) -> None:
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known |= {"", parent}

    def _path(self, queue: str) -> str:
        return f"{self._root}/{nodes.component(queue, at_top=self._at_top)}"


def _may_have_contenders(listed: Promise[Any]) -> Steps[bool]:
    """Whether the children that are ``listed`` show one; also where they may not be read."""
    try:
        return any(nodes.sequence_of(child) is not None for child in (yield listed))
    except AuthenticationFailed:
        return True
