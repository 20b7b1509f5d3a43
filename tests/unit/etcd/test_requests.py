from __future__ import annotations

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.keys import Layout

from coordlock.backend import Expect, Operation
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender

LAYOUT = Layout.below("/r")
ME = Contender("me", "/r/q/me", Mode.EX, 9)


def test_a_deletion_by_creation_spares_a_later_key_of_the_same_name() -> None:
    txn = requests.delete_all({b"/r/q/k": 9})
    [compare] = txn.compare
    assert (compare.key, compare.create_revision) == (b"/r/q/k", 9)
    assert txn.success[0].request_delete_range.key == b"/r/q/k"
    assert not txn.failure


def test_the_message_package_is_our_own() -> None:
    assert pb.DESCRIPTOR.package == "coordlock.etcd.v1"


def test_a_transaction_without_writes_still_goes_through_the_log() -> None:
    """etcd takes one of ranges alone for a read."""
    nothing: list[Operation] = []
    for operations in (nothing, [Expect("/a", 1)]):
        txn = requests.guarded_writes([ME], operations, LAYOUT)
        [write] = txn.success
        assert write.request_delete_range.key == b"/r/q/me\0"
