"""Pseudo-terminals: an interactive shell to type into, and what a command shows on one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.cli.command import Cli

__all__ = ["Terminal", "long_numbers", "plain", "screen"]

#: Makes the terminal on its stdin its controlling one, and becomes an interactive bash.
_SHELL: Final = """\
import fcntl, os, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
"""
_PROMPT: Final = "ready$ "
#: That connecting takes a while.
_WHILE: Final = re.compile(r"coordlock: connecting [^\r\n]*\r\n")


class Terminal:
    """bash with job control, as a user has it; a context manager."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self._screen, inside = pty.openpty()
        self._seen = ""
        self._shell = subprocess.Popen(
            [sys.executable, "-c", _SHELL],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=directory,
            env={**environment, "PS1": _PROMPT, "TERM": "dumb", "HISTFILE": ""},
            start_new_session=True,
        )
        os.close(inside)

    def write(self, text: str) -> None:
        """Type ``text``; a line ends with a newline, Ctrl-C is ``\\x03``."""
        os.write(self._screen, text.encode())

    def expect(self, pattern: str, within: float = 30.0) -> re.Match[str]:
        """Read the screen until ``pattern`` is on it; what was read before is gone."""
        deadline = time.monotonic() + within
        while (match := re.search(pattern, self._seen)) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._screen], [], [], left)[0]:
                raise TimeoutError(f"{pattern!r} is not on the screen: {self._seen!r}")
            self._seen += os.read(self._screen, 4096).decode()
        self._seen = self._seen[match.end() :]
        return match

    def interrupt(self, pattern: str) -> None:
        """Press Ctrl-C, and again if need be, until ``pattern`` is on the screen.

        A program hears it with the next key if it comes in the moment before the program reads.
        """
        for _ in range(15):
            self.write("\x03")
            with suppress(TimeoutError):
                self.expect(pattern, within=2.0)
                return
        raise TimeoutError(f"nothing hears Ctrl-C: {self._seen!r}")

    def expect_prompt(self) -> None:
        """Read until the shell waits for a command."""
        self.expect(re.escape(_PROMPT))

    def __enter__(self) -> Self:
        self.expect_prompt()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._screen)  # which hangs up on whatever still runs there


def screen(
    cli: Cli, width: int, *arguments: str, status: int = 0, environment: Mapping[str, str] = {}
) -> list[str]:
    """The lines that ``coordlock ...`` shows on a terminal of ``width`` columns."""
    variables = {**cli.environment, "TERM": "xterm", **environment}
    variables.pop("COLUMNS", None)
    outside, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    with subprocess.Popen(
        cli.command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=inside,
        stderr=inside,
        cwd=cli.directory,
        env=variables,
    ) as process:
        os.close(inside)
        seen = b""
        with suppress(OSError):  # the terminal's other side was closed
            while data := os.read(outside, 65536):
                seen += data
        os.close(outside)
    assert process.returncode == status, seen
    return _WHILE.sub("", seen.decode()).splitlines()


def plain(line: str) -> str:
    """``line`` without its colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", line)


def long_numbers(text: str) -> list[str]:
    """The tokens in what a demo says, whole or broken.

    Its lock's random name is none of them, though all of that may be decimal digits.
    """
    named = r"demo-\s*[0-9a-f]{8}"
    return re.findall(r"\d{7,}", re.sub(named, "", text))
