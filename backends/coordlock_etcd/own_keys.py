"""The keys of one client's contenders, most of which had earlier contenders before. No I/O.

etcd keeps a deleted key in its index until its history is compacted, and looks at each when it
reads a range. So with a new key for each contender, an acquire would take longer with each acquire
since. Here a queue has about as many keys as the client ever had contenders in it at a time.

A key and its creation revision together are one contender. A key comes back to its queue after one
request that may have created it, which was answered, and a deletion that succeeded, if each
deletion of the key compared the revision. Then no request is left that could create it, and none
that could delete the next contender's. Whatever had another request, or publishes a value, has a
key of its own for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coordlock.model.contender import Entry

__all__ = ["OwnKeys"]

#: For how many queues the client keeps keys, and how many for each.
_MAX_QUEUES: Final = 1000
_MAX_KEYS: Final = 100


@dataclass(slots=True)
class _Own:
    """The key of an entry, and its creation revision, once that is known.

    ``attempts``: how many requests to add it were sent; once that was answered, to remove it.
    ``returns``: whether no request is left that could create or delete it once it was deleted.
    """

    key: bytes
    order: int | None = None
    attempts: int = 0
    returns: bool = True


class OwnKeys:
    """Which keys the entries of one client have, from their first request on.

    Its steps need no lock: a signal handler or another thread between two of them may cost a key
    its return, and no more.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, _Own] = {}
        #: The entries' ids by what etcd shows of their contenders.
        self._ids: dict[tuple[bytes, int], str] = {}
        #: By what the keys start with; the latest comes last.
        self._free: dict[bytes, list[bytes]] = {}

    def adding(self, entry: Entry, prefix: bytes) -> None:
        """A request may add ``entry``, whose key starts with ``prefix``."""
        if (own := self._by_id.get(entry.id)) is not None:
            own.returns = False
        else:
            free = [] if entry.publishes else self._free.get(prefix, [])
            key = free.pop() if free else prefix + entry.id.encode()
            self._by_id[entry.id] = own = _Own(key)
        own.attempts += 1

    def key(self, entry: Entry, prefix: bytes) -> bytes:
        """The key of ``entry``, which starts with ``prefix``."""
        own = self._by_id.get(entry.id)
        return prefix + entry.id.encode() if own is None else own.key

    def removing(self, entry: Entry) -> int | None:
        """A request may remove ``entry``, created at this revision; None if no answer told it."""
        if (own := self._by_id.get(entry.id)) is None:
            return None
        own.attempts += 1
        own.returns &= own.order is not None
        return own.order

    def attempts(self, entry: Entry) -> int:
        """How many requests in a row, to add ``entry`` or to remove it, have had no answer."""
        own = self._by_id.get(entry.id)
        return 0 if own is None else own.attempts

    def id(self, key: bytes, order: int) -> str | None:
        """The id of the entry that has ``key``, created at ``order``; None for others' keys."""
        return self._ids.get((key, order))

    def added(self, entry: Entry, order: int) -> None:
        """An answer shows that ``entry`` was created at ``order``."""
        if (own := self._by_id.get(entry.id)) is not None:
            own.order, own.attempts = order, 0
            self._ids[own.key, order] = entry.id

    def refused(self, entry: Entry) -> None:
        """An answer shows that etcd has not added ``entry``."""
        self.removed(entry, was_there=True)

    def removed(self, entry: Entry, *, was_there: bool) -> None:
        """A deletion was answered: whether it has removed what was added.

        Where the key does not return, a late request may add it, and the kernel looks for it again:
        so a key that does not follow from the entry's id is remembered.
        """
        own = self._by_id.get(entry.id)
        if own is None or not (own.returns or own.key.endswith(entry.id.encode())):
            return
        if self._by_id.pop(entry.id, None) is None:
            return  # a signal handler or another thread did it
        if own.order is not None:
            self._ids.pop((own.key, own.order), None)
        if not own.returns:
            return
        if was_there and not entry.publishes:
            prefix = own.key[: own.key.rindex(b"-") + 1]
            free = self._free.pop(prefix, [])
            self._free[prefix] = [*free, own.key][:_MAX_KEYS]
            if len(self._free) > _MAX_QUEUES:
                self._free.pop(next(iter(self._free)), None)

    def clear(self) -> None:
        """The session has ended, and with it whatever was added."""
        self._by_id.clear()
        self._ids.clear()
