"""HTTP servers in threads of the test: uvicorn for ASGI, the standard library's for WSGI."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import uvicorn

from coordlock.testing.waiting import eventually

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

__all__ = ["asgi_server", "wsgi_server"]


@contextmanager
def asgi_server(app: Any, **options: Any) -> Iterator[str]:
    """The URL of a uvicorn that serves ``app``; ``options`` are those of ``uvicorn.Config``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # By default it closes a connection after 5 s, as a client may use it after a stall.
        defaults: dict[str, Any] = {"log_level": "warning", "timeout_keep_alive": 300}
        config = uvicorn.Config(app, **(defaults | options))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="uvicorn")
        thread.start()
        try:
            eventually(lambda: server.started or not thread.is_alive())
            assert server.started, "uvicorn did not start"
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    request_queue_size = 100


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Not in tests."""


@contextmanager
def wsgi_server(app: WSGIApplication) -> Iterator[str]:
    """The URL of a server that runs ``app`` with a thread for each request."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.set_app(app)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="wsgi")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
