"""The resource that the locks protect: sets of integers behind coordlock's own fence.

``python -m testbed.resource.resource --socket PATH --journal FILE`` prints "ready". On
"finish" it writes down what all sets hold, and prints "finished". It ends when its input does. No
fault ever touches it, so it is the judge of who came too late.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import Final

from coordlock_faults.events import Kind, OperationAccepted, OperationRefused
from coordlock_faults.journal import Journal

from coordlock.errors import StaleToken
from coordlock.fencing import MemoryFence
from testbed.resource.protocol import Answer, Request

__all__ = ["Resource", "Resources"]


class Resource:
    """A set of integers under a name."""

    def __init__(self, name: str, journal: Journal) -> None:
        self.name: Final = name
        self._journal = journal
        self._fence = MemoryFence()
        # The fence lets equal tokens in together, and readers among themselves.
        self._lock = threading.Lock()
        self._values: set[int] = set()
        self._order = 0

    def take(self, request: Request) -> Answer:
        """Do what is asked for, unless the token is stale; either is written down."""
        try:
            # Inside the guard nobody newer has been let in yet, so that the order is the fence's.
            with self._fence.guard(self.name, request.token, request.shared), self._lock:
                return self._accept(request)
        except StaleToken as stale:
            self._journal.log(OperationRefused, request.operation, stale.newest)
            return Answer(newest=stale.newest)

    def _accept(self, request: Request) -> Answer:
        self._order += 1
        if request.kind is not Kind.READ:
            assert request.value is not None
            self._values.add(request.value)
        value = len(self._values) if request.kind is Kind.READ else None
        self._journal.log(OperationAccepted, request.operation, self._order, value)
        return Answer(self._order, value)

    def finish(self) -> None:
        """Write down what is there."""
        with self._lock:
            self._journal.final_set(self.name, sorted(self._values))


class Resources:
    """All resources; each is there when it is first named."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._all: dict[str, Resource] = {}

    def take(self, request: Request) -> Answer:
        """See `Resource.take`."""
        with self._lock:
            found = self._all.get(request.resource)
            if found is None:
                found = self._all[request.resource] = Resource(request.resource, self._journal)
        return found.take(request)

    def finish(self) -> None:
        """See `Resource.finish`."""
        for one in self._all.values():
            one.finish()


class _Server(ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, where: str, resources: Resources) -> None:
        self.resources: Final = resources
        super().__init__(where, _Handler)

    def handle_error(self, *_: object) -> None:
        """Whatever it is, the run is worth nothing."""
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)


class _Handler(StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Answer one client until it goes, or is killed."""
        with contextlib.suppress(ConnectionError):
            while (line := self.rfile.readline()).endswith(b"\n"):
                answer = self.server.resources.take(Request.decode(line))
                self.wfile.write(answer.encode())


def serve(path: str, journal: Journal) -> None:
    """Obey standard input until its end."""
    resources = Resources(journal)
    with _Server(path, resources) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        print("ready", flush=True)
        for line in sys.stdin:
            match line.strip():
                case "finish":
                    resources.finish()
                    print("finished", flush=True)
                case "stop":
                    break
                case other:
                    raise ValueError(f"no such order: {other!r}")
        server.shutdown()
        thread.join()


def main() -> None:
    """Serve what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--name", default="resource")
    options = parser.parse_args()
    with Journal(options.journal, options.name) as journal:
        serve(options.socket, journal)


if __name__ == "__main__":
    main()
