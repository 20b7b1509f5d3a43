"""The ids by which entries are found again, whatever became of their requests."""

from __future__ import annotations

import itertools
import os
import time
from typing import Final

try:
    from _blake2 import blake2b  # what hashlib has, which loads OpenSSL for others
except ImportError:
    from hashlib import blake2b

__all__ = ["EntryIds"]


class EntryIds:
    """Names that are never made a second time, of 32 hexadecimal digits. Not for use in a fork.

    Asking the system for each would let go of the interpreter, for which other threads wait. The
    clock tells apart the copies of a virtual machine, which share the secret and the number.
    """

    def __init__(self) -> None:
        self._secret: Final = os.urandom(32)
        self._numbers: Final = itertools.count()

    def __next__(self) -> str:
        name = f"{next(self._numbers)} {time.time_ns()}".encode()
        return blake2b(name, key=self._secret, digest_size=16).hexdigest()
