"""The demo's workers as processes, and the events that they report."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from coordlock.cli.demo.worker import Task
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["Crew", "Event", "Stuck"]

#: What happened: ``at`` (seconds on the system's clock), ``worker``, ``event``, and its facts.
Event = dict[str, Any]

_PATIENCE: Final = 90.0
_MOMENT: Final = 0.05


class Stuck(Exception):
    """Nothing happened for too long, or a worker failed."""


class Crew:
    """Some worker processes; a context manager that leaves none behind.

    They are known by their name, and by their run where several stories go on at once.
    """

    def __init__(self, url: str | None) -> None:
        #: The service of those that are hired; None for the one in the environment.
        self.url = url
        self._processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._events, self._report = os.pipe()

    def hire(self, task: Task) -> None:
        """Start a process for ``task``; it reports when it is ready and waits for `order`."""
        # Not on the command line, where every user of the machine could read a password.
        url = {} if self.url is None else {"COORDLOCK_URL": self.url}
        self._processes[task.run, task.worker] = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "coordlock.cli.demo.worker",
                replace(task, events=self._report).encode(),
            ],
            stdin=subprocess.PIPE,
            pass_fds=[self._report],
            env=os.environ | url,
            process_group=0,  # Ctrl-C in the terminal is for the demo, which ends them
        )

    def events(self, idle: Callable[[], object] = lambda: None) -> Iterator[Event]:
        """What the workers report, in order, until all have ended. Raises `Stuck`.

        ``idle`` is called whenever nothing has come for a moment.
        """
        os.close(self._report)
        self._report = -1
        deadline = time.monotonic() + _PATIENCE
        unfinished = b""
        while True:
            if time.monotonic() > deadline:
                raise Stuck(f"the demo was not over after {_PATIENCE:g} s")
            if not select.select([self._events], [], [], _MOMENT)[0]:
                idle()
                continue
            data = os.read(self._events, 65536)
            if not data:
                return
            *lines, unfinished = (unfinished + data).split(b"\n")
            for line in lines:
                event: Event = json.loads(line)
                if event["event"] == "failed":
                    raise Stuck(f"{event['worker']}: {event['error']}")
                yield event

    def order(self, worker: str, run: str = "") -> None:
        """Let ``worker`` go on from where it waits."""
        stdin = self._processes[run, worker].stdin
        assert stdin is not None
        stdin.write(b"\n")
        stdin.flush()

    def kill(self, worker: str, run: str = "") -> float:
        """End ``worker`` with SIGKILL; when that was, on the system's clock."""
        process = self._processes[run, worker]
        at = SYSTEM_CLOCK.now()
        process.kill()
        process.wait()
        return at

    def freeze(self, worker: str, run: str = "") -> float:
        """Stop ``worker`` with SIGSTOP, as a long pause of its machine would; when that was."""
        process = self._processes[run, worker]
        at = SYSTEM_CLOCK.now()
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        return at

    def thaw(self, worker: str, run: str = "") -> None:
        """Let a frozen ``worker`` go on, where it stopped, as if nothing had happened."""
        self._processes[run, worker].send_signal(signal.SIGCONT)
        self.order(worker, run)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        for file in (self._events, self._report):
            if file >= 0:
                os.close(file)
