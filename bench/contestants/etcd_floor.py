"""What no lock on etcd through gRPC can go below: its messages, and nothing around them."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import grpc
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import rpc

from bench.contestants.contestant import Contestant

__all__ = ["EtcdFloor", "EtcdFutures", "EtcdQueue"]


DELETE_RANGE = rpc.Method(
    "/etcdserverpb.KV/DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse
)


def stub(channel: grpc.Channel, method: rpc.Method[Any, Any]) -> Any:
    return channel.unary_unary(method.path, method.encode, method.decode)


class EtcdFloor(Contestant):
    """One transaction of put and range; then delete. gRPC's calls are made where they block."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._channel = grpc.insecure_channel(address)
        self._txn = stub(self._channel, rpc.TXN)
        self._delete = stub(self._channel, DELETE_RANGE)
        self._range = stub(self._channel, rpc.RANGE)
        granted = stub(self._channel, rpc.LEASE_GRANT)(pb.LeaseGrantRequest(TTL=600))
        self._lease: int = granted.ID
        self._id = uuid4().hex  # the same each time: etcd looks at all keys that it has deleted

    def acquire(self, name: str) -> bytes:
        key = self.key(name)
        self._txn(self.enqueue(name, key))
        return key

    def release(self, held: bytes) -> None:
        self._delete(pb.DeleteRangeRequest(key=held))

    def wait(self, name: str) -> float:
        """When the event came that the one contender has left: a commit and an event."""
        found = self._range(self.queue(name))
        create = pb.WatchCreateRequest(
            key=found.kvs[0].key,
            start_revision=found.header.revision + 1,
            filters=[pb.WatchCreateRequest.NOPUT],
        )
        outgoing: queue.SimpleQueue[pb.WatchRequest | None] = queue.SimpleQueue()
        outgoing.put(pb.WatchRequest(create_request=create))

        def requests() -> Iterator[pb.WatchRequest]:
            while (request := outgoing.get()) is not None:
                yield request

        watching = self._channel.stream_stream(rpc.WATCH.path, rpc.WATCH.encode, rpc.WATCH.decode)(
            requests()
        )
        next(one for one in watching if one.events)
        gone = time.monotonic()
        outgoing.put(None)
        watching.cancel()
        self._held[name] = None
        return gone

    def key(self, name: str) -> bytes:
        return f"{self.root}/{name}/lock-{self._id}".encode()

    def queue(self, name: str) -> pb.RangeRequest:
        prefix = f"{self.root}/{name}/".encode()
        return pb.RangeRequest(
            key=prefix,
            range_end=prefix[:-1] + b"0",
            limit=2,
            sort_order=pb.RangeRequest.DESCEND,
            sort_target=pb.RangeRequest.CREATE,
        )

    def enqueue(self, name: str, key: bytes) -> pb.TxnRequest:
        return pb.TxnRequest(
            success=[
                pb.RequestOp(request_put=pb.PutRequest(key=key, lease=self._lease)),
                pb.RequestOp(request_range=self.queue(name)),
            ]
        )

    def close(self) -> None:
        self._channel.close()


class EtcdFutures(EtcdFloor):
    """The same through calls that give futures, as whoever must not block makes them."""

    def acquire(self, name: str) -> bytes:
        key = self.key(name)
        self._txn.future(self.enqueue(name, key)).result()
        return key

    def release(self, held: bytes) -> None:
        self._delete.future(pb.DeleteRangeRequest(key=held)).result()


class EtcdQueue(EtcdFloor):
    """Those messages as a queue: whoever is not alone waits until the one before it has left.

    One watch tells all departures, on a stream that the calling thread reads. No session that ends,
    and nothing is reconnected.
    """

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        prefix = f"{root}/".encode()
        create = pb.WatchCreateRequest(
            key=prefix, range_end=prefix[:-1] + b"0", filters=[pb.WatchCreateRequest.NOPUT]
        )
        self._outgoing: queue.SimpleQueue[pb.WatchRequest | None] = queue.SimpleQueue()
        self._outgoing.put(pb.WatchRequest(create_request=create))
        watch = self._channel.stream_stream(rpc.WATCH.path, rpc.WATCH.encode, rpc.WATCH.decode)
        told = watch(iter(self._outgoing.get, None))
        next(told)  # from now on, nothing is missed
        self._gone = (event.kv for answer in told for event in answer.events)

    def acquire(self, name: str) -> bytes:
        key = self.key(name)
        found = self._txn(self.enqueue(name, key)).responses[1].response_range.kvs
        if len(found) > 1:
            ahead = found[1]
            next(
                one
                for one in self._gone
                if one.key == ahead.key and one.mod_revision > ahead.create_revision
            )
        return key

    def close(self) -> None:
        self._outgoing.put(None)
        super().close()
