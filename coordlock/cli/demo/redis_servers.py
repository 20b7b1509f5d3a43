"""Redis servers of a demo's own, on free ports of this machine, with nothing on disk."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coordlock.cli.connection import Service
from coordlock.cli.exits import Exit, complain
from coordlock.cli.parser import Refused, UsageError

__all__ = ["Server", "check_service", "servers"]

_PATIENCE: Final = 10.0


class Server:
    """A server, which has lost all its data when it is started again."""

    def __init__(self, directory: Path) -> None:
        self.port: Final = _free_port()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it answers."""
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        command += ["--dir", str(self._directory), "--logfile", f"{self.port}.log"]
        self._process = subprocess.Popen(command, process_group=0)
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                if self.ask("PING") == b"+PONG\r\n":
                    return
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def kill(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask(self, *words: str) -> bytes:
        """Its answer, as it comes."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall((" ".join(words) + "\r\n").encode())
            return connection.recv(4096)


def check_service(service: Service, number: str) -> None:
    """Raise `UsageError` or `Refused` unless a demo can start ``number`` servers of its own."""
    if service.url is not None:
        raise UsageError("this demo starts servers of its own: leave --url out")
    if shutil.which("redis-server") is None:
        complain(
            f"this demo starts {number} of redis-server, which is not installed; on Debian: "
            "apt-get install redis-server"
        )
        raise Refused(Exit.UNAVAILABLE)


@contextlib.contextmanager
def servers(number: int, directory: Path) -> Iterator[list[Server]]:
    """So many servers that answer, ended at the end."""
    started: list[Server] = []
    try:
        for _ in range(number):
            started.append(Server(directory))
            started[-1].start()
        yield started
    finally:
        for server in started:
            server.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
