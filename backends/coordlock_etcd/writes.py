"""Writes guarded by contenders: one etcd transaction, which checks them and writes.

It is never sent twice, unless the first attempt certainly reached no etcd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from coordlock.backend import Expect, Operation
from coordlock.errors import BackendError, BackendUnavailable, Evicted, VersionMismatch
from coordlock.model.contender import Contender
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE, NoSpace
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection

__all__ = ["write"]

T = TypeVar("T")


def write(
    connection: Connection,
    guards: Sequence[Contender],
    operations: Sequence[Operation],
    written: Callable[[int], T],
    placed: Sequence[Operation] | None = None,
) -> Promise[T]:
    """Do ``operations`` if all of ``guards`` are in their queues: what ``written`` makes of it.

    That is given the revision. ``placed`` are the operations with the keys that they have in etcd,
    where those are not what the caller calls them.
    """
    places = [(one.key.encode("utf-8", "surrogateescape"), one.order) for one in guards]
    request = requests.guarded_writes(places, operations if placed is None else placed)
    seen = connection.cluster.revision
    promise: Promise[T] = Promise()

    def answered(answer: Promise[T]) -> None:
        error = answer.exception()
        if isinstance(error, NoSpace):
            promise.fail(BackendUnavailable(SERVICE, f"{error.reason}; it may have been made"))
        else:
            promise.follow(answer)

    def read(reply: pb.TxnResponse) -> T:
        if reply.header.revision < seen:  # of a transaction that only compares: see `data`
            raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
        if not reply.succeeded:
            _explain(guards, operations, reply)
        return written(reply.header.revision)

    connection.call(TXN, request, read).add_done_callback(answered)
    return promise


def _explain(
    guards: Sequence[Contender], operations: Sequence[Operation], reply: pb.TxnResponse
) -> None:
    """Raise what tells why nothing was written."""
    seen = [one.response_range.kvs for one in reply.responses]
    for contender, mine in zip(guards, seen, strict=False):
        if not mine or mine[0].create_revision != contender.order:
            raise Evicted(contender.key)
    expected = (one for one in operations if isinstance(one, Expect))
    for one, kvs in zip(expected, seen[len(guards) :], strict=True):
        if one.version != (kvs[0].version if kvs else 0):
            raise VersionMismatch(one.key, one.version)
    raise BackendError(SERVICE, "a transaction failed though all of its conditions hold")
