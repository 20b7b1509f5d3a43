"""Runs a script as if on another system: ``python other_system.py SYSTEM SCRIPT [ARGUMENT...]``.

What that system lacks is taken away before coordlock is imported. What Python's own modules have
found out about the system they keep: those that would look anew are imported first.
"""

from __future__ import annotations

import asyncio  # noqa: F401
import builtins
import concurrent.futures
import ctypes  # noqa: F401
import logging.handlers  # noqa: F401
import os
import select
import signal
import socket  # noqa: F401
import sqlite3  # noqa: F401
import ssl  # noqa: F401
import subprocess  # noqa: F401
import sys
import threading  # noqa: F401
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

for _name in ("kazoo.client", "grpc"):  # not installed with every Python
    with suppress(ImportError):
        __import__(_name)

#: Names of `os` and `time` that both lack.
LINUX: Final = (
    "O_TMPFILE O_PATH eventfd memfd_create pidfd_open pipe2 posix_fallocate sched_getaffinity "
    "sendfile splice CLOCK_BOOTTIME"
)
#: What Windows lacks besides.
POSIX: Final = (
    "fork forkpty register_at_fork getuid geteuid getgid getegid getpgid setsid killpg uname "
    "pread pwrite fchmod fchown chown mkfifo WNOHANG waitstatus_to_exitcode "
    "O_CLOEXEC O_NOFOLLOW O_DIRECTORY O_NOCTTY O_NONBLOCK "
    "clock_gettime CLOCK_MONOTONIC CLOCK_REALTIME CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID "
    "pthread_sigmask setitimer sigwait SIGHUP SIGQUIT SIGKILL SIGSTOP SIGCONT SIGUSR1 SIGCHLD "
    "poll epoll"
)
MODULES: Final = "fcntl grp pwd resource termios tty pty"


def take_away(names: str) -> None:
    for module in (os, time, signal, select):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)


def without_proc(open_file: Callable[..., Any]) -> Callable[..., Any]:
    def attempt(path: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(path, str) and path.startswith("/proc/"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return open_file(path, *arguments, **options)

    return attempt


def become(system: str) -> None:
    """Take away what ``system`` lacks."""
    concurrent.futures.ThreadPoolExecutor  # noqa: B018 - its module registers with forks
    builtins.open = without_proc(open)
    if system == "darwin":
        import fcntl

        fcntl.F_FULLFSYNC = fcntl.F_GETFD  # type: ignore[attr-defined]
        take_away(LINUX)
    else:
        for name in MODULES.split():
            sys.modules[name] = None  # type: ignore[assignment]
        take_away(f"{LINUX} {POSIX}")
    sys.platform = system


if __name__ == "__main__":
    system, script, *sys.argv[1:] = sys.argv[1:]
    become(system)
    exec(compile(Path(script).read_text(), script, "exec"), {"__name__": "__main__"})
