"""The methods of etcd's gRPC services that are called here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from coordlock_etcd import messages_pb2 as pb

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


class Method(Generic[Request, Reply]):
    """A method: where it is, what makes bytes of its request, and a reply of bytes.

    Only the answers of those that ask the store are linearizable; others may come from any member.
    """

    def __init__(self, path: str, request: type[Request], reply: type[Reply]) -> None:
        self.path: Final = path
        self.is_linearizable: Final = "/etcdserverpb.KV/" in path
        self.encode: Final[Callable[[Request], bytes]] = request.SerializeToString
        self.decode: Final[Callable[[bytes], Reply]] = reply.FromString


AUTHENTICATE: Final = Method(
    "/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse
)
LEASE_GRANT: Final = Method(
    "/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse
)
#: A stream for etcd, called here with one request at a time: see `Connection.call`.
LEASE_KEEP_ALIVE: Final = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive",
    pb.LeaseKeepAliveRequest,
    pb.LeaseKeepAliveResponse,
)
LEASE_REVOKE: Final = Method(
    "/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse
)
RANGE: Final = Method("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
STATUS: Final = Method("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse)
TXN: Final = Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
WATCH: Final = Method("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
