"""Contenders in several queues that etcd makes, and deletes, in one transaction.

All have one creation revision, which tells them from what another attempt may have made: a set is
adopted only if each of its keys is there with that revision and this session's lease. Otherwise a
part of it has gone, and others may have been granted behind the gap. Then what is left is deleted
first, because a transaction can't delete a key and create it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from coordlock.errors import BackendUnavailable, TooLarge
from coordlock.model.contender import Contender, Entry, Snapshot, are_known
from coordlock.runtime.promise import Promise, all_of
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.keys import Layout
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection

__all__ = ["Sets"]

#: How often a set is added anew within one request of the kernel's, which repeats it after that.
_ATTEMPTS = 3


class Sets:
    """What a backend adds for `coordlock.backend.EntrySets`."""

    def __init__(
        self,
        layout: Layout,
        connection: Connection,
        snapshot: Callable[[str, Contender], Promise[Snapshot]],
        withdraw: Callable[[Entry], Promise[bool]],
    ) -> None:
        self._layout = layout
        self._connection = connection
        self._snapshot = snapshot
        self._withdraw = withdraw

    def enqueue(
        self, entries: Sequence[Entry], lease: int, attempts: int = _ATTEMPTS
    ) -> Promise[tuple[Snapshot, ...]]:
        """See `EntrySets.enqueue_all`."""
        request = requests.enqueue_all(self._layout, entries, lease)
        read = partial(self._enqueued, entries, lease, attempts)
        answer = self._connection.call(TXN, request, read)
        told: Promise[tuple[Snapshot, ...]] = Promise()
        answer.add_done_callback(partial(_tell, told, len(entries)))
        return told

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        """See `EntrySets.withdraw_all`."""
        request = requests.delete_all([self._layout.key(entry) for entry in entries])
        answer = self._connection.call(TXN, request, _has_deleted_all)
        told: Promise[bool] = Promise()
        answer.add_done_callback(partial(self._withdrawn, told, entries))
        return told

    def _withdrawn(
        self, told: Promise[bool], entries: Sequence[Entry], answer: Promise[bool]
    ) -> None:
        if not isinstance(answer.exception(), TooLarge):
            told.follow(answer)
            return
        # The set was too large to be added, too, or the server's limit is lower by now. Either way
        # nothing may stay that an attempt has made.
        each = all_of([self._withdraw(entry) for entry in entries])
        each.add_done_callback(partial(_tell_all, told))

    def _enqueued(
        self, entries: Sequence[Entry], lease: int, attempts: int, reply: pb.TxnResponse
    ) -> tuple[Snapshot, ...] | Promise[tuple[Snapshot, ...]]:
        revision = reply.header.revision
        if reply.succeeded:
            queues = reply.responses[1::2]
            snapshots = tuple(
                [
                    requests.enqueued(self._layout, entry, one.response_range, revision)
                    for entry, one in zip(entries, queues, strict=True)
                ]
            )
            if all(are_known(one.contenders) for one in snapshots):
                return snapshots
            return all_of(self._snapshot(one.queue, one.contenders[-1]) for one in snapshots)
        found = [kv for one in reply.responses for kv in one.response_range.kvs]
        is_whole = len(found) == len(entries) and len({kv.create_revision for kv in found}) == 1
        if is_whole and all(kv.lease == lease for kv in found):
            return all_of(
                self._snapshot(
                    entry.queue,
                    requests.snapshot(self._layout, entry.queue, [kv], revision).contenders[0],
                )
                for entry, kv in zip(entries, found, strict=True)
            )
        if not attempts:
            raise BackendUnavailable(SERVICE, "a part of the contenders was there, again and again")
        removal = requests.delete_all([kv.key for kv in found])
        again = partial(self.enqueue, entries, lease, attempts - 1)
        return self._connection.call(TXN, removal, lambda _: again())


def _has_deleted_all(reply: pb.TxnResponse) -> bool:
    return all(one.response_delete_range.deleted for one in reply.responses)


def _tell_all(told: Promise[bool], each: Promise[tuple[bool, ...]]) -> None:
    error = each.exception()
    if error is None:
        told.resolve(all(each.result()))
    else:
        told.fail(error)


def _tell(
    told: Promise[tuple[Snapshot, ...]], count: int, answer: Promise[tuple[Snapshot, ...]]
) -> None:
    if not isinstance(error := answer.exception(), TooLarge):
        told.follow(answer)
        return
    told.fail(
        TooLarge(
            SERVICE,
            f"{count} locks in one step are too many: they take {2 * count} operations of one "
            f"transaction, and {requests.MAX_OPERATIONS // 2} locks fit by the servers' default; "
            f"{error.reason}",
        )
    )
