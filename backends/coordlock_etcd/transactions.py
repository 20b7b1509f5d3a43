"""Data guarded by a contender: one etcd transaction for a read, one for a commit.

Why a read shows all that was written before. Every conflicting grant before ours was seen to have
ended, by an event or an answer of some revision. Its writes have smaller revisions: each was made
while its contender was there. So a read at that revision or a later one shows them. etcd's reads
are linearizable, which says as much, but servers before 3.4.42, 3.5.28 and 3.6.9 may show the past
after a pause (etcd #20418). To make the read an entry of the log would help, at the price of a
write to the disks of a majority. The revision of the answer is as good a proof, and costs nothing.

A commit is never sent twice, unless the first attempt certainly reached no etcd.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coordlock.backend import Expect, Operation, Stored
from coordlock.errors import BackendError, BackendUnavailable, Evicted, VersionMismatch
from coordlock.model.contender import Contender
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE, NoSpace
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection

__all__ = ["GuardedData"]


class GuardedData:
    """What a backend adds for `coordlock.transaction.Transactions`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fetch(self, contender: Contender, key: str) -> Promise[Stored | None]:
        """See `Transactions.fetch`."""
        request = requests.guarded_read(_key(contender), contender.order, key)
        seen = self._connection.cluster.revision
        return self._connection.call(TXN, request, partial(_fetched, contender, seen))

    def commit(self, guards: Sequence[Contender], operations: Sequence[Operation]) -> Promise[None]:
        """See `Transactions.commit`."""
        places = [(_key(one), one.order) for one in guards]
        request = requests.guarded_writes(places, operations)
        promise: Promise[None] = Promise()

        def answered(answer: Promise[None]) -> None:
            error = answer.exception()
            if isinstance(error, NoSpace):
                error = BackendUnavailable(SERVICE, f"{error.reason}; it may have been made")
            if error is None:
                promise.resolve(None)
            else:
                promise.fail(error)

        answer = self._connection.call(TXN, request, partial(_committed, guards, operations))
        answer.add_done_callback(answered)
        return promise


def _fetched(contender: Contender, seen: int, reply: pb.TxnResponse) -> Stored | None:
    if reply.header.revision < seen:
        raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
    if not reply.succeeded:
        raise Evicted(contender.key)
    kvs = reply.responses[0].response_range.kvs
    return Stored(kvs[0].value, kvs[0].version) if kvs else None


def _committed(
    guards: Sequence[Contender], operations: Sequence[Operation], reply: pb.TxnResponse
) -> None:
    if reply.succeeded:
        return
    seen = [one.response_range.kvs for one in reply.responses]
    for contender, mine in zip(guards, seen, strict=False):
        if not mine or mine[0].create_revision != contender.order:
            raise Evicted(contender.key)
    expected = (one for one in operations if isinstance(one, Expect))
    for one, kvs in zip(expected, seen[len(guards) :], strict=True):
        if one.version != (kvs[0].version if kvs else 0):
            raise VersionMismatch(one.key, one.version)
    raise BackendError(SERVICE, "a transaction failed though all of its conditions hold")


def _key(contender: Contender) -> bytes:
    return contender.key.encode("utf-8", "surrogateescape")
