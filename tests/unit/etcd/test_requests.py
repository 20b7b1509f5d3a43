from __future__ import annotations

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.keys import Layout, enqueued, snapshot

from coordlock.backend import Expect, Operation
from coordlock.model.claim import Mode, Permit
from coordlock.model.contender import Contender, Entry, Owner

GUID = "0123456789abcdef0123456789abcdef"
LAYOUT = Layout.below("/r")
OWNER = Owner("host", 7, "label", 1.5)
ME = Contender("me", "/r/q/me", Mode.EX, 9)


def test_a_deletion_by_creation_spares_a_later_key_of_the_same_name() -> None:
    txn = requests.delete_created(b"/r/q/k", 9)
    [compare] = txn.compare
    assert (compare.key, compare.create_revision) == (b"/r/q/k", 9)
    assert txn.success[0].request_delete_range.key == b"/r/q/k"
    assert not txn.failure


def test_a_snapshot_is_in_ascending_order_with_creation_revisions_as_tokens() -> None:
    kvs = [
        pb.KeyValue(key=b"/r/q/5c", create_revision=9, mod_revision=12, value=b"", lease=0x5C),
        pb.KeyValue(
            key=f"/r/q/rlock-{GUID}".encode(),
            create_revision=4,
            value=OWNER.encode(),
            lease=0x1234,
        ),
    ]
    seen = snapshot(LAYOUT, "q", kvs, 20, omitted=3)
    assert (seen.queue, seen.revision, seen.omitted) == ("q", 20, 3)
    first, second = seen.contenders
    assert (first.id, first.claim, first.owner) == (GUID, Mode.PR, OWNER)
    assert (first.order, first.token, first.session) == (4, 4, "0000000000001234")
    assert (second.id, second.claim, second.owner) == ("5c", Mode.EX, None)
    assert (second.order, second.token, second.session) == (9, 9, "000000000000005c")


def test_who_has_just_come_is_the_newest_and_known_already() -> None:
    kvs = [
        pb.KeyValue(key=f"/r/q/permit3-{GUID}".encode(), create_revision=9, lease=0x5C),
        pb.KeyValue(key=b"/r/q/5d", create_revision=8),
        pb.KeyValue(key=b"/r/q/5c", create_revision=4),
    ]
    entry = Entry("q", GUID, Permit(3), OWNER)
    seen = enqueued(LAYOUT, entry, pb.RangeResponse(kvs=kvs, count=7), 9)
    assert (seen.queue, seen.revision, seen.omitted) == ("q", 9, 4)
    assert [one.id for one in seen.contenders] == ["5c", "5d", GUID]
    kvs[0].value = OWNER.encode()
    assert seen == snapshot(LAYOUT, "q", kvs, 9, omitted=4)


def test_the_message_package_is_our_own() -> None:
    assert pb.DESCRIPTOR.package == "coordlock.etcd.v1"


def test_a_transaction_without_writes_still_goes_through_the_log() -> None:
    """etcd takes one of ranges alone for a read."""
    nothing: list[Operation] = []
    for operations in (nothing, [Expect("/a", 1)]):
        txn = requests.guarded_writes([ME], operations, LAYOUT)
        [write] = txn.success
        assert write.request_delete_range.key == b"/r/q/me\0"
