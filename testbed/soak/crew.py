"""The client processes of a run: started, paused, killed, asked."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from testbed.servers.guard import guarded

__all__ = ["Crew", "NoAnswer", "ProcessFailed", "Talker"]

#: Seconds in which a process starts, or does what it is asked, on a busy machine.
_PATIENCE: Final = 120.0
#: Seconds in which a process writes what it is doing.
_WORDS: Final = 1.0


class ProcessFailed(Exception):
    """A process of the run ended, or did not do what it was asked; ends with what it complained."""


class NoAnswer(ProcessFailed):
    """It lives, and did not do in time what it was asked."""


class Talker:
    """A child process that obeys lines on its input and answers lines on its output.

    It dies with the run, even when that is killed. What it complains of goes to ``complaints``.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        complaints: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name: Final = name
        self._complaints: Final = complaints
        with complaints.open("ab") as stderr:
            self._process = subprocess.Popen(
                guarded([sys.executable, *arguments]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=None if environment is None else {**os.environ, **environment},
                bufsize=0,
            )
        self._heard = b""

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def tell(self, order: str) -> None:
        """Send a line. Raises `ProcessFailed` when nobody is there to read it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{order}\n".encode())
        except OSError as error:
            raise self._failure(f"could not be told to {order}") from error

    def expect(self, answer: str, within: float = _PATIENCE) -> None:
        """Wait for a line. Raises `NoAnswer` when none comes in time.

        Raises `ProcessFailed` when another one comes, or the process ends.
        """
        assert self._process.stdout is not None
        deadline = time.monotonic() + within
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._heard:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._failure(f"did not say {answer!r} within {within:g} s", NoAnswer)
                data = os.read(self._process.stdout.fileno(), 4096)
                if not data:
                    raise self._failure(f"ended before it said {answer!r}")
                self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        if line.decode() != answer:
            raise self._failure(f"said {line.decode()!r} instead of {answer!r}")

    def signal(self, number: int) -> None:
        """Send a signal, to a process that still runs."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it and see it dead. Idempotent."""
        self._process.kill()
        self._process.wait()
        self._close()

    def finish(self, within: float = _PATIENCE) -> None:
        """Tell it to stop. Raises `ProcessFailed` unless it does, with status 0."""
        with contextlib.suppress(ProcessFailed):
            self.tell("stop")
        try:
            status = self._process.wait(within)
        except subprocess.TimeoutExpired as error:
            raise self._failure(f"did not stop within {within:g} s") from error
        self._close()
        if status:
            raise self._failure(f"ended with status {status}")

    def check(self) -> None:
        """Raise `ProcessFailed` if it has ended."""
        status = self._process.poll()
        if status is not None:
            raise self._failure(f"ended by itself, with status {status}")

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def complaints(self) -> str:
        """What it has complained of so far."""
        return self._complaints.read_text(errors="replace")

    def _failure(self, what: str, kind: type[ProcessFailed] = ProcessFailed) -> ProcessFailed:
        return kind(f"{self.name} {what}\n{self.complaints()[-4000:]}".rstrip())


class Crew:
    """The clients of a run; a context manager that kills those that are left.

    ``arguments`` gives the command line, after the interpreter, of the client with a name and a
    number, ``environment`` what its environment has besides; ``met`` and ``parted`` are told of
    each process that comes and goes.
    """

    def __init__(
        self,
        directory: Path,
        arguments: Callable[[str, int], Sequence[str]],
        environment: Callable[[str], Mapping[str, str]],
        met: Callable[[str, int], None],
        parted: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._arguments = arguments
        self._environment = environment
        self._met = met
        self._parted = parted
        self._clients: dict[str, Talker] = {}
        self._unready: set[str] = set()
        self._at_work = False
        self._spawned = 0

    def names(self) -> list[str]:
        """Those that live, oldest first."""
        return list(self._clients)

    def pid(self, name: str) -> int:
        """The process id of a client that lives."""
        return self._clients[name].pid

    def pause(self, name: str) -> None:
        """Stop a client in its tracks (SIGSTOP)."""
        self._clients[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let it go on (SIGCONT), if it is still there."""
        if name in self._clients:
            self._clients[name].signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        """Kill a client (SIGKILL) and see it dead. Raises `ProcessFailed` if it was already."""
        self._clients[name].check()
        self._clients.pop(name).kill()
        self._unready.discard(name)
        self._parted(name)

    def spawn(self) -> str:
        """Start one more client; its name, which nobody had before. Doesn't wait for it."""
        self._spawned += 1
        name = f"c{self._spawned}"
        complaints = self._directory / f"{name}.stderr"
        arguments = self._arguments(name, self._spawned)
        client = Talker(name, arguments, complaints, self._environment(name))
        self._clients[name] = client
        self._unready.add(name)
        self._met(name, client.pid)
        if self._at_work:
            client.tell("go")
        return name

    def await_ready(self) -> None:
        """Wait until all clients are connected."""
        for name in list(self._unready):
            self._clients[name].expect("ready")
            self._unready.discard(name)

    def begin(self) -> None:
        """Set all to work, and those to come as soon as they are connected."""
        self._at_work = True
        for client in self._clients.values():
            client.tell("go")

    def ask(self, order: str, answer: str, within: float = _PATIENCE) -> None:
        """Give everybody an order, then wait for everybody's answer."""
        self.await_ready()
        for client in self._clients.values():
            client.check()
            client.tell(order)
        for client in self._clients.values():
            client.expect(answer, within)

    def check(self) -> None:
        """Raise `ProcessFailed` if any has ended by itself."""
        for client in self._clients.values():
            client.check()

    def finish(self) -> None:
        """Stop everybody, in order."""
        for name, client in list(self._clients.items()):
            client.finish()
            self._parted(name)
            del self._clients[name]

    def activities(self) -> str:
        """What the threads of each are doing, which they complain of; why not, of who is dead."""
        told: dict[str, str] = {}
        said: dict[Talker, int] = {}
        for client in self._clients.values():
            try:
                client.check()
            except ProcessFailed as error:
                told[client.name] = str(error)
            else:
                said[client] = len(client.complaints())
                client.signal(signal.SIGUSR1)
        time.sleep(_WORDS)
        for client, length in said.items():
            words = client.complaints()[length:] or "it says nothing; is it paused?\n"
            told[client.name] = f"{client.name} (process {client.pid}) is doing:\n{words}"
        return "\n".join(told.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.activities()  # for who reads what they complained of
        for client in self._clients.values():
            client.kill()
