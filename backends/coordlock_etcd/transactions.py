"""Data guarded by a contender: one etcd transaction for a read, one for a commit.

Why a read shows all that was written before. Every conflicting grant before ours was seen to have
ended, by an event or an answer of some revision. Its writes have smaller revisions: each was made
while its contender was there. So a read at that revision or a later one shows them. etcd's reads
are linearizable, which says as much, but servers before 3.4.42, 3.5.28 and 3.6.9 may show the past
after a pause (etcd #20418). To make the read an entry of the log would help, at the price of a
write to the disks of a majority. The revision of the answer is as good a proof, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coordlock.backend import Operation, Stored
from coordlock.errors import BackendUnavailable, Evicted
from coordlock.model.contender import Contender
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection
from coordlock_etcd.writes import write

__all__ = ["GuardedData"]


class GuardedData:
    """What a backend adds for `coordlock.backend.Transactions`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fetch(self, contender: Contender, key: str) -> Promise[Stored | None]:
        """See `Transactions.fetch`."""
        request = requests.guarded_read(_key(contender), contender.order, key)
        seen = self._connection.cluster.revision
        return self._connection.call(TXN, request, partial(_fetched, contender, seen))

    def commit(self, guards: Sequence[Contender], operations: Sequence[Operation]) -> Promise[None]:
        """See `Transactions.commit`."""
        return write(self._connection, guards, operations, lambda _: None)


def _fetched(contender: Contender, seen: int, reply: pb.TxnResponse) -> Stored | None:
    if reply.header.revision < seen:
        raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
    if not reply.succeeded:
        raise Evicted(contender.key)
    kvs = reply.responses[0].response_range.kvs
    return Stored(kvs[0].value, kvs[0].version) if kvs else None


def _key(contender: Contender) -> bytes:
    return contender.key.encode("utf-8", "surrogateescape")
