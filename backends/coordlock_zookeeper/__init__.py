"""The ZooKeeper backend: contenders are ephemeral sequential znodes, tokens are their czxids.

::

    backend       the contract, put together from the parts below
    session       one session: from connecting to its end
    queues        the requests by which contenders come, are seen, and go
    nodes         contenders as names, and their order; pure
    listings      lists of queues, shared by those who want one at once
    watches       departures, one watch for each path
    transactions  what a grant writes in ZooKeeper itself
    container     the request for a node that goes when it is empty
    touches       up to when a session certainly lives; pure
    connection    the kazoo client under a session, our own or a given one
    sender        what keeps a given one from blocking
    handler       its threads and sockets, put together from the next three
    tap           a socket that is read ahead
    wakeups       what wakes the I/O thread
    completions   what is to be done with answers
    answers       kazoo's answers as promises
    access        hosts, credentials and certificates
    describe      what kind of service it is
    errors        kazoo's errors as coordlock's; pure
    versions      known bugs of servers; pure
"""

from coordlock.errors import MissingExtra

try:
    import kazoo  # noqa: F401
except ImportError:
    raise MissingExtra(
        problem="the zookeeper backend needs the package kazoo", extra="zookeeper"
    ) from None

from coordlock_zookeeper.backend import ZookeeperBackend

__all__ = ["ZookeeperBackend"]
