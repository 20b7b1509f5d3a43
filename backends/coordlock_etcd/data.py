"""Data: a range for a reading, a transaction for a write, and for what a contender guards.

Why a reading shows all that was written before. etcd's readings are linearizable, which says as
much, but servers before 3.4.42, 3.5.28 and 3.6.9 may show the past after a pause (etcd #20418). So
`Cluster` refuses an answer that is older than what the client has seen. That suffices for a guarded
read: the client has seen every conflicting grant before its own end, by an event or an answer of
some revision. Those grants wrote before that: etcd makes a guarded write only while the contender
is there. So their writes have smaller revisions.

A write is never sent twice, unless the first attempt certainly reached no etcd.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from coordlock.backend import (
    Delete,
    Expect,
    Listing,
    Operation,
    Put,
    Read,
    VersionedValue,
    Written,
)
from coordlock.errors import BackendError, BackendUnavailable, Evicted, VersionMismatch
from coordlock.model.contender import Contender
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE, NoSpace
from coordlock_etcd.rpc import TXN
from coordlock_etcd.session import EtcdSession

__all__ = ["EtcdData"]


class EtcdData(EtcdSession):
    """The part of the backend that reads and writes beside the queues."""

    def read(self, where: str, *, guard: Contender | None = None) -> Promise[Listing]:
        layout = self._layout
        key, end = layout.range_of(where)
        request = requests.guarded_read(guard, pb.RangeRequest(key=key, range_end=end))

        def listing(reply: pb.TxnResponse) -> Listing:
            if guard is not None and not reply.succeeded:
                raise Evicted(guard.key)
            found = {
                layout.path(kv.key): VersionedValue(kv.value, kv.version)
                for kv in reply.responses[0].response_range.kvs
                if layout.is_at(where, kv.key)
            }
            return Listing(dict(sorted(found.items())), reply.header.revision)

        return self._connection.call(TXN, request, listing)

    def names(self, folder: str, first: int | None = None, split: str = "") -> Promise[list[str]]:
        layout = self._layout
        key, end = layout.range_of(folder)
        middle = layout.at(folder + split)
        parts = [(key, middle), (middle, end)] if split else [(key, end)]
        ranges = [pb.RangeRequest(key=key, range_end=end, limit=first or 0) for key, end in parts]
        request = pb.TxnRequest(success=[pb.RequestOp(request_range=one) for one in ranges])

        def found(reply: pb.TxnResponse) -> list[str]:
            kvs = chain.from_iterable(one.response_range.kvs for one in reply.responses)
            return [layout.path(kv.key).removeprefix(folder) for kv in kvs]  # etcd sorts them

        return self._connection.call(TXN, request, found)

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[Written]:
        request = requests.guarded_writes(guards, operations, self._layout)
        changes = any(isinstance(one, Put | Delete) for one in operations)
        read = partial(_written, operations, guards)

        def steps() -> Steps[Written]:
            written: Written
            try:
                written = yield self._connection.call(TXN, request, read, once=changes)
            except NoSpace as error:
                raise BackendUnavailable(
                    SERVICE, f"{error.reason}; it may have been made"
                ) from None
            return written

        return run_in_background(steps())


def _written(
    operations: Sequence[Operation], guards: Sequence[Contender], reply: pb.TxnResponse
) -> Written:
    if reply.succeeded:
        keys = [one.key for one in operations if isinstance(one, Read)]
        read = [one.response_range.kvs for one in reply.responses[-len(keys) :]] if keys else []
        values = {
            key: VersionedValue(kvs[0].value, kvs[0].version)
            for key, kvs in zip(keys, read, strict=True)
            if kvs
        }
        return Written(reply.header.revision, values=values)
    found = [one.response_range.kvs for one in reply.responses]
    for contender, mine in zip(guards, found, strict=False):
        if not mine or mine[0].create_revision != contender.order:
            raise Evicted(contender.key)
    expected = (one for one in operations if isinstance(one, Expect))
    for one, kvs in zip(expected, found[len(guards) :], strict=True):
        if one.version != (kvs[0].version if kvs else 0):
            raise VersionMismatch(one.key, one.version)
    raise BackendError(SERVICE, "a transaction failed though all of its conditions hold")
