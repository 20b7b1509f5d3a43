"""Who leads in an election, told by HTTP: for the other containers of a pod, and for probes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from coordlock.cli.data import text_of
from coordlock.cli.parser import UsageError
from coordlock.client import Client
from coordlock.client.state import ClientStatus
from coordlock.locks.grant import Grant
from coordlock.recipes.election import Candidate
from coordlock.recipes.shared.observer import Observer

__all__ = ["serving"]

#: The states in which the service has answered this process within the time-to-live.
_ALIVE: Final = (ClientStatus.CONNECTED, ClientStatus.IN_DOUBT)


@contextmanager
def serving(
    address: tuple[str, int], client: Client, name: str, term: Callable[[], Grant | None]
) -> Iterator[None]:
    """Answer requests about the election ``name``; ``term`` gives the term of this process.

    Raises `UsageError` if it can't listen at ``address``.
    """
    with client.election(name).observe() as leaders:

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                facts = _facts(name, leaders, term())
                is_well = {
                    "/": True,
                    "/leading": facts["leading"],
                    "/healthz": client.state.status in _ALIVE,
                }
                body = json.dumps(facts).encode() + b"\n"
                if (answer := is_well.get(self.path)) is None:
                    self.send_error(HTTPStatus.NOT_FOUND, f"there are {', '.join(is_well)}")
                    return
                self.send_response(HTTPStatus.OK if answer else HTTPStatus.SERVICE_UNAVAILABLE)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: probes come each second."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

        try:
            server = Server(address, Handler)
        except OSError as error:
            raise UsageError(f"--http {address[0]}:{address[1]}: {error.strerror}") from None
        with server:
            # It looks as often whether it is to end, so that a signal's resignation is quick.
            serve = lambda: server.serve_forever(0.1)  # noqa: E731
            threading.Thread(target=serve, name="coordlock-http", daemon=True).start()
            try:
                yield
            finally:
                server.shutdown()


def _facts(
    name: str, leaders: Observer[Candidate | None], term: Grant | None
) -> dict[str, str | int | float | bool | None]:
    """What is answered. Whether this process leads is told by its own clock, not by the service."""
    try:
        leader = leaders.state
    except LookupError:  # the service has not answered yet
        leader = None
    leading = term is not None and term.remaining() > 0
    return {
        "election": name,
        "leading": leading,
        "token": term.token if term is not None and leading else None,
        "leader": None if leader is None else text_of(leader.value),
        "stale_for": leaders.stale_for,
    }
