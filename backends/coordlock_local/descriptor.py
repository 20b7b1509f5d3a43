"""Descriptors that stay open for long, which a program may close behind our back.

Daemons close all descriptors that they did not open (``os.closerange``). The system then gives the
numbers to files of the program's own, which must be neither written, read nor closed here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

__all__ = ["Descriptor"]


class Descriptor:
    """A descriptor, and the file for which it was opened."""

    def __init__(self, number: int) -> None:
        """``number`` is closed when the system cannot say which file it is."""
        self.number: Final = number
        self._is_closed = False
        try:
            status = os.fstat(number)
        except BaseException:
            os.close(number)
            raise
        self._file: Final = status.st_dev, status.st_ino

    def status(self) -> os.stat_result | None:
        """That of the file; None when the descriptor was closed, or is another file's by now."""
        try:
            status = None if self._is_closed else os.fstat(self.number)
        except OSError:
            return None
        if status is None or (status.st_dev, status.st_ino) != self._file:
            return None
        return status

    def close(self) -> None:
        """Close it, if it is still the file's. Idempotent."""
        is_open = self.status() is not None
        self._is_closed = True
        if is_open:
            with suppress(OSError):
                os.close(self.number)
