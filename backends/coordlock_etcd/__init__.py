"""coordlock on etcd: a lease per client, a key per contender, one transaction to acquire.

::

    backend       the contract, put together from the parts below
    entry_sets    contenders in several queues, in one transaction
    published     values that contenders publish
    transactions  data that a contender guards
    data          reads and writes that need no lock
    writes        writes that contenders guard
    watcher       departures, over one stream for all
    watch         one watch: its contender, and its callbacks
    progress      in which order departures are told; pure
    observing     what is observed, over one stream for all
    following     one place that is observed, and those who are told
    places        its complete state, put together from readings and events; pure
    looks         how long ago the stream has certainly told all
    status        the members, and their versions
    versions      known bugs of servers; pure
    transport     how requests reach the cluster, and answers the caller
    requests      what is asked of etcd, and what its answers mean; pure
    keys          where contenders live; pure
    errors        etcd's errors as coordlock's; pure
    rpc           the methods of etcd's API that are called here
    messages_pb2  their messages, generated from messages.proto
    quiet         gRPC's own log

The service must be etcd 3.4 or later.
"""

from coordlock.errors import MissingExtra
from coordlock_etcd.quiet import quiet

try:
    with quiet():
        from coordlock_etcd.backend import EtcdBackend
except ImportError as error:
    if (error.name or "").split(".")[0] not in ("grpc", "google"):
        raise
    raise MissingExtra(
        problem=f"the etcd backend needs grpcio and protobuf ({error})", extra="etcd"
    ) from error

__all__ = ["EtcdBackend"]
