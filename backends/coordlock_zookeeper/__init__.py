"""The ZooKeeper backend: contenders are ephemeral sequential znodes, tokens are their czxids.

::

    backend          the contract, put together from the parts below
    session          one session: from connecting to its end
    queues           the requests by which contenders come, are seen, and go
    nodes            contenders as names, and their order; pure
    entry_sets       contenders in several queues, in one multi
    contenders       what a contender's node tells beside its name; pure
    child_lists      the children of queues' nodes, read once for requests that come together
    watches          departures, one watch for each path
    transactions     what a grant, or a program without one, writes in ZooKeeper itself
    data             reads and writes that need no lock
    observing        what is observed: when it is read, and when it is in doubt
    following        one of these, and those who are told
    places           its complete state, put together from answers; pure
    line             the session for all of that, opened at its first use
    container        the request for a node that goes when it is empty
    lifetime         up to when a session certainly lives; pure
    connection       what a session needs of the kazoo client under it
    own_client       the usual one: made by the backend, for one session
    given_client     the rare one: an application's, whose session is shared
    handler          the own client's threads and sockets, put together from the next three
    buffered_socket  a socket that reads ahead, and tells what the handshake granted
    wakeups          what wakes the I/O thread
    completions      the callbacks for answers, called by the I/O thread itself
    answers          kazoo's answers as promises
    access           hosts, credentials and certificates
    describe         what kind of service it is
    errors           kazoo's errors as coordlock's; pure
    versions         known bugs of servers; pure
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
