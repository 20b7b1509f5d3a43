"""Contenders in several queues that etcd creates, and deletes, in one transaction.

All have one creation revision, so another attempt's contenders have another one. A set is
adopted only if each of its keys is there with that revision and this session's lease. Otherwise a
part of it has gone, and others may have been granted behind the gap. Then the rest is deleted
first, because a transaction can't delete a key and create it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from coordlock.errors import BackendUnavailable, TooLarge
from coordlock.model.contender import Contender, Entry, Snapshot, are_known
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, all_of
from coordlock_etcd import keys, requests
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.keys import Layout
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection

__all__ = ["enqueue", "withdraw"]

#: How often a set is added anew within one request of the kernel, which repeats it after that.
_MAX_ATTEMPTS: Final = 4


def enqueue(
    layout: Layout,
    connection: Connection,
    snapshot: Callable[[str, Contender], Promise[Snapshot]],
    entries: Sequence[Entry],
    lease: int,
    within: float,
) -> Steps[tuple[Snapshot, ...]]:
    """Add a set: see `Backend.enqueue`. ``snapshot`` reads a queue up to one of the set.

    Each attempt may take ``within`` seconds.
    """

    def read(reply: pb.TxnResponse) -> tuple[Snapshot, ...] | list[pb.KeyValue]:
        if not reply.succeeded:
            return [kv for one in reply.responses for kv in one.response_range.kvs]
        ends = [one.response_range for one in reply.responses[1::2]]
        return tuple(
            keys.enqueued(layout, entry, end, reply.header.revision)
            for entry, end in zip(entries, ends, strict=True)
        )

    snapshots: tuple[Snapshot, ...]
    for _ in range(_MAX_ATTEMPTS):
        try:
            request = requests.enqueue_all(layout, entries, lease)
            found = yield connection.call(TXN, request, read, timeout=within, once=True)
        except TooLarge as error:
            raise _too_many(len(entries), error) from None
        if isinstance(found, tuple):
            if all(are_known(one.contenders) for one in found):
                return found
            snapshots = yield all_of(snapshot(one.queue, one.contenders[-1]) for one in found)
            return snapshots
        by_key = {layout.key(entry): entry for entry in entries}
        for kv in found:
            keys.check_is_of(by_key[kv.key], kv, lease)
        is_whole = len(found) == len(entries) and len({kv.create_revision for kv in found}) == 1
        if is_whole and all(kv.lease == lease for kv in found):
            for entry in entries:
                layout.own.added(entry, found[0].create_revision)
            queues = [entry.queue for entry in entries]
            mine = (
                keys.snapshot(layout, queue, [kv], 0).contenders[0]
                for queue, kv in zip(queues, found, strict=True)
            )
            snapshots = yield all_of(map(snapshot, queues, mine))
            return snapshots
        # By revision, so that a request that comes late spares what is added next.
        kept = {kv.key: kv.create_revision for kv in found}
        yield connection.call(TXN, requests.delete_all(kept), _nothing)
    raise BackendUnavailable(
        SERVICE, "only part of the contenders was in the queues, on every attempt"
    )


def withdraw(
    layout: Layout,
    connection: Connection,
    alone: Callable[[Entry], Promise[bool]],
    entries: Sequence[Entry],
) -> Steps[bool]:
    """Remove a set: see `Backend.withdraw`. ``alone`` removes one of the set."""
    within = connection.patience(max(map(layout.own.removing, entries)))
    request = requests.withdraw(layout, entries)
    read = requests.has_deleted_all
    deleted = False
    # A set that was too large to be added has left nothing, unless the limit was higher then.
    with suppress(TooLarge):
        deleted = yield connection.call(TXN, request, read, timeout=within, once=True)
    if not deleted:  # one has left before, and kept the others
        return all((yield all_of(map(alone, entries))))
    for entry in entries:
        layout.own.removed(entry, was_there=True)
    return True


def _nothing(_: Any) -> None:
    pass


def _too_many(count: int, error: TooLarge) -> TooLarge:
    return TooLarge(
        SERVICE,
        f"{count} locks in one step are too many: they take {2 * count} operations of one "
        f"transaction, and {requests.MAX_OPERATIONS // 2} locks fit by the servers' default; "
        f"{error.reason}",
    )
