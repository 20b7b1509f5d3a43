"""The guard: a second process that starts commands, and ends them when coordlock no longer can."""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import json
import math
import os
import select
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Self

from coordlock.cli.exits import Exit, complain
from coordlock.cli.signals import ENDING, blocked
from coordlock.cli.terminal import Terminal
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["Guard", "Message"]

#: An order to the guard, or a report of it.
Message = dict[str, Any]


class Guard:
    """Starts commands, and watches over their process groups, from a process of its own.

    It kills a group when this process has died (SIGKILL too: the pipe closes), and when this
    process has not extended the group's deadline in time (stopped, starved). Processes that have
    left the group, or that a command left behind when it ended, are not killed.

    Made by a fork: only while there is one thread, so before connecting. The guard keeps one
    thread, so it can fork commands at any time.
    """

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._reports, reports = os.pipe()
        with blocked(ENDING):
            self._pid = os.fork()
            if self._pid == 0:
                os.close(self._orders)
                os.close(self._reports)
                _serve(orders, reports)
        os.close(orders)
        os.close(reports)
        self._lock: Final = threading.Lock()
        self._numbers: Final = itertools.count()
        self._receivers: Final[dict[int, Callable[[Message], None]]] = {}
        self._thread: threading.Thread | None = None
        self._is_gone = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, receiver: Callable[[Message], None], deadline: float, **start: Any) -> int:
        """Start a command, as `_Service` describes it; the number by which the guard knows it.

        A thread hands all reports about it to ``receiver``; the last one says ``dismissed``, or
        ``gone`` where the guard has died.
        """
        with self._lock:
            number = next(self._numbers)
            self._receivers[number] = receiver
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._receive, name="coordlock-guard", daemon=True
                )
                self._thread.start()
            is_gone = self._is_gone
        if is_gone:
            receiver({"gone": True})
        self.send(number, deadline=deadline, start=start)
        return number

    def send(self, number: int, **order: Any) -> None:
        """Tell the guard something about the command ``number``. From any thread."""
        line = json.dumps({"number": number, **order}).encode() + b"\n"
        # A guard that has died is known by the end of its reports.
        with self._lock, contextlib.suppress(BrokenPipeError, ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)  # one that somebody stopped could not obey
            while line:
                line = line[os.write(self._orders, line) :]

    def close(self) -> None:
        """End the guard, and every command that it still watches over. Idempotent."""
        if self._pid:
            os.close(self._orders)
            # Where the caller ignores SIGCHLD, its end is waited for, and then nothing is known.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGCONT)  # one that somebody stopped could not end
                os.waitpid(self._pid, 0)
            if self._thread is not None:
                self._thread.join()
            os.close(self._reports)
            self._pid = 0

    def _receive(self) -> None:
        lines = _Lines(self._reports)
        while (reports := lines.read()) is not None:
            for report in reports:
                number = report.pop("number")
                self._receivers[number](report)
                if "dismissed" in report:
                    del self._receivers[number]
        with self._lock:
            self._is_gone = True
            left = list(self._receivers.values())
        for receiver in left:
            receiver({"gone": True})


class _Lines:
    """Messages from a pipe, a line each. What has come in part waits for its rest."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._rest = b""

    def read(self) -> list[Message] | None:
        """The messages that have come, after one look; None at the end."""
        if not (data := os.read(self._file, 65536)):
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


# The guard's process.


def _serve(orders: int, reports: int) -> NoReturn:
    """Obey until coordlock has gone. Never returns to the program."""
    service = _Service(orders, reports)
    try:
        # A signal to coordlock's group must not kill the guard too. The session stays: the terminal
        # belongs to it. Signals that ask to end stay blocked.
        os.setpgid(0, 0)
        service.run()
    except OSError as error:  # such as a fork's, where there are too many processes
        complain(error)
    finally:
        service.end()
        os._exit(0)


@dataclass(eq=False)
class _Group:
    """The process group of a command."""

    pid: int
    deadline: float
    is_reaped: bool = False

    def kill(self) -> None:
        """Kill whatever is left of it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, and wait until the command itself has ended."""
        self.kill()
        if not self.is_reaped:
            os.waitpid(self.pid, 0)


@dataclass(eq=False)
class _Service:
    orders: int
    reports: int
    #: By the number of the command; those that were not dismissed.
    groups: dict[int, _Group] = field(default_factory=dict)

    def run(self) -> None:
        """Start, watch and report, until the orders end."""
        ended, wakeup = os.pipe()
        for file in (ended, wakeup):
            os.set_blocking(file, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        lines = _Lines(self.orders)
        while True:
            due = min((group.deadline for group in self.groups.values()), default=math.inf)
            timeout = None if due == math.inf else max(0.0, due - SYSTEM_CLOCK.now())
            ready = select.select([self.orders, ended], [], [], timeout)[0]
            if ended in ready:
                os.read(ended, 4096)
                self._report_changes()
            if self.orders in ready:
                if (messages := lines.read()) is None:
                    break
                for message in messages:
                    self._obey(**message)
            self._kill_late(SYSTEM_CLOCK.now())

    def end(self) -> None:
        """Kill what is left."""
        for group in self.groups.values():
            group.end()

    def _report(self, number: int, **facts: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # coordlock has gone: the orders end
            os.write(self.reports, json.dumps({"number": number, **facts}).encode() + b"\n")

    def _obey(
        self,
        number: int,
        start: Message | None = None,
        deadline: float = math.inf,
        dismiss: bool = False,
        kill: bool = False,
    ) -> None:
        if start is not None:
            try:
                pid = os.fork()
            except OSError as error:  # the limit of processes
                self._report(number, failed=error.errno)
                return
            if pid == 0:
                self._become(number, **start)
            with contextlib.suppress(OSError):  # both sides do it, whichever comes first
                os.setpgid(pid, pid)
            self.groups[number] = _Group(pid, deadline)
            self._report(number, started=pid)
            return
        group = self.groups.get(number)  # None where it could not be started
        if group is not None:
            group.deadline = deadline
        if dismiss:
            if kill and group is not None:
                group.end()
            self.groups.pop(number, None)
            self._report(number, dismissed=True)

    def _report_changes(self) -> None:
        for number, group in self.groups.items():
            if group.is_reaped:
                continue
            pid, status = os.waitpid(group.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self._report(number, stopped=os.WSTOPSIG(status))
            elif pid:
                group.is_reaped = True
                self._report(number, ended=os.waitstatus_to_exitcode(status))

    def _kill_late(self, now: float) -> None:
        for number, group in self.groups.items():
            if group.deadline <= now:
                group.kill()
                group.deadline = math.inf
                self._report(number, killed=True)

    def _become(
        self,
        number: int,
        command: list[str],
        environment: Mapping[str, str],
        stdin: str | None,
        stderr: int,
        foreground: bool,
    ) -> NoReturn:
        """The command's process: take the terminal if it is to have it, and become the command."""
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            if foreground and (terminal := Terminal.open()) is not None:
                terminal.give_to(os.getpid())
            signal.set_wakeup_fd(-1)
            # What Python changed goes back; what the caller ignores (nohup) stays ignored.
            for changed in (*ENDING, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                if changed not in ENDING or signal.getsignal(changed) is not signal.SIG_IGN:
                    signal.signal(changed, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
            os.environ.update(environment)
            try:
                if stdin is not None:
                    _read_from_now_on(base64.b64decode(stdin))
                os.dup2(stderr, 2)
                os.execvp(command[0], command)
            except OSError as error:
                self._report(number, failed=_reason(error, command[0]))
        finally:
            os._exit(Exit.NOT_FOUND)


def _read_from_now_on(data: bytes) -> None:
    """Make ``data`` this process's stdin."""
    import tempfile  # few commands need it

    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        os.dup2(file.fileno(), 0)


def _reason(error: OSError, command: str) -> int:
    """The errno for people: a directory on the PATH that may not be searched hides nothing else."""
    nowhere = "/" not in command and not any(
        os.path.isfile(os.path.join(directory, command)) for directory in os.get_exec_path()
    )
    return errno.ENOENT if nowhere or error.errno is None else error.errno
