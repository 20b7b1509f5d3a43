"""Requests to etcd. No I/O. Used by the name of this module: ``requests.enqueue(...)``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from coordlock.backend import Delete, Expect, Operation, Put, Read
from coordlock.model.claim import AnyClaim, Mode, in_force
from coordlock.model.contender import Contender, Entry, Owner
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.keys import Layout, key_of, prefix_end

#: How many operations one transaction may hold, by etcd's default (--max-txn-ops).
MAX_OPERATIONS: Final = 128
#: How many contenders a request lists at least that stand before one.
LISTED: Final = 16


def enqueue(layout: Layout, entries: Sequence[Entry], lease: int) -> pb.TxnRequest:
    """Create all contenders and read their queues' ends; if one is there already, read only them.

    The answer has two responses for each entry, or one with what is there. The creation revision
    says whether a key exists. A range comes after its put and so shows the contender: it is the
    newest, and those before it are the nearest.
    """
    request = pb.TxnRequest()
    for entry in entries:
        key = layout.key(entry)
        put = pb.PutRequest(key=key, value=entry.owner.encode(entry.value), lease=lease)
        queue = nearest(layout.queue(entry.queue), max(entry.claim.window, LISTED) + 1)
        request.compare.append(_created(key, 0))
        request.success.extend([pb.RequestOp(request_put=put), *_reads([queue])])
        request.failure.extend(_reads([pb.RangeRequest(key=key)]))
    return request


def enqueue_unless_blocked(layout: Layout, entry: Entry, lease: int) -> pb.TxnRequest:
    """`enqueue` where no key may be in its way; else read its own key, and what `refused` shows."""
    request = enqueue(layout, [entry], lease)
    prefix = layout.queue(entry.queue)
    looks = [nearest(prefix, 1)]
    for start, end in _in_the_way(prefix, entry.claim):
        # Equal to zero is true of a range without keys, and of no key.
        request.compare.append(_created(start, 0, end))
        looks.append(_newest(start, end, LISTED))
    request.failure.extend(_reads(looks))
    return request


def publish(me: Contender, value: bytes, version: int) -> pb.TxnRequest:
    """Set what the contender ``me`` publishes, if it is at ``version``; else read its key."""
    key = key_of(me)
    data = (me.owner or Owner("", 0)).encode(value)
    put = pb.PutRequest(key=key, value=data, lease=int(me.session, 16))
    return pb.TxnRequest(
        compare=[_created(key, me.order), _at_version(key, version)],
        success=[pb.RequestOp(request_put=put)],
        failure=_reads([pb.RangeRequest(key=key)]),
    )


def withdraw(layout: Layout, entries: Sequence[Entry]) -> pb.TxnRequest:
    """Delete the contenders of ``entries``, created at the revisions that are known of them."""
    return delete_all({layout.key(entry): layout.own.removing(entry) for entry in entries})


def has_deleted_all(reply: pb.TxnResponse) -> bool:
    """Whether all keys of `delete_all` were there, created at their revisions."""
    deleted = (one.response_delete_range.deleted for one in reply.responses)
    return reply.succeeded and min(deleted) > 0


def delete_all(created: Mapping[bytes, int | None]) -> pb.TxnRequest:
    """Delete all keys, if each was ``created`` at its revision, where one is given.

    The answer to each deletion says whether the key was there.
    """
    return pb.TxnRequest(
        compare=[_created(key, order) for key, order in created.items() if order is not None],
        success=[_delete(key) for key in created],
    )


def nearest(prefix: bytes, limit: int = 0, upto: int = 0) -> pb.RangeRequest:
    """Read the newest ``limit`` keys under ``prefix`` that were created at ``upto`` or before.

    Zero stands for no bound.
    """
    return _newest(prefix, prefix_end(prefix), limit, upto)


def _newest(start: bytes, end: bytes, limit: int, upto: int = 0) -> pb.RangeRequest:
    return pb.RangeRequest(
        key=start,
        range_end=end,
        limit=limit,
        sort_order=pb.RangeRequest.DESCEND,
        sort_target=pb.RangeRequest.CREATE,
        max_create_revision=upto,
    )


def in_the_way(prefix: bytes, me: Contender) -> pb.TxnRequest:
    """Read ``me`` and what may be in its way."""
    ranges = [
        pb.RangeRequest(key=start, range_end=end, max_create_revision=me.order - 1)
        for start, end in _in_the_way(prefix, me.claim)
    ]
    return pb.TxnRequest(success=_reads([pb.RangeRequest(key=key_of(me)), *ranges]))


def _in_the_way(prefix: bytes, claim: AnyClaim) -> Iterator[tuple[bytes, bytes]]:
    """The ranges of the keys that may conflict with ``claim``.

    A key begins with the marker of its mode, so the keys of each mode that shares are one range,
    which is left out.
    """
    mine = in_force(claim)
    shared = (
        [mode.marker for mode in Mode if not mine.conflicts(mode)] if isinstance(mine, Mode) else []
    )
    # A key is the marker, a dash and the id, whose digits come before the letter g.
    start = prefix
    for marker in sorted(shared):
        yield start, prefix + marker.encode() + b"-"
        start = prefix + marker.encode() + b"-g"
    yield start, prefix_end(prefix)


def behind(prefix: bytes, order: int, revision: int) -> pb.RangeRequest:
    """Read the keys, at ``revision``, that were created after ``order``: to count them."""
    return pb.RangeRequest(
        key=prefix,
        range_end=prefix_end(prefix),
        revision=revision,
        min_create_revision=order + 1,
        keys_only=True,
    )


def keys_under(prefix: bytes) -> pb.RangeRequest:
    """Read all keys under ``prefix``, without values."""
    return pb.RangeRequest(key=prefix or b"\0", range_end=prefix_end(prefix), keys_only=True)


def presence(keys: Sequence[bytes]) -> pb.TxnRequest:
    """Read up to `MAX_OPERATIONS` single keys at one revision, without values."""
    return pb.TxnRequest(success=_reads(pb.RangeRequest(key=key, keys_only=True) for key in keys))


def changed(ranges: Iterable[tuple[bytes, bytes, int]]) -> pb.TxnRequest:
    """Read the keys in each range that were written after a revision, without values.

    The answer has the count of all keys there: it shows deletions.
    """
    return pb.TxnRequest(
        success=_reads(
            pb.RangeRequest(key=key, range_end=end, min_mod_revision=revision + 1, keys_only=True)
            for key, end, revision in ranges
        )
    )


def watch(id: int, key: bytes, end: bytes = b"", *, puts: bool = False) -> pb.WatchRequest:
    """Watch ``key`` for deletions, from etcd's present on.

    With ``puts``, for what is put there, too; with ``end``, all keys from ``key`` to before that.
    """
    return pb.WatchRequest(
        create_request=pb.WatchCreateRequest(
            key=key,
            range_end=end,
            filters=[] if puts else [pb.WatchCreateRequest.NOPUT],
            watch_id=id,
        )
    )


def unwatch(id: int) -> pb.WatchRequest:
    """End the watch ``id``."""
    return pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=id))


def guarded_read(me: Contender | None, reading: pb.RangeRequest) -> pb.TxnRequest:
    """Do ``reading``; if there is a contender ``me``, only while that is in its queue."""
    compare = [] if me is None else [_created(key_of(me), me.order)]
    return pb.TxnRequest(compare=compare, success=_reads([reading]))


def guarded_writes(
    guards: Sequence[Contender], operations: Sequence[Operation], layout: Layout
) -> pb.TxnRequest:
    """Do ``operations`` if the contenders ``guards`` are in their queues.

    Else read the keys of the conditions, in their order and without values: those of the guards,
    and each key with an expected version. What is to be read comes last in the answer.
    """
    expected = [one for one in operations if isinstance(one, Expect)]
    writes = [_write(one, layout) for one in operations if isinstance(one, Put | Delete)]
    read = [pb.RangeRequest(key=layout.at(one.key)) for one in operations if isinstance(one, Read)]
    if guards and not writes:
        # A transaction that only reads is no entry of the log, and would be answered like a read.
        # This key does not exist.
        writes = [_delete(key_of(guards[0]) + b"\0")]
    looked_at = (*map(key_of, guards), *(layout.at(one.key) for one in expected))
    return pb.TxnRequest(
        compare=[
            *(_created(key_of(one), one.order) for one in guards),
            *(_at_version(layout.at(one.key), one.version) for one in expected),
        ],
        success=[*writes, *_reads(read)],
        failure=_reads(pb.RangeRequest(key=key, keys_only=True) for key in looked_at),
    )


def _created(key: bytes, revision: int, range_end: bytes = b"") -> pb.Compare:
    return pb.Compare(
        target=pb.Compare.CREATE,
        result=pb.Compare.EQUAL,
        key=key,
        range_end=range_end,
        create_revision=revision,
    )


def _at_version(key: bytes, version: int) -> pb.Compare:
    return pb.Compare(target=pb.Compare.VERSION, result=pb.Compare.EQUAL, key=key, version=version)


def _reads(ranges: Iterable[pb.RangeRequest]) -> list[pb.RequestOp]:
    return [pb.RequestOp(request_range=one) for one in ranges]


def _write(operation: Put | Delete, layout: Layout) -> pb.RequestOp:
    key = layout.at(operation.key)
    if isinstance(operation, Delete):
        return _delete(key)
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=operation.data))


def _delete(key: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
