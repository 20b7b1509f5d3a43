"""Data that needs no lock: a range for a reading, a transaction for a write.

A reading is linearizable, so it shows all that was acknowledged before. Servers before 3.4.42,
3.5.28 and 3.6.9 may show the past after a pause (etcd #20418): an answer that is older than what
this client has seen is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from coordlock.backend import Listing, Operation
from coordlock.errors import BackendUnavailable
from coordlock.model.contender import Contender
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.keys import Layout
from coordlock_etcd.places import DataPlace
from coordlock_etcd.rpc import RANGE
from coordlock_etcd.transport import Connection
from coordlock_etcd.writes import write

__all__ = ["PlainData"]


class PlainData:
    """What a backend adds for `coordlock.backend.Data`, but for following."""

    def __init__(self, layout: Layout, connection: Connection) -> None:
        self._layout = layout
        self._connection = connection

    def read(self, where: str) -> Promise[Listing]:
        """See `Data.read`."""
        place = DataPlace(self._layout, where)
        seen = self._connection.cluster.revision
        return self._connection.call(RANGE, place.reading(), partial(_read, place, seen))

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender]) -> Promise[int]:
        """See `Data.write`."""
        placed = operations
        if not self._layout.has_slash:
            placed = [replace(one, key=one.key[1:]) for one in operations]
        return write(self._connection, guards, operations, lambda revision: revision, placed)


def _read(place: DataPlace, seen: int, reply: pb.RangeResponse) -> Listing:
    revision = reply.header.revision
    if revision < seen:
        raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
    place.read(place.parts(reply.kvs), revision)
    assert place.state is not None
    return place.state
