"""Requests that are spread over the servers of a group, while servers come, go and die.

Run it as it is: it uses the groups of this machine. COORDLOCK_URL takes it to a cluster.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import coordlock


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%d" % os.getpid())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def serve(group: str) -> None:
    """A server that is a member of the group while it serves, under its address."""
    with coordlock.connect() as client, ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        host, port = "127.0.0.1", server.server_port
        with client.group(group).keep_joined(f"{host}:{port}".encode()):
            server.serve_forever()


class Balancer:
    """Asks the servers in turn, as far as they are members."""

    def __init__(self, views: coordlock.types.Observer[coordlock.types.GroupView]) -> None:
        self._views = views
        self._turns = itertools.count()

    def ask(self) -> str | None:
        addresses = self._views.state.values  # up to date, without a question to the service
        for _ in addresses:
            address = addresses[next(self._turns) % len(addresses)].decode()
            try:
                with urlopen(f"http://{address}", timeout=5) as answer:
                    return str(answer.read(), "ascii")
            except OSError:
                continue  # it has died, and the group is about to say so
        return None


def wait_for(views: coordlock.types.Observer[coordlock.types.GroupView], number: int) -> None:
    while len(views.next(timeout=60).members) != number:
        pass


def main() -> None:
    group = f"web-{os.getpid()}"
    context = multiprocessing.get_context("spawn")
    servers = [context.Process(target=serve, args=(group,)) for _ in range(3)]
    with coordlock.connect(ttl=5) as client, client.group(group).observe() as views:
        for server in servers:
            server.start()
        wait_for(views, 3)
        balancer = Balancer(views)
        answers = {balancer.ask() for _ in range(6)}
        print(f"6 requests were answered by {len(answers)} servers")
        killed = servers[0]
        assert killed.pid is not None
        os.kill(killed.pid, signal.SIGKILL)
        answers = {balancer.ask() for _ in range(6)}  # also before the group knows
        assert str(killed.pid) not in answers
        assert None not in answers
        wait_for(views, 2)
        print(f"after one was killed, {len(answers)} servers answer")
        for server in servers:
            server.terminate()
            server.join()


if __name__ == "__main__":
    main()
