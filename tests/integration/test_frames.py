"""The fault proxy between real clients and real servers: kazoo and ZooKeeper, gRPC and etcd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from coordlock.testing.connection import Connection
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper

TIMEOUT = 30.0


class TestKazoo:
    @pytest.fixture
    def proxy(self, zookeeper: ZooKeeper) -> Iterator[FaultProxy]:
        with FaultProxy(zookeeper.host, zookeeper.port, ZooKeeperFrames) as started:
            yield started

    @pytest.fixture
    def client(self, zookeeper: ZooKeeper, proxy: FaultProxy, root: str) -> Iterator[Any]:
        with zookeeper.kazoo(hosts=f"{proxy.host}:{proxy.port}") as client:
            client.create(root)
            yield client
            proxy.heal()
            client.delete(root, recursive=True)

    def test_each_request_is_counted_once_under_its_name(
        self, proxy: FaultProxy, client: Any, root: str
    ) -> None:
        with proxy.counting() as sent:
            client.create(f"{root}/a-", b"", ephemeral=True, sequence=True, include_data=True)
            children = client.get_children(root)
            client.exists(f"{root}/{children[0]}", watch=lambda _: None)
            client.delete(f"{root}/{children[0]}")
        expected = {"create2": 1, "getChildren": 1, "exists": 1, "delete": 1}
        assert without_pings(sent.requests) == expected
        assert without_pings(sent.replies) == expected | {"event": 1}


def without_pings(kinds: dict[str, int]) -> dict[str, int]:
    return {kind: count for kind, count in kinds.items() if kind != "ping"}


class TestGrpc:
    """Messages are written by hand, with the field numbers of etcd's rpc.proto."""

    @pytest.fixture
    def proxy(self, etcd: Etcd) -> Iterator[FaultProxy]:
        with FaultProxy(etcd.host, etcd.port, GrpcFrames) as started:
            yield started

    @pytest.fixture
    def channel(self, proxy: FaultProxy) -> Iterator[grpc.Channel]:
        options = [("grpc.enable_retries", 0)]
        with grpc.insecure_channel(f"{proxy.host}:{proxy.port}", options) as channel:
            yield channel

    def test_each_message_is_counted_under_its_method(
        self, proxy: FaultProxy, channel: grpc.Channel, root: str
    ) -> None:
        with proxy.counting() as sent:
            for _ in range(3):
                call(channel, "Maintenance/Status", b"")
            call(channel, "KV/Put", field(1, root.encode()) + field(2, b"value"))
            assert b"value" in call(channel, "KV/Range", field(1, root.encode()))
        assert sent.requests == {"Status": 3, "Put": 1, "Range": 1}
        assert sent.replies == {"Status": 3, "Put": 1, "Range": 1}
        assert sent.connections == 1

    def test_every_message_of_a_stream_is_counted(
        self, proxy: FaultProxy, channel: grpc.Channel, root: str
    ) -> None:
        with proxy.counting() as sent:
            stream: grpc.StreamStreamMultiCallable[bytes, bytes]
            stream = channel.stream_stream("/etcdserverpb.Lease/LeaseKeepAlive")
            replies = stream(iter([field(1, 12345)] * 3), timeout=TIMEOUT)
            assert len(list(replies)) == 3
        assert sent.requests == {"LeaseKeepAlive": 3}
        assert sent.replies == {"LeaseKeepAlive": 3}

    def test_messages_longer_than_a_frame_are_one_message(
        self, proxy: FaultProxy, channel: grpc.Channel, root: str
    ) -> None:
        value = bytes(200_000)
        with proxy.counting() as sent:
            call(channel, "KV/Put", field(1, root.encode()) + field(2, value))
            assert value in call(channel, "KV/Range", field(1, root.encode()))
        assert sent.requests == sent.replies == {"Put": 1, "Range": 1}

    def test_a_postponed_put_happens_after_its_sender_saw_it_fail(
        self, etcd: Etcd, proxy: FaultProxy, channel: grpc.Channel, root: str
    ) -> None:
        proxy.on_request("Put", Connection.postpone_request)
        with pytest.raises(grpc.RpcError):
            call(channel, "KV/Put", field(1, root.encode()) + field(2, b"value"))
        assert etcd.etcdctl("get", root) == ""
        proxy.heal()
        eventually(lambda: etcd.etcdctl("get", root), "the late write")


def field(number: int, value: bytes | int) -> bytes:
    """One field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


def call(channel: grpc.Channel, method: str, request: bytes) -> bytes:
    # Without serializers a stub takes and gives bytes.
    stub: grpc.UnaryUnaryMultiCallable[bytes, bytes]
    stub = channel.unary_unary(f"/etcdserverpb.{method}")
    return stub(request, timeout=TIMEOUT, wait_for_ready=True)
