"""A fence over HTTP: the header that carries the token, sent and checked.

A client that holds the lock::

    with client.lock("alice") as grant:
        accounts = fenced(httpx.Client(base_url=...), grant)    # or a requests.Session
        accounts.put("/alice", json={"balance": 70})            # StaleToken when it was overtaken

and the server::

    app = FencingMiddleware(app, AsyncMemoryFence())            # ASGI
    app = WSGIFencingMiddleware(app, MemoryFence())             # WSGI

The header is ``Fencing-Token: 34``, with a read lock's grant ``Fencing-Token: 34; shared``. A stale
token is answered with 409 and a body that names it and the newest one; see `Problem`.

The middleware calls the application within the fence's ``guard``, so that the check and the
handling are one step for all requests through the same fence. A `coordlock.fencing.MemoryFence` is
that for one server process that keeps its data in memory; a server of several processes needs a
fence that they share, such as a `coordlock.fencing.files.FileFence`. Where the data is in a
database, that is the place to check: give the middleware ``fence=None``, and let the application
check the token that it finds under `TOKEN_KEY` in its scope or environ, in the transaction of its
writes. A `StaleToken` of the request's token that the application raises is answered as if the
middleware had raised it. Frameworks that answer errors themselves must be told to answer
`Problem.stale` of it.

What to mind:

- Each path is a resource, unless ``resource`` names it. Where several paths reach one thing, as
  ``/accounts/1`` and ``/accounts/alice`` may do, give a ``resource`` that names the thing.
- The token is what the client says. It protects from honest clients that are late, not from others:
  a token of 2**63 - 1 shuts all others out. So authenticate before the middleware.
- A newer token waits until the handling of older ones is over. A client that stops in the middle
  of its upload or download keeps a handler going and holds up its successor: put the server behind
  a proxy that buffers requests and responses, or give it timeouts.
- A response that a cache may keep is not fenced where it comes from the cache.
"""

from coordlock.fencing.http.asgi import FencingMiddleware
from coordlock.fencing.http.client import (
    AsyncFencedSession,
    FencedSession,
    fenced,
    fenced_async,
    fencing_headers,
    raise_for_stale,
)
from coordlock.fencing.http.header import HEADER, format_token, parse_token
from coordlock.fencing.http.policy import TOKEN_KEY
from coordlock.fencing.http.problem import Problem
from coordlock.fencing.http.wsgi import WSGIFencingMiddleware

__all__ = [
    "HEADER",
    "TOKEN_KEY",
    "AsyncFencedSession",
    "FencedSession",
    "FencingMiddleware",
    "Problem",
    "WSGIFencingMiddleware",
    "fenced",
    "fenced_async",
    "fencing_headers",
    "format_token",
    "parse_token",
    "raise_for_stale",
]
