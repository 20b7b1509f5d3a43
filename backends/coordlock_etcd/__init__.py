"""coordlock on etcd: a lease per client, a key per contender, one transaction to acquire.

::

    backend       the contract, put together from the parts below
    requests      what is asked of etcd, and what its answers mean; pure
    keys          where contenders live; pure
    watcher       departures, over one stream for all
    watch         one of them: on whom, and who is told
    progress      in which order they are told; pure
    connection    logins, failover, and what calls share
    call          one call, with a deadline, over several attempts
    starter       the threads that make calls
    endpoints     the channels to the hosts
    tls           certificates
    interpreter   its end
    errors        etcd's errors as coordlock's; pure
    versions      known bugs of servers; pure
    messages      the part of etcd's API that is spoken here

The service must be etcd 3.4 or later.
"""

from coordlock.errors import MissingExtra

try:
    from coordlock_etcd.backend import EtcdBackend
except ImportError as error:
    if (error.name or "").split(".")[0] not in ("grpc", "google"):
        raise
    raise MissingExtra(
        problem=f"the etcd backend needs grpcio and protobuf ({error})", extra="etcd"
    ) from error

__all__ = ["EtcdBackend"]
