"""The stderr of a command, passed on and kept in part."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

__all__ = ["KeptStderr"]

#: How much is kept, in bytes.
_KEPT: Final = 4096


class KeptStderr:
    """A pipe for the stderr of commands. To be made before the guard, which inherits it."""

    def __init__(self) -> None:
        self._source, self.file = os.pipe()
        os.set_blocking(self._source, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._source)
        os.close(self.file)

    @contextmanager
    def passed_on(self) -> Iterator[bytearray]:
        """Pass on to this process's stderr what a command writes during the block.

        The array has the end of it, 4 KB at most, once the block is left.
        """
        kept, (end, stop) = bytearray(), os.pipe()
        thread = threading.Thread(target=self._copy, args=(kept, end), name="coordlock-stderr")
        thread.start()
        try:
            yield kept
        finally:
            os.close(stop)
            thread.join()
            os.close(end)

    def _copy(self, kept: bytearray, end: int) -> None:
        is_over = False
        while not is_over:
            is_over = end in select.select([self._source, end], [], [])[0]
            with contextlib.suppress(BlockingIOError):
                while data := os.read(self._source, 65536):
                    kept += data
                    del kept[:-_KEPT]
                    with contextlib.suppress(OSError):  # stderr is gone
                        while data:
                            data = data[os.write(2, data) :]
