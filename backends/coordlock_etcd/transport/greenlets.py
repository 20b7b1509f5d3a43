"""gRPC under gevent.

After ``gevent.monkey.patch_all()`` threads are greenlets. gRPC waits inside of its C code, where
the first greenlet that waits stops all of them. So gRPC has a mode for gevent, for the whole
process and for ever: in it gRPC waits in native threads, which it takes from gevent's pool. The
pool has ten, for name look-ups too. When all of them wait for answers, nothing goes on any more. So
each client makes room for the threads that it needs. The pool starts them when they are used.
"""

from __future__ import annotations

import sys
from typing import Any, Final

__all__ = ["make_room"]

#: Threads in which gRPC waits for a client: for its watches and the calls it started, for the call
#: that blocks, and for what is to be called back.
_CLIENT_THREADS: Final = 3


def make_room(hosts: int) -> None:
    """Under gevent, make room in its pool for the threads of a client of ``hosts`` members."""
    monkey: Any = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        from grpc.experimental import gevent

        gevent.init_gevent()
        sys.modules["gevent"].get_hub().threadpool.maxsize += hosts + _CLIENT_THREADS
