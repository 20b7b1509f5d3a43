"""The ZooKeeper backend: contenders are ephemeral sequential znodes, tokens are their czxids.

::

    backend          the contract, put together from the parts below

  sessions
    session          one session: from connecting to its end
    lifetime         until when a session certainly lives; pure
    own_client       the usual kazoo client: made by the backend, for one session
    given_client     the rare one: an application's, whose session is shared
    access           hosts, credentials and certificates
    describe         what kind of service it is, and its known bugs

  contenders
    nodes            contenders as znodes: names, order, what they hold; pure
    curator          names as Curator's recipes look for them; pure
    own_contenders   making contenders, one or several in one step, and removing them
    parents          the nodes above contenders
    queues           reading queues, by lists that are shared
    watches          departures, one watch for each path

  data and observations
    data             reads and writes, with guards or without
    multis           the transactions that writes become; pure
    data_session     the session for what needs no lock
    observing        when an observed place is read, and when it is in doubt
    places           its complete state, put together from answers; pure

  kazoo
    handler          the own client's threads and sockets
    connection       its connection: what it reads and sends, and which thread does
    requests         requests, and their answers as promises
    errors           kazoo's errors as coordlock's; pure
"""

from coordlock.errors import ConfigurationError

try:
    import kazoo  # noqa: F401
except ImportError:
    raise ConfigurationError.missing(
        problem="the zookeeper backend needs the package kazoo", extra="zookeeper"
    ) from None

from coordlock_zookeeper.backend import ZookeeperBackend

__all__ = ["ZookeeperBackend"]
