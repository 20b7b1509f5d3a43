"""What contenders publish: beside their owners, in the values of their keys.

The keys alone tell who stands in a queue and, of most contenders, what they claim. So queues are
read without values, and once more with them where a convertible contender is listed.
"""

from __future__ import annotations

from coordlock.errors import Evicted, VersionMismatch
from coordlock.model.contender import Contender, Owner
from coordlock_etcd import messages_pb2 as pb

__all__ = ["published"]


def published(contender: Contender, value: bytes, version: int, reply: pb.TxnResponse) -> None:
    """What the answer to a publication says: see `PublishedValues.publish`."""
    if reply.succeeded:
        return
    kvs = reply.responses[0].response_range.kvs
    if not kvs or kvs[0].create_revision != contender.order:
        raise Evicted(contender.key)
    if kvs[0].version == version + 1 and Owner.published(kvs[0].value) == value:
        return  # a request before this one was made, and its answer lost
    raise VersionMismatch(contender.key, version)
