"""A server as a child process with its own directory, ports and log."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Self

from testbed.servers.guard import guarded

__all__ = ["PortTaken", "ServerFailed", "ServerProcess"]

START_TIMEOUT: Final = 120.0
STOP_TIMEOUT: Final = 15.0


class ServerFailed(Exception):
    """The server ended or did not answer; the message ends with the tail of its log."""


class PortTaken(ServerFailed):
    """Somebody else listens on one of the server's ports."""


class ServerProcess(ABC):
    """One server process; a context manager that starts and stops it.

    The process dies with the test run, even when that is killed. Data and log stay in
    ``directory``, so a server that was stopped or killed comes back with its data and its ports
    at the next `start`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data = directory / "data"
        self.log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._has_answered = False
        self._log_start = 0
        self.choose_ports()

    @abstractmethod
    def choose_ports(self) -> None:
        """Take free ports; called again when one of them was taken by somebody else."""

    @abstractmethod
    def command(self) -> list[str]:
        """Write the configuration and return the command line."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server serves requests; bounded to about a second, never raises OSError."""

    def leads(self) -> bool:
        """Whether it leads its cluster; alone, it does."""
        return self.answers()

    @property
    def pid(self) -> int:
        """The process id; raises `ServerFailed` when the server is not running."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started, and has not ended since by itself or by force."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server and wait until it answers; the first time, on other ports if need be."""
        again = self._has_answered
        for _ in range(5):
            try:
                self.spawn()
                self.wait_until_answers()
                break
            except PortTaken:
                if again:
                    raise
                self.choose_ports()
        else:
            raise PortTaken(f"{self}: five times another port, all taken")
        return self

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        if self._process is not None:
            raise ServerFailed(f"{self} was started twice")
        command = guarded(self.command())
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is for pytest
            )

    def wait_until_answers(self, timeout: float = START_TIMEOUT) -> None:
        """Return when the server answers; `ServerFailed` with the log's tail if it does not."""
        deadline = time.monotonic() + timeout
        while not self.answers():
            process = self._running()
            if process.poll() is not None:
                self._process = None
                tail = self._tail()
                failure = PortTaken if "address already in use" in tail.lower() else ServerFailed
                raise failure(f"{self} ended with status {process.returncode}:\n{tail}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self} gave no answer for {timeout:g} s:\n{self._tail()}")
            time.sleep(0.02)
        self._has_answered = True

    def stop(self) -> None:
        """End the server in order, by force if it does not obey. Idempotent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server without warning (SIGKILL). Idempotent."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open and nothing is answered."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        # Its threads stop one by one.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Continue a paused server."""
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop where it is running, and start again with the same ports and data."""
        self.stop()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)  # a paused process handles no SIGTERM
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerFailed(f"{self} is not running")
        return self._process

    def _tail(self, size: int = 4000) -> str:
        with self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - size))
            return log.read().decode(errors="replace")

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return f"{type(self).__name__} in {self.directory}"
