"""coordlock on etcd: a lease per client, a key per contender, one transaction to acquire.

::

    backend       the contract: queues and observations
    session       the lease, from when it is granted until it has ended
    data          the contract: what is read and written beside the queues
    clock         the time, as a member tells it over HTTP
    watcher       departures, over one stream, and readings of keys where no watch is certain
    watches       what one watch reports, of a contender or of a whole short queue; pure
    observing     what is observed, over one stream
    status        the members, and known bugs of their versions
    transport     how requests reach the cluster, and answers the caller
    requests      what the client asks of etcd; no I/O
    keys          contenders as keys, and what their keys tell; no I/O
    own_keys      the client's own keys, which come back to their queues; no I/O
    errors        etcd's errors as coordlock's; pure
    rpc           the methods of etcd's API that the client calls
    messages_pb2  their messages, generated from messages.proto
    quiet         gRPC's own log

The service must be etcd 3.4 or later.
"""

from coordlock.errors import ConfigurationError
from coordlock_etcd.quiet import quiet

try:
    with quiet():
        from coordlock_etcd.backend import EtcdBackend
except ImportError as error:
    if (error.name or "").split(".")[0] not in ("grpc", "google"):
        raise
    raise ConfigurationError.missing(
        problem=f"the etcd backend needs grpcio and protobuf ({error})", extra="etcd"
    ) from error

__all__ = ["EtcdBackend"]
