"""gRPC under gevent.

After ``gevent.monkey.patch_all()`` threads are greenlets. gRPC waits inside of its C code, where
the first greenlet that waits stops all of them. So gRPC has a mode for gevent, for the whole
process and for ever: in it gRPC waits in native threads, which it takes from gevent's pool. The
pool has ten, for name look-ups too. When all of them wait for answers, nothing goes on any more. So
each client makes room for the threads that it needs.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import grpc

from coordlock.errors import ConfigurationError

__all__ = ["GeventRoom", "is_patched", "prepare"]

#: Threads in which a client waits: for its watches and the calls it started, and for the call that
#: blocks.
_CLIENT_THREADS: Final = 2
#: The thread in which gRPC waits for what is to be called back.
_GRPC_THREADS: Final = 1


def is_patched() -> bool:
    """Whether threads are greenlets."""
    monkey: Any = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def prepare(*, has_channel: bool) -> None:
    """Let gRPC wait as gevent needs it, where threads are greenlets. Idempotent.

    Raises `ConfigurationError` if the application ``has_channel`` that was made before that: calls
    of such a channel stop everything.
    """
    if not is_patched():
        return
    if has_channel and not _is_prepared():
        raise ConfigurationError(
            "gRPC is not prepared for gevent, so calls of the given client would never return; "
            "write these lines after gevent.monkey.patch_all(), and before the client is made: "
            "import grpc.experimental.gevent; grpc.experimental.gevent.init_gevent()"
        )
    from grpc.experimental import gevent

    gevent.init_gevent()


class GeventRoom:
    """What one client needs of gevent's pool, until `leave`. Nothing where threads are threads."""

    #: By all clients.
    _taken = 0
    #: The size of the pool without clients of etcd.
    _others: int | None = None

    def __init__(self, hosts: int) -> None:
        self._size = 0
        if not is_patched():
            return
        self._size = hosts + _CLIENT_THREADS
        pool = sys.modules["gevent"].get_hub().threadpool
        if GeventRoom._others is None:
            GeventRoom._others = pool.maxsize
        GeventRoom._taken += self._size
        pool.maxsize = max(pool.maxsize, GeventRoom._others + GeventRoom._taken + _GRPC_THREADS)

    def leave(self) -> None:
        """The client is closed. Idempotent."""
        GeventRoom._taken -= self._size
        self._size = 0


def _is_prepared() -> bool:
    # gRPC has no official answer. Where this one is gone, the caller is trusted.
    cygrpc: Any = getattr(grpc, "_cython", None)
    return bool(getattr(getattr(cygrpc, "cygrpc", None), "g_gevent_activated", True))
