"""An interactive shell on a pseudo-terminal, to type into."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["Terminal"]

#: Makes the terminal on its stdin its controlling one, and becomes an interactive bash.
_SHELL: Final = """\
import fcntl, os, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
"""
_PROMPT: Final = "ready$ "


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
