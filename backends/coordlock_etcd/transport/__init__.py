"""How requests reach an etcd cluster, and answers the caller. Other modules import only from here.

An acquisition passes these, from top to bottom. Any other request begins at `connection`::

    limiter     its turn among the requests that add contenders, or remove them
    connection  all calls to one cluster, with their login, each over several attempts
    call        one attempt of a call
    threads     the threads that make attempts
    cluster     the member that an attempt goes to, and the channel to it

Beside that path::

    stream      one watch stream, and what keeps one open
    login       the token that calls carry
    given       the channel and the token of the application's own client
    tls         certificates
    greenlets   gRPC under gevent
"""

from coordlock_etcd.transport.cluster import can_start_threads
from coordlock_etcd.transport.connection import Connection
from coordlock_etcd.transport.limiter import Limiter
from coordlock_etcd.transport.stream import StreamHost

__all__ = ["Connection", "Limiter", "StreamHost", "can_start_threads"]
