"""How requests reach an etcd cluster, and their answers the caller: the door to all modules below.

An acquisition passes these, from top to bottom. A removal begins at `batches`, any other request at
`connection`::

    limiter       its turn: a queue has only a few requests under way
    batches       its batch: requests for several queues go together, in one transaction
    connection    the calls to one cluster
    call          its call, with a deadline, over several attempts
    threads       the thread that makes an attempt
    endpoints     the member that the attempt goes to, and the channel to it

These stand beside that path::

    cluster       what all calls share
    members       the hosts that the cluster tells of
    login         the token that calls carry
    lookout       finds requests that were lost with a leader
    stream        the watch stream
    shutdown      the interpreter's end
    tls           certificates
    given         the application's own client
    greenlets     gRPC under gevent
"""

from coordlock_etcd.transport.batches import Batches
from coordlock_etcd.transport.connection import Connection
from coordlock_etcd.transport.greenlets import GeventRoom
from coordlock_etcd.transport.limiter import Limiter
from coordlock_etcd.transport.shutdown import can_start_threads
from coordlock_etcd.transport.stream import Stream

__all__ = ["Batches", "Connection", "GeventRoom", "Limiter", "Stream", "can_start_threads"]
